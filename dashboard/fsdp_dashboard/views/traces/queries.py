"""Queries of the Traces page: the Kineto traces of a run, and HTA's tables of them."""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from fsdp_dashboard.data import Damage, RunFacts, RunRef
from fsdp_profile.analysis.hta import runner as hta
from fsdp_profile.analysis.hta.runner import HtaTable
from fsdp_profile.analysis.run import load_run
from fsdp_profile.core import layout
from fsdp_profile.present.values import Table, Unit, column, table


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceFile:
    """One Kineto trace of a rank."""

    rank: int
    name: str
    """Its path below the run directory; of an imported trace, which the run does not hold, the name it had."""
    size_bytes: int | None
    """None for an imported trace."""


def traces(ref: RunRef, run: RunFacts) -> list[TraceFile]:
    """The traces in the run, and those that it was imported from, by rank."""
    found = []
    for rank in layout.ranks_in(ref.path):
        for path in sorted(layout.raw_dir(ref.path, rank).glob("kineto*.json*")):
            name = path.relative_to(ref.path).as_posix()
            found.append(TraceFile(rank=rank, name=name, size_bytes=path.stat().st_size))
    with Damage(ref.label):
        found += [
            TraceFile(rank=int(source["rank"]), name=str(source["file"]), size_bytes=None)
            for source in run.manifest.extra.get("imported", [])
            if source["kind"] == "trace"
        ]
    return sorted(found, key=lambda trace: (trace.rank, trace.name))


def traces_table(traces: Sequence[TraceFile]) -> Table:
    """One row per Kineto trace; without sizes where the run holds no trace."""
    places = {True: "in the run", False: "not in the run, which was imported from it"}
    columns = [
        column("rank", Unit.COUNT, [trace.rank for trace in traces]),
        column("trace", Unit.NAME, [trace.name for trace in traces]),
        column("where", Unit.TEXT, [places[trace.size_bytes is not None] for trace in traces]),
    ]
    if any(trace.size_bytes is not None for trace in traces):
        columns.append(column("size", Unit.BYTES, [trace.size_bytes for trace in traces]))
    return table("Kineto traces", columns)


def why_no_hta(run: RunFacts) -> str | None:
    """Why HTA cannot be asked about this run and what to do instead, as a sentence in Markdown; None where it can."""
    if run.manifest.device_type == "cpu":
        return (
            "HTA reads device streams, and this run was recorded on CPU: see the Collectives page for its exposed "
            "time, or record it on a GPU."
        )
    if importlib.util.find_spec("hta") is None:
        return "HTA is not installed: run `pip install 'fsdp-profile[hta]'`, then start the dashboard again."
    return None


def hta_tables(ref: RunRef) -> list[HtaTable]:
    """HTA's tables of the run's traces. HTA runs in a process of its own and can take minutes; the result is cached.

    Raises:
        InputError: the run has no trace with device activity, or it is not where it was.
        MissingExtraError: HTA is not installed.
    """
    with Damage(ref.label):
        return _cached_hta(str(ref.path), ref.stamp)


@st.cache_data(max_entries=16, show_spinner="HTA is reading the traces; this can take minutes")
def _cached_hta(path: str, stamp: tuple[int, int]) -> list[HtaTable]:
    return hta.hta_tables(load_run(path))
