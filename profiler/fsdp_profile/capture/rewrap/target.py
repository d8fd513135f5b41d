"""The strategies that `run --as` can train an unmodified script under, by the names the command line uses."""

from dataclasses import dataclass
from typing import Final

from fsdp_profile.core.errors import UsageError
from fsdp_profile.core.words import Word


class Recipe(Word):
    """How model states are spread; the prefix of what `--as` takes."""

    AS_IS = "as-is"
    """As the script wraps it."""
    DDP = "ddp"
    """Everything replicated."""
    ZERO1 = "zero1"
    """DDP, with every rank keeping optimizer states of its own part of the parameters only."""
    ZERO2 = "zero2"
    """Sharded, gathered from forward to backward: SHARD_GRAD_OP, `reshard_after_forward=False`."""
    FSDP = "fsdp"
    """Sharded, gathered for use only: FULL_SHARD, resharding after forward."""
    HSDP = "hsdp"
    """FSDP inside groups of k ranks, replicated across the groups: `hsdp:k`."""


_KNOWN: Final = "ddp, zero1, zero2, fsdp, hsdp:K (shards over K ranks), as-is"


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """One strategy to train under."""

    recipe: Recipe
    shards: int = 0
    """Ranks a parameter is sharded over, under HSDP; else 0."""

    @property
    def text(self) -> str:
        """As `--as` takes it."""
        return f"{self.recipe}:{self.shards}" if self.recipe is Recipe.HSDP else str(self.recipe)

    @property
    def folder(self) -> str:
        """Name of its run's folder.

        >>> parse_target("hsdp:2").folder
        'hsdp-2'
        """
        return self.text.replace(":", "-")

    @property
    def is_replicated(self) -> bool:
        """Every rank keeps every parameter."""
        return self.recipe in (Recipe.DDP, Recipe.ZERO1)

    @property
    def is_sharded(self) -> bool:
        """Parameters are divided over ranks."""
        return self.recipe in (Recipe.ZERO2, Recipe.FSDP, Recipe.HSDP)

    def check(self, world_size: int) -> None:
        """Raise UsageError if this world size cannot use the strategy.

        Raises:
            UsageError: the groups do not divide the ranks, or leave one replica.
        """
        if self.recipe is Recipe.HSDP and (world_size % self.shards or world_size == self.shards):
            raise UsageError(
                f"--as {self.text}: {world_size} rank{'s' if world_size != 1 else ''} are not two or more groups of "
                f"{self.shards}; choose another K, or --as fsdp"
            )


def parse_target(text: str) -> Target:
    """The strategy of a text such as 'ddp' or 'hsdp:4'.

    Raises:
        UsageError: the text names no strategy.
    """
    name, colon, number = text.strip().lower().partition(":")
    recipe = next((r for r in Recipe if r.value == name), None)
    if recipe is Recipe.HSDP:
        if not number.isdecimal() or int(number) < 2:
            raise UsageError(f"--as {text}: give the ranks of a shard group, 2 or more, such as hsdp:2")
        return Target(recipe=recipe, shards=int(number))
    if recipe is None or colon:
        raise UsageError(f"--as {text}: no such strategy; give one of {_KNOWN}")
    return Target(recipe=recipe)
