"""Fixtures of the tests of `run --as`."""

from capture.rewrap.rewrapping import units

__all__ = ["units"]
