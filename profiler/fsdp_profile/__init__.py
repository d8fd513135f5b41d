"""fsdp-profile: where the memory of a distributed PyTorch run goes, and what sharding buys.

Importing this package imports nothing else, so that it can sit in every training process for free.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
