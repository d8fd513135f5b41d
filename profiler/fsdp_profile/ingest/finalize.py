"""Complete a run directory after its local ranks ended: tables for every rank, then the manifest.

Nothing is deleted, and a rank that cannot be converted does not stop the others.
"""

import contextlib
import platform
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec
import numpy as np

from fsdp_profile.core import layout
from fsdp_profile.core.capture_log import KINETO_TRACES, EndReason
from fsdp_profile.core.errors import FsdpProfileError, OutputError
from fsdp_profile.core.schema import Ending
from fsdp_profile.core.units import find_strategy
from fsdp_profile.ingest.manifest import Manifest, Model, RankRecord, Receipt, write_manifest
from fsdp_profile.ingest.rank.capture_log import CaptureLog
from fsdp_profile.ingest.rank.convert import convert_rank, read_rank

NOBODY_JOINED: Final = "nothing distributed was seen: no process joined a process group"
MIN_SILENT_S: Final = 60.0  # a log that was written to more recently may still grow
SILENT_S: Final = 3600.0  # a rank elsewhere that wrote nothing for so long is taken for dead
WARM_UP_STEPS: Final = 2  # the first allocates, makes the optimizer's states and starts Kineto
MIN_STEPS: Final = 3  # fewer have no median worth the name
_POOL_FROM_BYTES = 64 << 20  # below this one process converts all ranks faster than workers start


@dataclass(kw_only=True, slots=True)
class RankFacts:
    """What the manifest keeps of one rank's log."""

    rank: int
    process: dict[str, Any] = field(default_factory=dict)
    end: dict[str, Any] | None = None
    has_exit: bool = False
    """It came to its end by itself."""
    known: dict[str, Any] = field(default_factory=dict)
    """The closing record, or what of it was known when the process was killed."""
    failure: dict[str, Any] | None = None
    model: dict[str, Any] = field(default_factory=dict)
    units: list[dict[str, Any]] = field(default_factory=list)
    optimizers: list[dict[str, Any]] = field(default_factory=list)
    num_steps: int = 0
    recorded_steps_ns: list[int] = field(default_factory=list)
    bare_steps_ns: list[int] = field(default_factory=list)
    allocator_events: int = 0
    has_collectives: bool = False
    has_kineto: bool = False
    warnings: list[str] = field(default_factory=list)
    rewrapped: list[str] = field(default_factory=list)


def finalize(
    run_dir: Path, started: Manifest, *, exit_codes: dict[int, int], world_size: int | None = None,
    is_foreign: bool = False, write: bool = True, progress: Callable[[int, int], None] | None = None,
) -> Manifest:  # fmt: skip
    """Convert every local rank and return the finished manifest (not written yet).

    Args:
        run_dir: the run directory.
        started: the manifest as it was when the job began.
        exit_codes: exit code by global rank, as far as the launcher knows; negative for a signal.
        world_size: ranks of the job; None where only the ranks themselves know.
        is_foreign: another launcher waited for the ranks, so no exit code is known.
        write: write the tables; False only reads what was recorded.
        progress: told (ranks done, ranks).
    """
    begin = time.perf_counter_ns()
    ranks = layout.ranks_in(run_dir)
    facts = []
    for done, found in enumerate(_convert_all(run_dir, ranks, write=write), start=1):
        facts.append(found)
        if progress is not None:
            progress(done, len(ranks))
    is_told = world_size is not None
    if world_size is None:
        world_size = max((int(f.process.get("world_size", 1)) for f in facts if f.process), default=0)
    receipt = _receipt(run_dir, facts, time.perf_counter_ns() - begin)
    records = [_rank_record(f, exit_codes.get(f.rank), is_foreign=is_foreign) for f in facts]
    seen = {record.rank for record in records}
    records += [
        RankRecord(rank=r, ending=Ending.UNKNOWN, exit_code=exit_codes.get(r), message="recorded nothing here")
        for r in range(world_size)
        if r not in seen
    ]
    finished = _manifest(started, facts, records, receipt, world_size)
    return finished if is_told or facts else msgspec.structs.replace(finished, warnings=[NOBODY_JOINED])


def finalize_attempts(
    run_dir: Path, started: Manifest, *, exit_codes: dict[int, int], world_size: int | None = None
) -> Manifest:
    """Finalize a run, and every elastic restart and further job of it as a run of its own; the first one's manifest.

    All are written. The launcher's exit codes are those of the last attempt.

    Raises:
        OutputError: a manifest cannot be written.
    """
    restarts, jobs = layout.attempts_in(run_dir), layout.jobs_in(run_dir)
    first = finalize(run_dir, started, exit_codes={} if restarts else exit_codes, world_size=world_size)
    first = msgspec.structs.replace(first, warnings=[*_tell_others(run_dir), *first.warnings])
    write_manifest(run_dir, first)
    for path in restarts:
        codes = exit_codes if path == restarts[-1] else {}
        write_manifest(path, finalize(path, _named(started, path), exit_codes=codes, world_size=world_size))
    all_well = bool(exit_codes) and not any(exit_codes.values())
    for path in jobs:
        last = (layout.attempts_in(path) or [path])[-1]
        codes = dict.fromkeys(layout.ranks_in(last), 0) if all_well else {}
        finalize_attempts(path, _named(started, path), exit_codes=codes, world_size=world_size)
    return first


def _named(started: Manifest, path: Path) -> Manifest:
    return msgspec.structs.replace(started, name=f"{started.name}/{path.name}")


def _tell_others(run_dir: Path) -> list[str]:
    """What of the same launch lies beside a run."""
    causes = {
        "the job was started again; each restart": layout.attempts_in(run_dir),
        "the script started several jobs; each further one": layout.jobs_in(run_dir),
    }
    return [
        f"{cause} is a run of its own in this folder: {', '.join(path.name for path in paths)}"
        for cause, paths in causes.items()
        if paths
    ]


def finish(run_dir: Path, started: Manifest) -> Manifest:
    """Convert and complete a run whose ranks had another launcher, so that nobody waited for them; its manifest.

    The manifest stays unfinished while ranks may still run.
    """
    finished = _finished(run_dir, started, write=True)
    if layout.UNFINISHED not in finished.extra:
        with contextlib.suppress(OutputError):
            write_manifest(run_dir, finished)
    return finished


def read_unfinished(run_dir: Path, started: Manifest) -> Manifest:
    """The manifest of such a run as far as its ranks recorded it. Nothing is written."""
    return _finished(run_dir, started, write=False)


def _finished(run_dir: Path, started: Manifest, *, write: bool) -> Manifest:
    world_size = started.world_size or None
    finished = finalize(run_dir, started, exit_codes={}, world_size=world_size, is_foreign=True, write=write)
    finished = msgspec.structs.replace(finished, warnings=[*_tell_others(run_dir), *finished.warnings])
    if any(_may_run(run_dir, record) for record in finished.ranks):
        return finished
    extra = {key: value for key, value in finished.extra.items() if key != layout.UNFINISHED}
    return msgspec.structs.replace(finished, extra=extra)


def is_unconverted(run_dir: Path, manifest: Manifest) -> bool:
    """Whether the recording has ended and lacks tables or its final manifest."""
    if layout.UNFINISHED in manifest.extra:
        return layout.UNFINISHED not in read_unfinished(run_dir, manifest).extra
    return bool(_ranks_without_tables(run_dir))


def convert_run(run_dir: Path, manifest: Manifest) -> None:
    """Write the tables and the manifest that such a run lacks. Where its folder cannot be written, nothing changes."""
    if layout.UNFINISHED in manifest.extra:
        finish(run_dir, manifest)
        return
    for rank in _ranks_without_tables(run_dir):
        with contextlib.suppress(FsdpProfileError):  # whoever reads the run is told what is wrong with it
            convert_rank(run_dir, rank)


def _ranks_without_tables(run_dir: Path) -> list[int]:
    """Ranks whose capture log is no longer written and that have no tables, in order."""
    found = []
    for rank in layout.ranks_in(run_dir):
        log = layout.capture_log(run_dir, rank)
        has_tables = any(layout.rank_dir(run_dir, rank).glob("*.parquet"))
        if not has_tables and log.exists() and time.time() - log.stat().st_mtime > MIN_SILENT_S:
            found.append(rank)
    return found


def _may_run(run_dir: Path, record: RankRecord) -> bool:
    """Whether a rank that wrote no end may still run: here its process tells, elsewhere how long its log is silent.

    Of a rank that left nothing here yet, the manifest's age tells.
    """
    if record.ending is not Ending.UNKNOWN:
        return False
    if record.host == platform.node():
        return Path(f"/proc/{record.pid}").exists()
    log = layout.capture_log(run_dir, record.rank)
    try:
        written_s = (log if log.exists() else run_dir / layout.MANIFEST).stat().st_mtime
    except OSError:
        return False
    return time.time() - written_s < SILENT_S


def _convert_all(run_dir: Path, ranks: list[int], *, write: bool) -> Any:
    size = sum(layout.capture_log(run_dir, r).stat().st_size for r in ranks if layout.capture_log(run_dir, r).exists())
    if size < _POOL_FROM_BYTES or len(ranks) < 2:
        yield from (_convert(run_dir, rank, write=write) for rank in ranks)
        return
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        yield from pool.map(partial(_convert, run_dir, write=write), ranks)


def _convert(run_dir: Path, rank: int, *, write: bool) -> RankFacts:
    try:
        log = convert_rank(run_dir, rank) if write else read_rank(run_dir, rank)[0]
    except OutputError as e:  # a full disk: the log itself is there
        log = read_rank(run_dir, rank)[0]
        log.warnings.append(str(e))
    except FsdpProfileError as e:
        return RankFacts(rank=rank, warnings=[str(e)])
    return _facts(rank, log, has_kineto=any(layout.raw_dir(run_dir, rank).glob(KINETO_TRACES)))


def _facts(rank: int, log: CaptureLog, *, has_kineto: bool) -> RankFacts:
    events = len(log.allocator["t_ns"]) + sum(len(chunk["events"]["time_us"]) for chunk in log.cuda)
    return RankFacts(
        rank=rank,
        process=log.rank,
        end=log.end,
        has_exit=log.has_exit or (log.end is not None and log.end.get("reason") != EndReason.WINDOW_ENDED),
        known={**log.so_far, **(log.end or {})},
        failure=log.failure,
        model=log.model,
        units=list(log.units.values()),
        optimizers=log.optimizers,
        num_steps=len(log.step_ends),
        recorded_steps_ns=[int(ns) for ns in np.diff(log.step_ends)[WARM_UP_STEPS - 1 :]],
        bare_steps_ns=[int(ns) for ns in np.diff(log.unrecorded_step_ends)],
        allocator_events=events,
        has_collectives=len(log.transport["name"]) > 0 or len(log.calls["unit"]) > 0,
        has_kineto=has_kineto,
        warnings=list(log.warnings),
        rewrapped=log.rewrapped,
    )


def _rank_record(facts: RankFacts, exit_code: int | None, *, is_foreign: bool) -> RankRecord:
    ending, message = _ending(facts, exit_code)
    if ending is Ending.UNKNOWN and is_foreign and facts.has_exit:
        ending = Ending.COMPLETED
    end = facts.known
    return RankRecord(
        rank=facts.rank,
        host=str(facts.process.get("host", "")),
        pid=int(facts.process.get("pid", 0)),
        device=str(end.get("device_name") or ""),
        ending=ending,
        exit_code=exit_code,
        message=message,
        num_steps=facts.num_steps,
    )


def _ending(facts: RankFacts, exit_code: int | None) -> tuple[Ending, str]:
    if facts.failure is not None:
        return Ending.EXCEPTION, str(facts.failure.get("message", ""))
    if exit_code is not None and exit_code < 0:
        return Ending.SIGNAL, f"killed by signal {-exit_code}"
    if exit_code:
        return Ending.EXITED, f"exit code {exit_code}"
    if exit_code == 0:
        return Ending.COMPLETED, ""
    return Ending.UNKNOWN, "" if facts.end else "its process was ended before it could say how"


def _receipt(run_dir: Path, facts: list[RankFacts], convert_ns: int) -> Receipt:
    raw = (p for f in facts for p in layout.raw_dir(run_dir, f.rank).glob("*") if p.is_file())
    ends = [f.known for f in facts]
    recorded, bare = ([ns for f in facts for ns in getattr(f, name)] for name in ("recorded_steps_ns", "bare_steps_ns"))
    is_measured = min(len(recorded), len(bare)) >= MIN_STEPS
    return Receipt(
        recorded_step_ns=round(median(recorded)) if is_measured else None,
        bare_step_ns=round(median(bare)) if is_measured else None,
        num_bare_steps=len(bare) if is_measured else 0,
        hook_events=sum(int(end.get("hook_events", 0)) for end in ends),
        allocator_events=sum(f.allocator_events for f in facts),
        flush_ns=max((int(end.get("flush_ns", 0)) for end in ends), default=0),
        raw_bytes=sum(p.stat().st_size for p in raw),
        convert_ns=convert_ns,
    )


def _manifest(
    started: Manifest, facts: list[RankFacts], records: list[RankRecord], receipt: Receipt, world_size: int
) -> Manifest:
    end: dict[str, Any] = next((f.end for f in facts if f.end), {}) or next((f.known for f in facts if f.known), {})
    units = next((f.units for f in facts if f.units), [])
    model = next((f.model for f in facts if f.model), {})
    process: dict[str, Any] = next((f.process for f in facts if f.process), {})
    strategy, detail = find_strategy(units, world_size)
    if started.extra.get("as") == "zero1":
        detail += "; optimizer states divided (ZeRO-1)"
    versions = {
        "python": process.get("python"),
        "fsdp-profile": process.get("fsdp-profile"),
        "torch": end.get("torch"),
        "cuda": end.get("cuda"),
        "nccl": end.get("nccl"),
    }
    was_lost = any((f.end or {"lost": {"": ""}}).get("lost") for f in facts)
    changed = {
        "strategy": strategy,
        "strategy_detail": detail,
        "world_size": world_size,
        "device_type": str(end.get("device_type") or ""),
        "device_name": str(end.get("device_name") or ""),
        "device_total_bytes": end.get("device_total_bytes"),
        "backend": str(end.get("backend") or ""),
        "versions": {name: str(value) for name, value in versions.items() if value},
        "model": Model(**model) if model else Model(),
        "ranks": sorted(records, key=lambda r: r.rank),
        "sources": _sources(facts, end),
        "not_recorded": _not_recorded(facts, end),
        "warnings": _warnings(facts, world_size, {r.rank: r.exit_code for r in records if r.exit_code is not None}),
        "receipt": receipt,
        "complete": bool(facts) and all(r.ending is Ending.COMPLETED for r in records) and not was_lost,
    }
    optimizers = next((f.optimizers for f in facts if f.optimizers), [])
    notes = next((f.rewrapped for f in facts if f.rewrapped), [])
    found = {"optimizers": optimizers, "rewrapped": notes}
    changed["extra"] = {**started.extra, **{name: value for name, value in found.items() if value}}
    return Manifest(**{**{f: getattr(started, f) for f in started.__struct_fields__}, **changed})


def _sources(facts: list[RankFacts], end: dict[str, Any]) -> dict[str, str]:
    lost = {feature: why for f in facts for feature, why in ((f.end or {}).get("lost") or {}).items()}

    def state(has_it: bool, feature: str, why: str) -> str:
        return "recorded" if has_it else f"not recorded: {lost.get(feature, why)}"

    nvml = next((why for f in facts if (why := (f.end or {}).get("why_no_nvml"))), None)
    return {
        "allocator events": state(any(f.allocator_events for f in facts), "allocator events", "none were seen"),
        "units": state(any(f.units for f in facts), "units", "no FSDP or DDP module was seen"),
        "collectives": state(any(f.has_collectives for f in facts), "collectives", "none were seen"),
        "Kineto traces": state(
            any(f.has_kineto for f in facts), "Kineto trace", "switched off or no step in the window"
        ),
        "NVML": f"not recorded: {nvml}" if nvml else ("recorded" if end else "not recorded: the ranks did not end"),
    }


def _not_recorded(facts: list[RankFacts], end: dict[str, Any]) -> dict[str, str]:
    why: dict[str, str] = {}
    nvml = next((w for f in facts if (w := (f.end or {}).get("why_no_nvml"))), None)
    if nvml:
        why["device_used_peak_bytes"] = nvml
    if end.get("device_type") == "cpu":
        why["reserved_peak_bytes"] = "the CPU allocator has no reserved pool"
    return why


def _warnings(facts: list[RankFacts], world_size: int, exit_codes: dict[int, int]) -> list[str]:
    found = [f"rank {f.rank}: {line}" for f in facts for line in f.warnings]
    for f in facts:
        lost = ((f.end or {}).get("lost") or {}).items()
        found += [f"rank {f.rank}: {feature} not recorded: {why}" for feature, why in lost]
        if f.process and f.end is None:
            has_exited = exit_codes.get(f.rank, -1) >= 0
            why = "its log has no end (os._exit, os.exec or a full disk)" if has_exited else "its process was killed"
            found.append(f"rank {f.rank}: {why}; what it wrote up to step {f.num_steps} is kept")
    if not facts:
        # Without exit codes nobody says that the ranks have ended.
        why = (
            "the script never imported torch, or did not start"
            if exit_codes
            else "they may not have begun to write yet"
        )
        found.append(f"none of the {world_size} ranks recorded anything: {why}")
    elif not any(f.units for f in facts):
        found.append("nothing distributed was seen: no FSDP or DDP module ran a forward in any rank")
    elif not any(f.num_steps for f in facts):
        found.append("no optimizer step was seen")
    return found
