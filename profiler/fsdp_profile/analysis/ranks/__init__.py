"""Ranks beside each other."""
