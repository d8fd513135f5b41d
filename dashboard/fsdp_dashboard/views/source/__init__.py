"""The Source page."""
