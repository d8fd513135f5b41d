"""Collectives, of one rank and across ranks."""
