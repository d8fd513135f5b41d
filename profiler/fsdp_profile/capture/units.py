"""Numbers and names of the units of this rank: FSDP1 handles, FSDP2 groups, DDP buckets."""

import weakref
from typing import Any

_ATTRIBUTE = "_fsdp_profile_unit"

_WRAPPER_PARTS = frozenset({"_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod", "_ddp_wrapped_module"})


class UnitRegistry:
    """Gives every unit a number, in the order of construction."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self._alive: dict[int, weakref.ref[Any]] = {}
        self._count = 0

    def number(self, owner: Any) -> int:
        """The unit's number; a new one at first sight."""
        found = owner.__dict__.get(_ATTRIBUTE)
        if found is None:
            found = self.reserve()
            owner.__dict__[_ATTRIBUTE] = found
            self._alive[found] = weakref.ref(owner)
        return int(found)

    def reserve(self) -> int:
        """A number for a unit without an object of its own (a bucket in DDP's reducer)."""
        self._count += 1
        return self._count - 1

    def owner(self, unit: int) -> Any:
        """The handle or group; None when it is gone."""
        reference = self._alive.get(unit)
        return reference() if reference is not None else None

    def owners(self) -> list[tuple[int, Any]]:
        """All units whose object is alive."""
        return [(unit, owner) for unit in self._alive if (owner := self.owner(unit)) is not None]


def clean_name(name: str) -> str:
    """A module path as the script built it, with no wrapper's part in it.

    >>> clean_name("_fsdp_wrapped_module.layers.0._checkpoint_wrapped_module"), clean_name("module.")
    ('layers.0', 'module')
    """
    return ".".join(part for part in name.split(".") if part and part not in _WRAPPER_PARTS)


def dtype_text(dtype: Any) -> str:
    """'float32' of torch.float32; '' of None."""
    return str(dtype).removeprefix("torch.") if dtype is not None else ""
