"""The registry of the data-parallel wrappers that capture understands: one module and one entry here for each.

A wrapper's kind of unit has its row in `fsdp_profile.core.units.KINDS`.
"""

from typing import Final

from fsdp_profile.capture.wrappers.base import Wrapper
from fsdp_profile.capture.wrappers.ddp import Ddp
from fsdp_profile.capture.wrappers.fsdp1 import Fsdp1
from fsdp_profile.capture.wrappers.fsdp2 import Fsdp2

WRAPPERS: Final[tuple[type[Wrapper], ...]] = (Fsdp1, Fsdp2, Ddp)
"""Every wrapper; their units are described in this order."""
