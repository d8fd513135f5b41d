"""The What if page."""
