"""One file for each data-parallel wrapper that capture understands."""
