"""The rules behind the findings, by subject."""
