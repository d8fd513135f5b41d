"""Collectives of one rank, and the collectives of all ranks matched with each other."""
