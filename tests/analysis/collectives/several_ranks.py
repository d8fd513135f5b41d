"""Synthetic runs of several ranks."""

from pathlib import Path

from builder import RunBuilder

from fsdp_profile.core.schema import CollectiveKind

GATHER, REDUCE = CollectiveKind.ALL_GATHER, CollectiveKind.ALL_REDUCE


def run_of(path: Path, *ranks, world_size=None, **values):
    """A run whose ranks have collectives (kind, start, end), or (kind, start, end, fields)."""
    b = RunBuilder(path=path / "run")
    for rank, collectives in enumerate(ranks):
        b.rank(rank).unit("layers.0").unit("layers.1")
        for kind, start, end, *own in collectives:
            b.collective(kind, start, end, **{**values, "group_size": len(ranks), **(own[0] if own else {})})
    return b.set(world_size=world_size or len(ranks)).build()


def column(found, name):
    return found.collectives.column(name).to_pylist()
