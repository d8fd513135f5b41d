"""Devices by name, with the memory that the driver reports.

A device sold with 80 GB reports 81,559 MiB; what the CUDA context and NCCL take of it is in no formula here.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from fsdp_profile.core.errors import UsageError
from fsdp_profile.core.humanize import bytes_of

_MIB: Final = 1 << 20

TIGHT_RATIO: Final = 0.9
"""A plan that needs more than this of the device is called tight: context, NCCL and fragmentation are not in it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """One accelerator."""

    name: str
    title: str
    total_bytes: int
    """What nvidia-smi (rocm-smi) calls its total memory."""


_ALL = (
    Device(name="t4", title="T4 16 GB", total_bytes=15_360 * _MIB),
    Device(name="v100-32gb", title="V100 32 GB", total_bytes=32_768 * _MIB),
    Device(name="rtx3090", title="RTX 3090 24 GB", total_bytes=24_576 * _MIB),
    Device(name="rtx4090", title="RTX 4090 24 GB", total_bytes=24_564 * _MIB),
    Device(name="l4", title="L4 24 GB", total_bytes=23_034 * _MIB),
    Device(name="l40s", title="L40S 48 GB", total_bytes=46_068 * _MIB),
    Device(name="a100-40gb", title="A100 40 GB", total_bytes=40_960 * _MIB),
    Device(name="a100-80gb", title="A100 80 GB", total_bytes=81_920 * _MIB),
    Device(name="h100", title="H100 80 GB", total_bytes=81_559 * _MIB),
    Device(name="h200", title="H200 141 GB", total_bytes=143_771 * _MIB),
    Device(name="b200", title="B200 180 GB", total_bytes=183_359 * _MIB),
    Device(name="mi300x", title="MI300X 192 GB", total_bytes=196_592 * _MIB),
)

DEVICES: Final = MappingProxyType({device.name: device for device in _ALL})

DEFAULT_DEVICES: Final = ("rtx4090", "a100-40gb", "h100", "h200")


def find_device(name: str) -> Device:
    """A device by name, or one of a size that is given ("48GiB").

    Raises:
        UsageError: neither a name nor a size.
    """
    found = DEVICES.get(name.lower())
    if found is not None:
        return found
    try:
        size = bytes_of(name)
    except ValueError as e:
        raise UsageError(f"--device {name}: not known; choose {', '.join(DEVICES)}, or give a size (48GiB)") from e
    if size < _MIB:
        raise UsageError(f"--device {name}: smaller than 1 MiB; give a size with its unit (48GiB)")
    return Device(name=name, title=name, total_bytes=size)
