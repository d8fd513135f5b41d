"""Check a run against limits and against a baseline."""
