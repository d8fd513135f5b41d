"""Match the calls of all ranks: which rows of their `collectives` tables are one collective.

[Note: How calls are matched]
Calls are matched by process group and `sequence` where it was recorded, else by their order within group, kind and
step, because ranks issue the collectives of a group in one order. Only training steps are matched. The ranks of a group
are those that the recording lists; else all ranks where its size is the world size (or was not recorded); else the
ranks that used its name, if they are not more than its size. A group without known ranks is never matched.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from fsdp_profile.analysis.run import Run
from fsdp_profile.core.schema import CollectiveKind
from fsdp_profile.ingest.tables import numbers, strings, words

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]

MISSING: Final = -1
"""Stands for null in number columns."""

UNEVEN_KINDS: Final = (CollectiveKind.ALL_TO_ALL, CollectiveKind.SEND_RECV, CollectiveKind.OTHER)
"""Ranks may pass different sizes to these kinds, so that the sizes need not agree."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """One process group."""

    name: str
    """'' when not recorded."""
    description: str
    ranks: tuple[int, ...] | None
    """Global ranks, as far as they are known; None where none is known."""
    size: int | None
    """Number of ranks; None where it was not recorded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Calls:
    """Every call of every rank in training steps, sorted by collective, then rank."""

    groups: list[Group]
    kinds: list[str]
    dtypes: list[str]
    units: list[str | None]
    """None stands for no unit."""
    rank: Ints
    kind: Ints
    """Into `kinds`; `dtype`, `unit` and `group` likewise."""
    dtype: Ints
    unit: Ints
    group: Ints
    step: Ints
    sequence: Ints
    """MISSING when null; `size_bytes` likewise."""
    size_bytes: Ints
    issue_ns: Ints
    start_ns: Ints
    end_ns: Ints
    first: Ints
    """The first row of each collective."""

    @property
    def count(self) -> Ints:
        """How many ranks called each collective."""
        return np.diff(np.append(self.first, len(self.rank)))

    @property
    def collective(self) -> Ints:
        """The collective of each row."""
        return np.repeat(np.arange(len(self.first)), self.count)


_CODED = ("kind", "dtype", "unit", "group_name", "group_description")
_NUMBERS = ("step", "sequence", "size_bytes", "group_size", "issue_ns", "start_ns", "end_ns")


def match_calls(run: Run) -> Calls:
    """The calls of all ranks, each row with the number of its collective; see the note above.

    Raises:
        InputError: a rank's table is damaged.
    """
    vocabulary: dict[str, dict[Any, int]] = {name: {} for name in _CODED}
    parts = [_rank_calls(run, rank, vocabulary) for rank in run.ranks]
    found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}
    if not parts:
        found = {name: np.zeros(0, np.int64) for name in ("rank", *_CODED, *_NUMBERS)}
    groups, found["group"] = _groups(run, found, vocabulary)
    collective = _collective(found)
    order = np.lexsort((found["rank"], collective))
    collective = collective[order]
    first = np.flatnonzero(np.diff(collective, prepend=-1))
    columns: dict[str, Any] = {name: found[name][order] for name in found if name in Calls.__dataclass_fields__}
    columns |= {f"{name}s": list(vocabulary[name]) for name in ("kind", "dtype", "unit")}
    return Calls(groups=groups, first=first, **columns)


def same_content(calls: Calls) -> Bools:
    """For each collective: whether its calls agree on kind, size and dtype, as far as these were recorded."""
    if not len(calls.first):
        return np.zeros(0, np.bool_)
    uneven = np.array([kind in set(map(str, UNEVEN_KINDS)) for kind in calls.kinds] or [False], np.bool_)
    is_missing = np.array([not dtype for dtype in calls.dtypes] or [True], np.bool_)
    size = np.where(uneven[calls.kind], MISSING, calls.size_bytes)
    dtype = np.where(is_missing[calls.dtype], MISSING, calls.dtype)
    agree = np.ones(len(calls.first), np.bool_)
    for column in (calls.kind, size, dtype):
        highest = np.maximum.reduceat(column, calls.first)
        lowest = np.minimum.reduceat(np.where(column == MISSING, np.iinfo(np.int64).max, column), calls.first)
        agree &= (highest == MISSING) | (highest == lowest)
    return agree


def numbered(*columns: Ints) -> Ints:
    """One number per distinct row of some columns, in their order."""
    if not len(columns[0]):
        return np.zeros(0, np.int64)
    order = np.lexsort(columns[::-1])
    changes = np.zeros(len(order), np.bool_)
    for column in columns:
        changes[1:] |= np.diff(column[order]) != 0
    found = np.empty(len(order), np.int64)
    found[order] = np.cumsum(changes)
    return found


def _rank_calls(run: Run, rank: int, vocabulary: dict[str, dict[Any, int]]) -> dict[str, Ints]:
    table = run.table("collectives", rank=rank)
    keep = numbers(table, "step") >= 0
    columns: dict[str, Ints] = {"rank": np.full(int(keep.sum()), rank, np.int64)}
    for name in _NUMBERS:
        column = table.column(name).fill_null(MISSING)
        columns[name] = column.to_numpy()[keep].astype(np.int64)
    for name, source in (("kind", "kind"), ("dtype", "dtype"), ("group_name", "group"),
                         ("group_description", "group_description")):  # fmt: skip
        codes, listed = words(table, source)
        columns[name] = _codes(vocabulary[name], listed, codes[keep])
    units = run.table("units", rank=rank)
    named = dict(zip(numbers(units, "unit").tolist(), strings(units, "name").tolist(), strict=True))
    own, inverse = np.unique(numbers(table, "unit")[keep], return_inverse=True)
    columns["unit"] = _codes(vocabulary["unit"], [named.get(unit) for unit in own.tolist()], inverse)
    return columns


def _codes(vocabulary: dict[Any, int], listed: Iterable[Any], codes: Any) -> Ints:
    """Codes into `listed` as codes into the vocabulary, which grows."""
    new = [vocabulary.setdefault(word, len(vocabulary)) for word in listed]
    return np.array([*new, 0], np.int64)[np.asarray(codes, np.int64)]


def _groups(run: Run, found: dict[str, Ints], vocabulary: dict[str, dict[Any, int]]) -> tuple[list[Group], Ints]:
    """The process groups, and the group of each call."""
    names, descriptions = list(vocabulary["group_name"]), list(vocabulary["group_description"])
    columns = (found["group_name"], found["group_size"], found["rank"], found["group_description"])
    number = numbered(*columns)
    _, rows = np.unique(number, return_index=True)
    seen = [tuple(int(column[row]) for column in columns) for row in rows]
    ranks_of: dict[int, set[int]] = {}
    for name, _, rank, _ in seen:
        ranks_of.setdefault(name, set()).add(rank)
    listed = [g for g in run.manifest.extra.get("process_groups", []) if isinstance(g, dict)]
    groups: dict[tuple[str, tuple[int, ...] | None, int], Group] = {}
    of_seen = []
    for name, size, rank, text in seen:
        entry = next((g for g in listed if g.get("name") == names[name] and rank in g.get("ranks", ())), None)
        ranks = tuple(entry["ranks"]) if entry else _members(run, names[name], size, ranks_of[name])
        key = (names[name], ranks, size if ranks is None else MISSING)
        description = descriptions[text] or str((entry or {}).get("description") or "")
        groups.setdefault(
            key,
            Group(
                name=names[name],
                description=description,
                ranks=ranks,
                size=_size(run, size, entry=entry, ranks=ranks),
            ),
        )
        of_seen.append(list(groups).index(key))
    return list(groups.values()), np.array([*of_seen, 0], np.int64)[number] if len(number) else number


def _members(run: Run, name: str, size: int, seen: set[int]) -> tuple[int, ...] | None:
    """The ranks of a group that the recording does not list, as far as these ranks recorded something."""
    if size == _world_size(run) or (not name and size == MISSING):
        return run.ranks
    if not name or (size != MISSING and len(seen) > size):
        return None
    return tuple(sorted(seen))


def _size(run: Run, size: int, *, entry: dict[str, Any] | None, ranks: tuple[int, ...] | None) -> int | None:
    """How many ranks a group has; None where it is not known."""
    if size != MISSING:
        return size
    if entry is not None:
        return len(entry["ranks"])
    return _world_size(run) if ranks == run.ranks else None


def _world_size(run: Run) -> int:
    return max(run.manifest.world_size, max(run.ranks, default=-1) + 1)


def _collective(found: dict[str, Ints]) -> Ints:
    """The number of each call's collective."""
    by_order = found["sequence"] == MISSING
    group = found["group"]
    kind, step = (np.where(by_order, found[name], MISSING) for name in ("kind", "step"))
    # By order the step leads, so that numbers rise in the order of the run within a group.
    key = numbered(group, step, found["sequence"], kind)
    order = np.lexsort((found["start_ns"], found["issue_ns"], found["rank"], key))
    changes = np.diff(key[order], prepend=-1) != 0
    changes |= np.diff(found["rank"][order], prepend=-1) != 0
    begins = np.flatnonzero(changes)
    position = np.arange(len(order)) - np.repeat(begins, np.diff(np.append(begins, len(order))))
    occurrence = np.empty(len(order), np.int64)
    occurrence[order] = position
    return numbered(key, occurrence)
