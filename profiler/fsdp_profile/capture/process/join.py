"""Under another launcher: the ranks of a job agree on one run directory without communicating.

[Note: The key of a job] What all its ranks share and no other job does: the scheduler's job and step, the rendezvous,
and, where all ranks are on one machine, the launcher's process and when it began. The first rank writes the manifest,
marked as unfinished: no process of ours outlives the ranks, so the first reader completes it.

[Note: Several jobs of one script] A script may start ranks again when the first have ended (two `mp.spawn`). A
process whose rank is recorded already belongs to a further job, and records into a folder of that job.
"""

import json
import os
import re
import sys
import time
from collections.abc import Mapping
from functools import partial
from itertools import count
from pathlib import Path

import psutil

from fsdp_profile.core import layout
from fsdp_profile.core.errors import OutputError
from fsdp_profile.core.schema import SCHEMA_VERSION


def job_key(environ: Mapping[str, str]) -> str:
    """The key of the job this process is a rank of; see [Note: The key of a job]."""
    # Inside a job several torchruns may follow each other: theirs is the nearer launcher.
    if environ.get("SLURM_JOB_ID") and "TORCHELASTIC_RUN_ID" not in environ:
        return f"slurm-{environ['SLURM_JOB_ID']}.{environ.get('SLURM_STEP_ID', '0')}"
    if environ.get("PMIX_NAMESPACE") and "TORCHELASTIC_RUN_ID" not in environ:
        return key_of_nodes("mpi", environ["PMIX_NAMESPACE"])
    if environ.get("LOCAL_WORLD_SIZE", environ.get("WORLD_SIZE")) == environ.get("WORLD_SIZE"):
        parent = psutil.Process(os.getppid())
        began = time.strftime("%Y%m%d-%H%M%S", time.localtime(parent.create_time()))
        return f"{began}-{parent.pid}"
    return key_of_nodes(*(environ.get(name) for name in ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")))


def key_of_nodes(*parts: str | None) -> str:
    """The key of a job of several nodes, from the settings that all of them share: rendezvous, master address, port."""
    return re.sub(r"[^\w.-]", "_", "-".join(part for part in parts if part and part != "none")) or "job"


def join_run(
    output: Path | None,
    *,
    world_size: int,
    script: str,
    script_args: list[str],
    command: list[str],
    key: str | None = None,
) -> Path:
    """The run directory of this rank's job, or of this node's, made by the first process that needs it.

    Raises:
        OutputError: the folder holds something else, or cannot be written.
    """
    key = job_key(os.environ) if key is None else key
    name = f"{layout.script_stem(script)}-{world_size}ranks-{key}"
    run_dir = output if output is not None else Path(layout.DEFAULT_RUNS) / name
    run_dir = layout.attempt_dir(run_dir, int(os.environ.get(layout.ENV_RESTARTS, 0)))
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        _write_manifest(run_dir, key, world_size=world_size, script=script, script_args=script_args, command=command)
    except OSError as e:
        raise OutputError(f"{run_dir}: cannot write here ({e.strerror or e}); choose another folder with -o") from e
    return run_dir


def join_own_run(output: Path | None, *, rank: int, world_size: int) -> Path:
    """`join_run` for a process that another launcher started: the script is taken from its own command line."""
    join = partial(
        join_run,
        world_size=world_size,
        script=sys.argv[0],
        script_args=sys.argv[1:],
        command=list(getattr(sys, "orig_argv", sys.argv)),
    )
    run_dir = join(output)
    place = place_of_job(run_dir, rank=rank, world_size=world_size)
    return place if place == run_dir else join(place)


def place_of_job(run_dir: Path, *, rank: int, world_size: int) -> Path:
    """The folder of the job that this rank is of; see [Note: Several jobs of one script].

    It is the first folder of a job with the same key in which this rank is free.
    """
    key = _key_in_script(os.environ, world_size)
    numbers = count()
    while True:
        place = layout.job_dir(run_dir, next(numbers))
        place.mkdir(parents=True, exist_ok=True)
        mark = place / layout.JOB_KEY
        mine = mark.with_name(f"{layout.JOB_KEY}.{os.getpid()}")
        mine.write_text(key, encoding="utf-8")
        _place(mine, mark)
        mine.unlink(missing_ok=True)
        attempt = layout.attempt_dir(place, int(os.environ.get(layout.ENV_RESTARTS, 0)))
        if mark.read_text(encoding="utf-8") == key and not layout.rank_dir(attempt, rank).exists():
            return place


def _key_in_script(environ: Mapping[str, str], world_size: int) -> str:
    """What the ranks of one of a script's jobs share; a restart by an elastic agent may change size and port."""
    if "TORCHELASTIC_RUN_ID" in environ:
        return environ["TORCHELASTIC_RUN_ID"]
    return f"{world_size}-{environ.get('MASTER_PORT', '')}"


def _write_manifest(
    run_dir: Path, key: str, *, world_size: int, script: str, script_args: list[str], command: list[str]
) -> None:
    path = run_dir / layout.MANIFEST
    content = {
        "schema": SCHEMA_VERSION,
        "name": run_dir.resolve().name,
        "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": command,
        "script": script,
        "script_args": script_args,
        "world_size": world_size,
        "extra": {layout.UNFINISHED: key},
    }
    mine = path.with_name(f".{layout.MANIFEST}.{os.getpid()}")
    mine.write_text(json.dumps(content, indent=1), encoding="utf-8")
    try:
        ours = (f".{layout.MANIFEST}.", layout.JOB_KEY)
        # Looked at in this order: what another rank of the job puts here comes after the manifest.
        has_more = any(not entry.name.startswith(ours) for entry in run_dir.iterdir())
        if has_more and not path.exists():
            raise OutputError(f"{run_dir}: exists and is not empty; choose another folder with -o, or remove it")
        _place(mine, path)
        if _key_of(path) != key:
            raise OutputError(f"{run_dir}: holds another run; choose another folder with -o, or remove it")
    finally:
        mine.unlink(missing_ok=True)


def _place(partial: Path, path: Path) -> None:
    """Move a file to its place, whole, unless a file is there already."""
    try:
        os.link(partial, path)
    except FileExistsError:
        return
    except OSError:  # a file system without links
        if not path.exists():
            partial.replace(path)


def _key_of(path: Path) -> str | None:
    try:
        found = json.loads(path.read_bytes()).get("extra", {}).get(layout.UNFINISHED)
    except ValueError:
        return None
    return str(found) if found is not None else None
