"""A rank that runs out of memory for real: every rank's last window is kept, and show opens with the post-mortem."""

import json
from pathlib import Path

import pytest
from recording import SCRIPTS, fsdp_profile

from fsdp_profile.analysis.memory.postmortem import post_mortems
from fsdp_profile.analysis.run import load_run
from fsdp_profile.capture.process.failure_flush import wait_for_failure_flush
from fsdp_profile.core.categories import Category
from fsdp_profile.core.layout import capture_log

ASKED = 1 << 44
PARAMS = 2 * 64 * 64 * 4


@pytest.mark.parametrize("mode", ["fsdp2", pytest.param("ddp", marks=pytest.mark.slow)])
def test_an_allocation_no_machine_can_grant(tmp_path: Path, mode: str) -> None:
    done = fsdp_profile("run", "-n", "2", "--no-kineto", "-o", str(tmp_path / "run"), str(SCRIPTS / "oom.py"), mode)
    assert done.returncode == 1
    assert f"you tried to allocate {ASKED} bytes" in done.stderr
    run = load_run(tmp_path / "run")
    [found] = post_mortems(run)
    assert (found.rank, found.asked_bytes, found.then.step, found.then.phase) == (1, ASKED, 1, "FORWARD")
    held = found.then.by_category
    shards = 2 if mode == "fsdp2" else 1
    assert held[Category.PARAM] == PARAMS // shards
    assert held[Category.OPTIMIZER_STATE] == 2 * PARAMS // shards + 2 * 4
    assert held[Category.INPUT] >= 256 * 64 * 4
    [other] = found.others
    assert (other.rank, other.step) == (0, 1)
    assert other.allocated_bytes is not None and other.allocated_bytes > 0
    assert not any("was killed" in line for line in run.manifest.warnings)
    page = fsdp_profile("show", str(run.path)).stdout.splitlines()
    assert page[0].startswith("Out of memory. Rank 1 asked for 16384.00 GiB, in forward of step 1")
    [told] = json.loads(fsdp_profile("show", str(run.path), "--json").stdout)["post_mortems"]
    assert (told["asked_bytes"], told["live"]["allocated_bytes"]) == (ASKED, found.then.allocated_bytes)


def log(run_dir: Path, rank: int, *lines: str) -> None:
    path = capture_log(run_dir, rank)
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"{line}\n" for line in lines))


OOM = '{"kind": "failure", "message": "OutOfMemoryError: CUDA out of memory."}'


def test_the_launcher_waits_only_for_a_rank_without_a_closing_record_and_only_after_an_out_of_memory(
    tmp_path: Path,
) -> None:
    log(tmp_path / "other", 0, '{"kind": "failure", "message": "ValueError: no"}')
    log(tmp_path / "other", 1, '{"kind": "rank"}')
    assert wait_for_failure_flush(tmp_path / "other", grace_s=30) is False
    log(tmp_path / "done", 0, OOM)
    log(tmp_path / "done", 1, '{"kind": "chunk", "cut', '{"kind": "end"}')
    assert wait_for_failure_flush(tmp_path / "done", grace_s=30) is True
    log(tmp_path / "silent", 0, OOM)
    log(tmp_path / "silent", 1, '{"kind": "rank"}')
    assert wait_for_failure_flush(tmp_path / "silent", grace_s=0.1) is True
