"""The Share page."""
