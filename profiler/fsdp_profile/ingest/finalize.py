"""Complete a run directory after its local ranks ended: tables for every rank, then the manifest.

Nothing is deleted, and a rank that cannot be converted does not stop the others.
"""

import contextlib
import platform
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from fsdp_profile.core import layout
from fsdp_profile.core.capture_log import KINETO_TRACES
from fsdp_profile.core.errors import FsdpProfileError, OutputError
from fsdp_profile.core.manifest import Manifest, RankRecord
from fsdp_profile.core.schema import Ending
from fsdp_profile.ingest.finished_manifest import finished_manifest, make_receipt
from fsdp_profile.ingest.manifest import write_manifest
from fsdp_profile.ingest.rank.convert import convert_rank, read_rank
from fsdp_profile.ingest.rank.facts import RankFacts, facts_of, rank_record

NOBODY_JOINED: Final = "nothing distributed was seen: no process joined a process group"
MIN_SILENT_S: Final = 60.0  # a log that was written to more recently may still grow
SILENT_S: Final = 3600.0  # a rank on another host that wrote nothing for this long is taken as ended
_POOL_FROM_BYTES = 64 << 20  # below this one process converts all ranks faster than workers start


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
        progress: called with (ranks done, ranks).
    """
    begin = time.perf_counter_ns()
    ranks = layout.ranks_in(run_dir)
    facts = []
    for done, found in enumerate(_convert_all(run_dir, ranks, write=write), start=1):
        facts.append(found)
        if progress is not None:
            progress(done, len(ranks))
    is_known = world_size is not None
    if world_size is None:
        world_size = max((int(f.process.get("world_size", 1)) for f in facts if f.process), default=0)
    receipt = make_receipt(run_dir, facts, time.perf_counter_ns() - begin)
    records = [rank_record(f, exit_codes.get(f.rank), is_foreign=is_foreign) for f in facts]
    seen = {record.rank for record in records}
    records += [
        RankRecord(rank=r, ending=Ending.UNKNOWN, exit_code=exit_codes.get(r), message="recorded nothing here")
        for r in range(world_size)
        if r not in seen
    ]
    finished = finished_manifest(started, facts, records, receipt, world_size)
    return finished if is_known or facts else replace(finished, warnings=[NOBODY_JOINED])


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
    first = replace(first, warnings=[*_other_runs(run_dir), *first.warnings])
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
    return replace(started, name=f"{started.name}/{path.name}")


def _other_runs(run_dir: Path) -> list[str]:
    """Warnings that name the other runs of the same launch."""
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
    """Convert and complete a run whose ranks had another launcher; returns its manifest.

    The manifest stays unfinished while ranks may still run.
    """
    finished = _finished(run_dir, started, write=True)
    if layout.UNFINISHED not in finished.extra:
        with contextlib.suppress(OutputError):
            write_manifest(run_dir, finished)
    return finished


def read_unfinished(run_dir: Path, started: Manifest) -> Manifest:
    """The manifest of a run that `finish` has not completed, as far as its ranks recorded it. Nothing is written."""
    return _finished(run_dir, started, write=False)


def _finished(run_dir: Path, started: Manifest, *, write: bool) -> Manifest:
    world_size = started.world_size or None
    finished = finalize(run_dir, started, exit_codes={}, world_size=world_size, is_foreign=True, write=write)
    finished = replace(finished, warnings=[*_other_runs(run_dir), *finished.warnings])
    if any(_may_run(run_dir, record) for record in finished.ranks):
        return finished
    extra = {key: value for key, value in finished.extra.items() if key != layout.UNFINISHED}
    return replace(finished, extra=extra)


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
        with contextlib.suppress(FsdpProfileError):  # reading the run reports what is wrong with it
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
    """Whether a rank that wrote no closing record may still run.

    On this host its process decides, on others how long ago its log was written; without a log, the manifest's age.
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
    return facts_of(rank, log, has_kineto=any(layout.raw_dir(run_dir, rank).glob(KINETO_TRACES)))
