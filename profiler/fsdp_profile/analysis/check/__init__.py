"""A run against limits, or against a baseline."""
