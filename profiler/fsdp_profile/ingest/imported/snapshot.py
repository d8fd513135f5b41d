"""Tables of one rank from a memory snapshot that others recorded, on the steps of its trace where there is one.

A block's category is UNKNOWN unless it was allocated inside an annotation that names it: the snapshot's own, such as
`FSDP::all_gather (layers.0)`.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from fsdp_profile.core.categories import CATEGORIES, Category
from fsdp_profile.core.schema import NO_UNIT, NOT_FREED, Basis, SpanKind, Strategy
from fsdp_profile.ingest.imported.annotations import (
    Annotations,
    Array,
    Timeline,
    UnitMarks,
    strategy_of,
    timeline,
    unit_marks,
)
from fsdp_profile.ingest.imported.kineto import PHASES, Imported, time_tables, unit_tables
from fsdp_profile.ingest.rank.capture_log import StringTable
from fsdp_profile.ingest.rank.cuda_ledger import ledger_of_history
from fsdp_profile.ingest.rank.pairing import Ledger
from fsdp_profile.ingest.snapshot.frames import WORKSPACE_OPERATOR
from fsdp_profile.ingest.snapshot.reader import DeviceHistory
from fsdp_profile.ingest.snapshot.segments import pool_tables
from fsdp_profile.ingest.tables import make_table

_CATEGORY_WORDS: Final = [str(category) for category in CATEGORIES]
_BASIS_WORDS: Final = [str(basis) for basis in Basis]


def import_snapshot(history: DeviceHistory, *, trace: Imported | None) -> Imported:
    """The tables that a memory snapshot allows: memory_samples, allocations; with those of the rank's trace, if any."""
    strings = StringTable()
    ledger = ledger_of_history(history, strings)
    t_ns = ledger.samples.t_ns
    annotations = _annotations(history, int(t_ns[-1]))
    units = unit_marks(annotations)
    line = timeline(annotations, first_ns=int(t_ns[0]), last_ns=int(t_ns[-1])) if trace is None else trace.line
    tables = unit_tables(units, line, None) if trace is None else dict(trace.tables)
    tables |= time_tables(line, is_cut=False, recorded=True, known=tables.get("steps"))
    regions = _regions(ledger.blocks.start_ns, ledger.blocks.end_ns, annotations, units, tables["units"])
    tables["memory_samples"] = make_table("memory_samples", _samples(ledger, line))
    tables["allocations"] = make_table("allocations", _allocations(ledger, line, regions, strings))
    tables |= pool_tables(history)
    found = strategy_of(annotations)
    return Imported(
        tables=tables,
        line=line,
        strategy=trace.strategy if trace is not None and trace.strategy is not Strategy.NONE else found,
        num_events=(trace.num_events if trace is not None else 0) + history.events.num_rows,
        is_device=True,
        is_whole=trace.is_whole if trace is not None else True,
    )


def _samples(ledger: Ledger, line: Timeline) -> dict[str, Any]:
    samples = ledger.samples
    names = ("delta_bytes", "allocated_bytes", "unreported_free_bytes", "reserved_bytes", "active_bytes")
    return {
        "t_ns": samples.t_ns,
        "step": line.steps(samples.t_ns),
        "phase": (line.phase_codes(samples.t_ns), PHASES),
        **{name: getattr(samples, name) for name in names},
    }


def _allocations(
    ledger: Ledger, line: Timeline, regions: tuple[Array, Array, Array], strings: StringTable
) -> dict[str, Any]:
    blocks = ledger.blocks
    category, basis, unit = regions
    is_workspace = np.array([word == WORKSPACE_OPERATOR for word in strings.texts], bool)[blocks.operator]
    category = np.where(is_workspace, CATEGORIES.index(Category.WORKSPACE), category).astype(np.int32)
    basis = np.where(is_workspace, list(Basis).index(Basis.REGION), basis).astype(np.int32)
    names = (
        "address", "size_bytes", "start_ns", "end_ns", "start_event", "end_event", "stream", "free_unreported",
    )  # fmt: skip
    return {
        "allocation": np.arange(len(blocks.address)),
        **{name: getattr(blocks, name) for name in names},
        "category": (category, _CATEGORY_WORDS),
        "basis": (basis, _BASIS_WORDS),
        "unit": unit,
        "name": [""] * len(blocks.address),
        "operator": (blocks.operator, strings.texts),
        "site": (blocks.site, strings.texts),
        "step": line.steps(blocks.start_ns),
        "phase": (line.phase_codes(blocks.start_ns), PHASES),
    }


def _annotations(history: DeviceHistory, last_ns: int) -> Annotations:
    """Annotations as spans: each START with its next END; one without lasts to the end."""
    open_since: dict[str, list[int]] = {}
    spans: list[tuple[int, int, str]] = []
    for row in history.annotations.to_pylist():
        if row["stage"] == "START":
            open_since.setdefault(row["name"], []).append(row["t_ns"])
        elif open_since.get(row["name"]):
            spans.append((open_since[row["name"]].pop(), row["t_ns"], row["name"]))
    spans += [(start, max(start, last_ns), name) for name, starts in open_since.items() for start in starts]
    spans.sort()
    names = list(dict.fromkeys(name for _, _, name in spans))
    code = {name: number for number, name in enumerate(names)}
    return Annotations(
        names=names,
        name=np.array([code[name] for _, _, name in spans], np.int64),
        start_ns=np.array([start for start, _, _ in spans], np.int64),
        end_ns=np.array([end for _, end, _ in spans], np.int64),
    )


def _regions(
    start_ns: Array, end_ns: Array, annotations: Annotations, units: UnitMarks, table: pa.Table
) -> tuple[Array, Array, Array]:
    """Category, basis and unit of each block, by the annotation it was allocated in; else UNKNOWN."""
    category = np.full(len(start_ns), CATEGORIES.index(Category.UNKNOWN), np.int32)
    unit = np.full(len(start_ns), NO_UNIT, np.int64)
    numbers_of = {name: number for number, name in enumerate(table.column("name").to_pylist())}
    renumber = np.array([*(numbers_of.get(name, NO_UNIT) for name in units.names), NO_UNIT], np.int64)
    for word, kinds in (
        (Category.ALL_GATHER, (SpanKind.ALL_GATHER, SpanKind.COPY_OUT)),
        (Category.REDUCE_SCATTER, (SpanKind.REDUCE,)),
    ):
        around = units.around(start_ns, *kinds)
        category[around != NO_UNIT] = CATEGORIES.index(word)
        unit[around != NO_UNIT] = renumber[around[around != NO_UNIT]]
    for row in annotations.where("Optimizer.step#").tolist():
        begin, stop = annotations.start_ns[row], annotations.end_ns[row]
        temporary = (start_ns >= begin) & (end_ns <= stop) & (end_ns != NOT_FREED)
        category[temporary] = CATEGORIES.index(Category.OPTIMIZER_TEMPORARY)
    known = category != CATEGORIES.index(Category.UNKNOWN)
    basis = np.where(known, list(Basis).index(Basis.REGION), list(Basis).index(Basis.NONE)).astype(np.int32)
    return category, basis, unit
