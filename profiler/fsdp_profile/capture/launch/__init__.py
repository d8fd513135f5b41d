"""Start the ranks of a script."""
