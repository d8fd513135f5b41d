"""The Units page."""
