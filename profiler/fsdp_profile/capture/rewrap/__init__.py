"""Train an unmodified script under another strategy than its own: `run --as`."""
