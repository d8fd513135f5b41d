"""What runs inside the training process: hooks that append, and a writer that flushes at step boundaries.

Rule of this floor: nothing here may break, slow or change the training it watches. A hook that fails switches
its own source off, warns once and lands in the manifest.
"""

from fsdp_profile.capture.api import Recording, profile

__all__ = ["Recording", "profile"]
