"""Every error a user can cause or meet, one class each; only commands/ turns them into text."""

import re
from typing import Final

_OUT_OF_MEMORY: Final = re.compile(
    r"OutOfMemoryError|CUDA out of memory|HIP out of memory|XPU out of memory|DefaultCPUAllocator: can't allocate|"
    r"DefaultCPUAllocator: not enough memory|^MemoryError\b"
)
_ASKED: Final = re.compile(r"tried to allocate ([\d.]+) ?(bytes|KiB|MiB|GiB|TiB)", re.IGNORECASE)
_BYTES: Final = {"bytes": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}


def is_out_of_memory(message: str) -> bool:
    """Whether an exception's text ("Type: message") is an out-of-memory error of torch or Python.

    >>> is_out_of_memory("OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"), is_out_of_memory("E: x")
    (True, False)
    """
    return _OUT_OF_MEMORY.search(message) is not None


def asked_bytes(message: str) -> int | None:
    """The bytes asked for, as such a text states them (CUDA rounds to two decimals of a unit); None: not stated.

    >>> asked_bytes("you tried to allocate 4096 bytes."), asked_bytes("Tried to allocate 2.50 MiB")
    (4096, 2621440)
    """
    found = _ASKED.search(message)
    return round(float(found[1]) * _BYTES[found[2].lower()]) if found else None


class FsdpProfileError(Exception):
    """Base of all errors of this package; its message is one line: what, where, what to do."""


class UsageError(FsdpProfileError):
    """The command line or an argument does not make sense."""


class InputError(FsdpProfileError):
    """A file or folder given by the user cannot be used."""


class SchemaError(InputError):
    """A run was written with columns or a version that this release cannot read."""


class OutputError(FsdpProfileError):
    """The place to write to is missing, full, read-only or already taken."""


class SimulationError(FsdpProfileError):
    """A script cannot be simulated; the message names its line and the alternatives."""


class MissingExtraError(FsdpProfileError):
    """An optional dependency is needed for this and is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an extra: pip install 'fsdp-profile[{extra}]'")
        self.extra = extra
