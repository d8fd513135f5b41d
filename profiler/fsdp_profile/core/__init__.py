"""The contract between the parts: words, tables, categories, the run directory, errors. Standard library only."""
