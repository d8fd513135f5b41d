"""The recording of one rank to its tables."""
