"""The questions that a newcomer asks of a run, answered with its numbers; the answers are cached beside the run."""

from dataclasses import dataclass

import numpy as np

from fsdp_profile.analysis.cache import cached_of_run
from fsdp_profile.analysis.collectives import cross_rank_summary
from fsdp_profile.analysis.collectives.exposure import collective_summary
from fsdp_profile.analysis.collectives.stragglers import Straggler
from fsdp_profile.analysis.memory.ledger import STATES, TRANSIENT, Peak, blocks_at
from fsdp_profile.analysis.ranks.overview import rank_summaries, worst_peak
from fsdp_profile.analysis.run import Run
from fsdp_profile.analysis.spans.recorded import unit_names
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import CollectiveKind, Strategy
from fsdp_profile.ingest.tables import numbers, strings
from fsdp_profile.ingest.units import is_sharded


@dataclass(frozen=True, kw_only=True, slots=True)
class Unsharded:
    """A unit whose whole parameters were in memory at a moment."""

    name: str | None
    """'' is the root; None: parameters whose unit is not known."""
    size_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Sharding:
    """What sharding does to the peak of one rank, by its own ledger."""

    shards: int
    """Ranks that the states are divided over; of several kinds of unit the most."""
    states_bytes: int
    """Parameters, gradients and optimizer states that the rank keeps."""
    transient_bytes: int
    """Gathered parameters, gradients not reduced yet and communication buffers."""
    activation_bytes: int

    @property
    def saved_states_bytes(self) -> int:
        """The part of the states that the other ranks keep."""
        return self.states_bytes * (self.shards - 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Gathering:
    """The all-gathers of one rank in its training steps."""

    rank: int
    total_ns: int
    exposed_ns: int | None
    """The part of the total that is not hidden behind compute; None when no compute was recorded."""
    num_steps: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Answers:
    """The answers, about the rank with the highest peak except for the late rank."""

    peak: Peak | None
    """None: no allocator events of a training step."""
    unsharded: tuple[Unsharded, ...]
    """At the peak, largest first."""
    sharding: Sharding | None
    """None: no unit is sharded, or there is no peak."""
    gathering: Gathering | None
    """None: no all-gather was recorded."""
    late: Straggler | None
    """The rank that the others waited for most; None: all came at once, or nothing was matched."""
    next_late: Straggler | None
    """The one that they waited for most after that."""
    num_matched: int
    """Collectives matched across ranks."""
    is_single_rank: bool


def answers(run: Run) -> Answers:
    """All answers.

    Raises:
        InputError: a table is damaged.
    """
    return cached_of_run(run, "answers", Answers, compute=lambda: _of_tables(run))


def unsharded_at(run: Run, at: Peak) -> tuple[Unsharded, ...]:
    """The units whose whole parameters were live at a moment, largest first."""
    blocks = blocks_at(run, rank=at.rank, event=at.event)
    mine = strings(blocks, "category") == Category.UNSHARDED_PARAM.value
    unit, size = numbers(blocks, "unit")[mine], numbers(blocks, "size_bytes")[mine]
    names = unit_names(run, rank=at.rank)
    held: dict[str | None, int] = {}
    for which in np.unique(unit).tolist():
        name = names.get(which)
        held[name] = held.get(name, 0) + int(size[unit == which].sum())
    found = [Unsharded(name=name, size_bytes=size_bytes) for name, size_bytes in held.items()]
    return tuple(sorted(found, key=lambda one: -one.size_bytes))


def _of_tables(run: Run) -> Answers:
    found = worst_peak(rank_summaries(run))
    reported = found.rank if found is not None else (run.ranks[0] if run.ranks else None)
    matches = cross_rank_summary.cross_rank_summary(run)
    return Answers(
        peak=found,
        unsharded=unsharded_at(run, found) if found is not None else (),
        sharding=_sharding(run, found) if found is not None else None,
        gathering=_gathering(run, reported) if reported is not None else None,
        late=matches.stragglers[0] if matches.stragglers else None,
        next_late=matches.stragglers[1] if len(matches.stragglers) > 1 else None,
        num_matched=matches.num_matched,
        is_single_rank=matches.is_single_rank,
    )


def _sharding(run: Run, found: Peak) -> Sharding | None:
    units = run.table("units", rank=found.rank)
    sharded = is_sharded(units)
    if run.manifest.strategy is Strategy.DDP or not sharded.any():
        return None
    return Sharding(
        shards=int(numbers(units, "shard_size")[sharded].max()),
        states_bytes=found.bytes_of(STATES),
        transient_bytes=found.bytes_of(TRANSIENT),
        activation_bytes=found.by_category.get(Category.ACTIVATION, 0),
    )


def _gathering(run: Run, rank: int) -> Gathering | None:
    summary = collective_summary(run, rank=rank)
    total = summary.by_kind.get(CollectiveKind.ALL_GATHER.value) if summary is not None else None
    if total is None:
        return None
    steps = numbers(run.table("collectives", rank=rank), "step")
    num_steps = len(np.unique(steps[steps >= 0]))
    return Gathering(rank=rank, total_ns=total.total_ns, exposed_ns=total.exposed_ns, num_steps=num_steps)
