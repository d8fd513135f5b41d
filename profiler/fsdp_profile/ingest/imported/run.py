"""Turn Kineto traces and memory snapshots recorded by others into a run directory, one trace and snapshot a rank.

[Note: Which rank a file is of]
Its content says, else its name, else its place in the order given (the lowest rank still free, which is said).
Two files of one kind for one rank are refused: one would hide the other. A damaged file gives what is whole in it;
one of which nothing is usable is left out. Both are in the manifest's warnings.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from fsdp_profile.core import layout
from fsdp_profile.core.errors import InputError, OutputError
from fsdp_profile.core.humanize import listed
from fsdp_profile.core.manifest import Manifest, RankRecord, Receipt
from fsdp_profile.core.schema import TABLES, Ending, Strategy
from fsdp_profile.ingest.imported.kineto import Imported, import_trace
from fsdp_profile.ingest.imported.snapshot import import_snapshot
from fsdp_profile.ingest.kineto.names import rank_in_name
from fsdp_profile.ingest.kineto.reader import Trace, read_trace
from fsdp_profile.ingest.manifest import write_manifest
from fsdp_profile.ingest.snapshot.reader import DeviceHistory, read_snapshot
from fsdp_profile.ingest.tables import read_table, write_table

TRACE: Final = "trace"
SNAPSHOT: Final = "memory snapshot"

_GZIP_MAGIC: Final = b"\x1f\x8b"
_SNAPSHOT_SUFFIXES: Final = (".pickle", ".pkl", ".pickle.gz", ".pkl.gz")
_NO_SNAPSHOT: Final = "no memory snapshot was imported"
_MIN_LOAD_BYTES: Final = 2 << 30
_LOAD_BYTES_PER_BYTE: Final = 64
"""Address space to load a snapshot in: Python objects are up to some 40 times the file."""


@dataclass(kw_only=True, slots=True)
class _Job:
    """What was read so far."""

    run_dir: Path
    rank: int | None = None
    """The rank that the user gave."""
    file_of: dict[tuple[str, int], Path] = field(default_factory=dict)
    """(kind, rank) -> the file."""
    imported: dict[int, Imported] = field(default_factory=dict)
    """By rank, without the tables, which are written."""
    notes: list[tuple[int, str, str]] = field(default_factory=list)
    """(rank, file, warning)"""
    warnings: list[str] = field(default_factory=list)
    """Warnings about no single rank."""
    worlds: dict[int, int] = field(default_factory=dict)
    """Rank -> the world size that its trace records."""
    groups: dict[tuple[str, tuple[int, ...]], dict[str, Any]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    """Files of which nothing is usable, and why."""
    raw_bytes: int = 0


def import_files(
    paths: Sequence[Path], run_dir: Path, *, name: str, rank: int | None = None, command: Sequence[str] = (),
    progress: Callable[[Path], None] | None = None,
) -> Manifest:  # fmt: skip
    """Write the tables of all files into a claimed run directory; returns the manifest (written too).

    Args:
        paths: Kineto traces (.json, .json.gz) and memory snapshots (.pickle), distinguished by content.
        run_dir: an empty folder.
        name: name of the run.
        rank: of the one trace and of the one snapshot, whatever they say.
        command: the command line, for the manifest.
        progress: called with each file before it is read.

    Raises:
        InputError: nothing usable in any file, two files of one kind for one rank, or several with a rank given.
        OutputError: the folder cannot be written.
    """
    begin = time.perf_counter_ns()
    job = _Job(run_dir=run_dir, rank=rank)
    snapshots = [path for path in paths if kind_of(path) == SNAPSHOT]
    if rank is not None and max(len(snapshots), len(paths) - len(snapshots)) > 1:
        raise InputError(f"--rank {rank} is for one trace and one snapshot; {len(paths)} files were given")
    try:
        _import_traces(job, [path for path in paths if path not in snapshots], progress)
        _import_snapshots(job, snapshots, progress)
        if not job.imported:
            rest = f" ({len(job.refused)} files, none usable)" if len(job.refused) > 1 else ""
            raise InputError(f"{job.refused[0]}{rest}")
        manifest = _manifest(job, name, list(command), time.perf_counter_ns() - begin)
    except OSError as e:
        raise OutputError(f"{run_dir}: cannot write ({e.strerror or e})") from e
    write_manifest(run_dir, manifest)
    return manifest


def kind_of(path: Path) -> str:
    """A pickle is a snapshot, all else a trace; by content, else (a file without content) by name."""
    try:
        with path.open("rb") as file:
            head = file.read(2)
    except OSError:
        head = b""
    if head[:1] == b"\x80":
        return SNAPSHOT
    is_packed = not head or head == _GZIP_MAGIC
    return SNAPSHOT if is_packed and path.name.lower().endswith(_SNAPSHOT_SUFFIXES) else TRACE


def _import_traces(job: _Job, paths: Sequence[Path], progress: Callable[[Path], None] | None) -> None:
    waiting: list[tuple[Path, Trace]] = []
    for path in paths:
        if progress is not None:
            progress(path)
        try:
            trace = read_trace(path)
        except InputError as e:
            job.refused.append(str(e))
            continue
        rank = trace.rank if job.rank is None else job.rank
        if rank is None:
            waiting.append((path, trace))
        else:
            _add_trace(job, path, trace, rank)
            if trace.rank not in (None, rank):
                job.notes.append((rank, path.name, f"taken as rank {rank}, as given; the file says rank {trace.rank}"))
    for path, trace in waiting:
        rank = _free_rank(job, TRACE)
        _add_trace(job, path, trace, rank)
        job.notes.append((rank, path.name, _by_order(rank)))


def _add_trace(job: _Job, path: Path, trace: Trace, rank: int) -> None:
    found = _converted(job, path, lambda: import_trace(trace))
    if found is None:
        return
    _claim(job, TRACE, rank, path)
    job.notes += [(rank, path.name, line) for line in trace.warnings]
    if not found.line.is_annotated:
        line = "no ProfilerStep annotation; the whole recording is taken as step 0"
        job.notes.append((rank, path.name, line))
    if trace.world_size is not None:
        job.worlds[rank] = trace.world_size
    for group in trace.process_groups:
        if group.ranks:
            told = {"name": group.name, "description": group.description or "", "ranks": list(group.ranks)}
            job.groups.setdefault((group.name, group.ranks), told)
    _write(job, rank, found)


def _import_snapshots(job: _Job, paths: Sequence[Path], progress: Callable[[Path], None] | None) -> None:
    waiting: list[tuple[Path, DeviceHistory]] = []
    for path in paths:
        if progress is not None:
            progress(path)
        try:
            history = _busiest(job, path)
        except InputError as e:
            job.refused.append(str(e))
            continue
        rank = rank_in_name(path) if job.rank is None else job.rank
        if rank is None:
            waiting.append((path, history))
        elif job.rank is not None:
            _add_snapshot(job, path, history, rank)
        else:
            _add_snapshot(job, path, history, rank)
            job.notes.append((rank, path.name, f"rank assumed: {rank}, from the file name"))
    for path, history in waiting:
        rank = _free_rank(job, SNAPSHOT)
        _add_snapshot(job, path, history, rank)
        job.notes.append((rank, path.name, _by_order(rank)))


def _busiest(job: _Job, path: Path) -> DeviceHistory:
    """The history of the device with most events; the others are named in a warning."""
    size = path.stat().st_size if path.exists() else 0
    histories = read_snapshot(path, limit_bytes=max(_MIN_LOAD_BYTES, _LOAD_BYTES_PER_BYTE * size))
    best = max(histories, key=lambda h: (h.events.num_rows, h.blocks.num_rows, -h.device))
    others = ", ".join(str(h.device) for h in histories if h is not best)
    if others:
        job.warnings.append(f"{path.name}: device {best.device} is shown; devices {others} are not")
    return best


def _add_snapshot(job: _Job, path: Path, history: DeviceHistory, rank: int) -> None:
    trace = job.imported.get(rank)
    if trace is not None:
        folder = layout.rank_dir(job.run_dir, rank)
        tables = {t: read_table(folder / f"{t}.parquet", t) for t in TABLES if (folder / f"{t}.parquet").exists()}
        trace = Imported(**{**{f: getattr(trace, f) for f in Imported.__dataclass_fields__}, "tables": tables})
    found = _converted(job, path, lambda: import_snapshot(history, trace=trace))
    if found is None:
        return
    _claim(job, SNAPSHOT, rank, path)
    job.notes += [(rank, path.name, line) for line in history.warnings]
    for oom in history.ooms:
        free = f" and {oom.device_free_bytes:,} free" if oom.device_free_bytes is not None else ""
        line = f"out of memory: {oom.asked_bytes:,} bytes asked with {oom.totals.allocated_bytes:,} allocated{free}"
        job.notes.append((rank, path.name, line))
    _write(job, rank, found)


def _converted(job: _Job, path: Path, convert: Callable[[], Imported]) -> Imported | None:
    """The tables; None, with the file among the refused, where its content contradicts itself."""
    try:
        return convert()
    except (KeyError, IndexError, ValueError, ArithmeticError, pa.ArrowException) as e:
        what = str(e).splitlines()[0] if str(e) else "no message"
        job.refused.append(f"{path}: its content contradicts itself ({type(e).__name__}: {what}); record it again")
        return None


def _claim(job: _Job, kind: str, rank: int, path: Path) -> None:
    """This file is the one of its kind for its rank.

    Raises:
        InputError: there is one already.
    """
    other = job.file_of.setdefault((kind, rank), path)
    if other is not path:
        raise InputError(f"{other} and {path}: both are the {kind} of rank {rank}; import one of them at a time")
    job.raw_bytes += path.stat().st_size


def _write(job: _Job, rank: int, found: Imported) -> None:
    layout.rank_dir(job.run_dir, rank).mkdir(exist_ok=True)
    for table, rows in found.tables.items():
        write_table(layout.table_path(job.run_dir, rank, table), rows)
    bare = {f: getattr(found, f) for f in Imported.__dataclass_fields__}
    job.imported[rank] = Imported(**{**bare, "tables": {}})


def _free_rank(job: _Job, kind: str) -> int:
    taken = {rank for other, rank in job.file_of if other == kind}
    return next(rank for rank in range(len(taken) + 1) if rank not in taken)


def _by_order(rank: int) -> str:
    return f"rank assumed: {rank}, by order; neither its content nor its name has a rank"


def _by_line(notes: Sequence[tuple[int, str, str]]) -> list[str]:
    """One warning for each distinct note, whatever the number of its ranks."""
    of: dict[str, list[tuple[int, str]]] = {}
    for rank, file, line in notes:
        of.setdefault(line, []).append((rank, file))
    return [
        f"rank {where[0][0]}: {where[0][1]}: {line}" if len(where) == 1 else f"{listed(r for r, _ in where)}: {line}"
        for line, where in of.items()
    ]


def _manifest(job: _Job, name: str, command: list[str], convert_ns: int) -> Manifest:
    ranks = sorted(job.imported)
    world_size = max([*job.worlds.values(), ranks[-1] + 1])
    kinds = {kind: sum(k == kind for k, _ in job.file_of) for kind in (TRACE, SNAPSHOT)}
    found = job.imported.values()
    strategy = next((f.strategy for f in found if f.strategy is not Strategy.NONE), Strategy.NONE)
    seen = str(strategy) if strategy is not Strategy.NONE else "no FSDP or DDP annotation"
    traces, snapshots = kinds[TRACE], kinds[SNAPSHOT]
    files = sorted(job.file_of.items())
    return Manifest(
        name=name,
        created=datetime.now().astimezone().isoformat(timespec="seconds"),
        command=command,
        strategy=strategy,
        strategy_detail=f"{seen}, imported: {len(ranks)} of {world_size} ranks",
        world_size=world_size,
        device_type="cuda" if any(f.is_device for f in found) else "cpu",
        ranks=[
            RankRecord(rank=rank, ending=Ending.IMPORTED, message="imported", num_steps=_num_steps(job.imported[rank]))
            for rank in ranks
        ],
        sources={
            "Kineto traces": f"imported: {traces}" if traces else "not recorded: none among the files",
            "allocator events": f"imported: {snapshots}" if snapshots else f"not recorded: {_NO_SNAPSHOT}",
        },
        not_recorded=_not_recorded(strategy, has_snapshot=snapshots > 0),
        warnings=[
            *_job_warnings(job, world_size),
            *_by_line(job.notes),
            *job.warnings,
            *(f"not imported: {line}" for line in job.refused),
        ],
        receipt=Receipt(raw_bytes=job.raw_bytes, convert_ns=convert_ns),
        complete=not job.refused and all(f.is_whole for f in found),
        extra={
            "imported": [
                {"kind": kind, "rank": rank, "file": path.name, "path": str(path.resolve())}
                for (kind, rank), path in files
            ],
            "process_groups": list(job.groups.values()),
        },
    )


def _not_recorded(strategy: Strategy, *, has_snapshot: bool) -> dict[str, str]:
    why = dict.fromkeys(("device_used_peak_bytes", "host_rss_peak_bytes"), "not in imported files")
    if not has_snapshot:
        why |= dict.fromkeys(("peak", "setup_peak_bytes", "reserved_peak_bytes"), _NO_SNAPSHOT)
    if strategy is Strategy.FSDP2:
        why["units"] = "sizes are those of the all-gathers; no annotation records reshards after forward"
    return why


def _job_warnings(job: _Job, world_size: int) -> list[str]:
    """Warnings about the files together."""
    lines = []
    if len(set(job.worlds.values())) > 1:
        told = ", ".join(f"rank {rank} of {world}" for rank, world in sorted(job.worlds.items()))
        lines.append(f"world sizes differ ({told}): these files may be of different jobs")
    if world_size > len(job.imported):
        lines.append(f"{world_size - len(job.imported)} of {world_size} ranks are not among the files")
    return lines


def _num_steps(found: Imported) -> int:
    return len(found.line.step) if found.line.is_annotated else 0
