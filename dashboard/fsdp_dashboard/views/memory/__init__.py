"""The Memory page."""
