"""The Traces page."""
