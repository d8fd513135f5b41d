"""What is known of one collective, and the events to look for it in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from fsdp_profile.core.schema import CollectiveKind
from fsdp_profile.ingest.kineto.columns import Bools, Int32s, Int64s, Shape
from fsdp_profile.ingest.kineto.events import DECODE_ERRORS, Args, to_int
from fsdp_profile.ingest.kineto.names import collective_kind, dtype_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """The timed events that collectives are looked for in; one row each."""

    words: list[str]
    name: Int32s
    """Into `words`."""
    category: Int32s
    """Into `words`."""
    start_ns: Int64s
    end_ns: Int64s
    thread: Int64s
    correlation: Int64s
    external_id: Int64s
    params: Mapping[int, Args]
    shapes: Mapping[int, Shape]

    def where(self, *, name: Callable[[str], bool], category: Callable[[str], bool]) -> Int64s:
        """Rows whose name and category are of some kind, by start."""
        names = np.fromiter((name(w) for w in self.words), np.bool_, len(self.words))
        categories = np.fromiter((category(w.lower()) for w in self.words), np.bool_, len(self.words))
        return self.by_start(names[self.name] & categories[self.category])

    def by_start(self, chosen: Bools) -> Int64s:
        """Chosen rows by start."""
        rows = np.flatnonzero(chosen)
        return rows[np.argsort(self.start_ns[rows], kind="stable")]

    def name_of(self, row: int) -> str:
        """Name of an event."""
        return self.words[int(self.name[row])]


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """What is known of one collective."""

    kind: CollectiveKind
    dtype: str | None = None
    in_numel: int | None = None
    out_numel: int | None = None
    """Elements that this rank gave and got."""
    group_size: int | None = None
    group: str | None = None
    group_description: str | None = None
    seq: int | None = None


def size_bytes(call: Call) -> int | None:
    """Bytes of the whole array; None when dtype, elements or group size are not known."""
    item = dtype_of(call.dtype)[1] if call.dtype else None
    if item is None:
        return None
    part, whole = call.in_numel, call.out_numel
    if call.kind is CollectiveKind.REDUCE_SCATTER:
        part, whole = whole, part
    if call.kind in (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER):
        from_part = part * call.group_size if part is not None and call.group_size else None
        numel = max((n for n in (whole, from_part) if n is not None), default=None)
    else:
        numel = max((n for n in (part, whole) if n is not None), default=None)
    return None if numel is None else numel * item


Found = tuple[int, Call, int | None]
"""Row of the kernel or transport, what is known of it, row of the host's call."""


def is_collective(params: Args | None) -> bool:
    """Whether the arguments are those of a collective; a `wait` has arguments too."""
    return params is not None and collective_kind(params.collective or "") is not None


def call_from(params: Args) -> Call:
    """The arguments of a kernel or of `record_param_comms`."""
    return Call(
        kind=collective_kind(params.collective or "") or CollectiveKind.OTHER,
        dtype=params.dtype,
        in_numel=to_int(params.in_numel),
        out_numel=to_int(params.out_numel),
        group_size=to_int(params.group_size),
        group=None if params.group is None else str(params.group),
        group_description=params.group_description,
        seq=to_int(params.seq),
    )


def inputs_of(shape: Shape | None) -> tuple[list[int | None], list[str]]:
    """Elements and types of the arguments of a call; elements None for what is no tensor, or not recorded."""
    if shape is None:
        return [], []
    dims, types = _json_list(shape.dims), _json_list(shape.types)
    return [_numel(d) for d in dims], [t if isinstance(t, str) else "" for t in types]


def _json_list(text: bytes) -> list[Any]:
    try:
        found = msgspec.json.decode(text)
    except DECODE_ERRORS:
        return []
    return found if isinstance(found, list) else []


def _numel(dims: object) -> int | None:
    """Elements of a tensor, or of a list of tensors."""
    if not isinstance(dims, list) or not dims:
        return None
    if all(isinstance(d, int) for d in dims):
        return int(np.prod(dims, dtype=np.float64)) if min(dims) >= 0 else None
    parts = [_numel(d) for d in dims]
    return None if None in parts else sum(p for p in parts if p is not None)
