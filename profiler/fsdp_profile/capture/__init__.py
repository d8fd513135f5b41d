"""What runs inside the training process: hooks that append, and a writer that flushes at step boundaries.

Nothing here may break, slow or change the training that is recorded. A hook that fails switches its own source off,
warns once and is listed in the manifest.
"""

from fsdp_profile.capture.api import Recording, profile

__all__ = ["Recording", "profile"]
