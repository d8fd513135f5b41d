"""What a trace records of its process: rank, world, process groups, base time.

The keys stand before or after the events, wherever the writer put them; each is read on its own, so that
damage around it does not matter.
"""

import json
import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

from fsdp_profile.ingest.kineto.columns import MAX_TIME_NS
from fsdp_profile.ingest.kineto.events import to_int
from fsdp_profile.ingest.kineto.names import rank_in_name

_DECODER: Final = json.JSONDecoder(strict=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessGroup:
    """One process group that the rank belongs to."""

    name: str
    """As in the arguments of collectives: "0", "5"."""
    description: str | None
    """`default_pg`, `mesh_dp`."""
    backend: str | None
    size: int | None
    ranks: tuple[int, ...]
    """Global ranks; empty when not recorded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Metadata:
    """What the file says around its events; None is "not recorded"."""

    rank: int | None
    world_size: int | None
    base_ns: int | None
    process_groups: tuple[ProcessGroup, ...]


def read_metadata(head: bytes, tail: bytes) -> Metadata:
    """From what stands before and after the events."""
    texts = [part.decode("utf-8", "replace") for part in (head, tail)]
    info = _value(texts, "distributedInfo")
    info = info if isinstance(info, dict) else {}
    base = _whole(_value(texts, "baseTimeNanoseconds"))
    listed = info.get("pg_config")
    groups = [_group(g) for g in listed if isinstance(g, dict)] if isinstance(listed, list) else []
    return Metadata(
        rank=_whole(info.get("rank")),
        world_size=_whole(info.get("world_size")),
        base_ns=base if base is not None and base < MAX_TIME_NS else None,
        process_groups=tuple(groups),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Rank:
    """The rank of a file and how sure it is."""

    rank: int | None
    source: str
    """'content', 'given', 'file name' or 'none'."""
    other: tuple[int, str] | None = None
    """Another rank that was overruled, and its source."""


def choose_rank(path: PurePath, metadata: Metadata, *, given: int | None) -> Rank:
    """The rank in the content of a file, else the one given, else the one in its name."""
    found = [(metadata.rank, "content"), (given, "given"), (rank_in_name(path), "file name")]
    known = [(rank, source) for rank, source in found if rank is not None]
    if not known:
        return Rank(rank=None, source="none")
    rank, source = known[0]
    return Rank(rank=rank, source=source, other=next((t for t in known if t[0] != rank), None))


def _value(texts: list[str], key: str) -> Any:
    """The last value of a key; None when absent or damaged."""
    pattern = re.compile(rf'"{key}"\s*:\s*')
    found = [_parsed(text, m.end()) for text in texts for m in pattern.finditer(text)]
    return next((value for value in reversed(found) if value is not None), None)


def _parsed(text: str, start: int) -> Any:
    try:
        return _DECODER.raw_decode(text, start)[0]
    except (ValueError, RecursionError):
        return None


def _group(found: dict[str, Any]) -> ProcessGroup:
    ranks = found.get("ranks")
    return ProcessGroup(
        name=str(found.get("pg_name", "")),
        description=_text(found.get("pg_desc")),
        backend=_text(found.get("backend_config")),
        size=_whole(found.get("pg_size")),
        ranks=tuple(r for r in map(_whole, ranks) if r is not None) if isinstance(ranks, list) else (),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: object) -> int | None:
    """A number of 0 or more."""
    number = to_int(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
    return number if number is not None and number >= 0 else None
