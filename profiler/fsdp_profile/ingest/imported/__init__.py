"""Files that other tools recorded to a run directory."""
