"""The report of a run as Markdown."""
