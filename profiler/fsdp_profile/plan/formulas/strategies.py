"""How the model's state can be laid out over the ranks, and what each layout divides."""

from dataclasses import dataclass
from typing import Final

from fsdp_profile.core.errors import UsageError
from fsdp_profile.core.words import Word


class Layout(Word):
    """A way to spread parameters, gradients and optimizer states."""

    DDP = "ddp"
    """Everything whole on every rank."""
    ZERO1 = "zero1"
    """Optimizer states divided, parameters and gradients whole."""
    ZERO2 = "zero2"
    """Optimizer states and gradients divided, parameters whole."""
    FSDP = "fsdp"
    """Everything divided; a unit's parameters are gathered for its forward and again for its backward (ZeRO-3)."""
    FSDP_NO_RESHARD = "fsdp-no-reshard"
    """Everything divided; a unit stays gathered from its forward to the end of its backward."""
    HSDP = "hsdp"
    """Divided inside groups of ranks, the same in every group."""


LAYOUTS: Final = tuple(Layout)

SIMULATED: Final = (Layout.DDP, Layout.ZERO1, Layout.FSDP, Layout.FSDP_NO_RESHARD, Layout.HSDP)
"""Layouts that a script can be re-wrapped in."""

FULLY_SHARDED: Final = (Layout.FSDP, Layout.FSDP_NO_RESHARD, Layout.HSDP)

DEFAULT_REPLICAS: Final = 2
"""Of the shards under HSDP, as in the mesh (2, N / 2)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """The ranks of a job."""

    size: int
    replicas: int = DEFAULT_REPLICAS
    """Groups that hold the same shards; HSDP only."""

    def __post_init__(self) -> None:
        if self.size < 1:
            raise UsageError(f"--world-size {self.size}: give a number of ranks, 1 or more")
        if self.replicas < 1:
            raise UsageError(f"--replicas {self.replicas}: give a number of groups, 1 or more")

    @property
    def has_hsdp(self) -> bool:
        """Whether the ranks can be divided into the replicas."""
        return self.size % self.replicas == 0 and self.size >= self.replicas

    def shards(self, layout: Layout) -> int:
        """Ranks the optimizer states are divided over.

        Raises:
            UsageError: HSDP, and the replicas do not divide the ranks.
        """
        if layout is Layout.DDP:
            return 1
        if layout is not Layout.HSDP:
            return self.size
        if not self.has_hsdp:
            raise UsageError(
                f"--replicas {self.replicas} does not divide --world-size {self.size}; HSDP needs a mesh of "
                "replicas x shards, such as --world-size 8 --replicas 2"
            )
        return self.size // self.replicas


def wrapped_as(layout: Layout, world: World) -> str:
    """What `run --as` calls a layout of SIMULATED.

    >>> wrapped_as(Layout.HSDP, World(size=8, replicas=2))
    'hsdp:4'
    """
    if layout is Layout.HSDP:
        return f"hsdp:{world.shards(layout)}"
    return "zero2" if layout is Layout.FSDP_NO_RESHARD else str(layout)
