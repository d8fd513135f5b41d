"""Ranks that torchrun's agent starts for us: options, exit codes, restarts, several nodes."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from capture.launch.launching import ENVIRONMENT, TINY, assert_whole, free_port
from recording import fsdp_profile

from fsdp_profile.analysis.run import load_run
from fsdp_profile.core import layout
from fsdp_profile.core.schema import Ending, Strategy
from fsdp_profile.ingest.manifest import read_manifest


@pytest.mark.slow
def test_a_number_of_ranks_means_ours_whatever_a_pod_s_environment_says(tmp_path: Path) -> None:
    pod = {**ENVIRONMENT, "RANK": "0", "WORLD_SIZE": "1"}
    done = fsdp_profile("run", "-n", "2", "--no-kineto", "-o", str(tmp_path / "run"), TINY, env=pod)
    assert done.returncode == 0, done.stderr
    assert_whole(load_run(tmp_path / "run"), ranks=2, steps=3, strategy=Strategy.FSDP2)


def test_options_that_torchrun_cannot_start_with_are_one_line_and_no_run(tmp_path: Path) -> None:
    done = fsdp_profile("run", "-n", "1", "--rdzv-backend", "nope", "--rdzv-endpoint", "localhost:0",
                        "-o", str(tmp_path / "run"), TINY)  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("fsdp-profile: torchrun could not start: ")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_the_exit_code_is_the_script_s_also_when_nobody_reads_what_we_say(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import sys\nsys.exit(3)\n")
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "fsdp_profile", "run", "-n", "1", "-o", str(tmp_path / "run"), str(script)]
    done = subprocess.run(command, env=ENVIRONMENT, stderr=writer, timeout=120)
    os.close(writer)
    assert done.returncode == 3
    assert layout.is_run(tmp_path / "run")


@pytest.mark.slow
def test_two_launchers_that_meet_are_two_nodes_of_one_run(tmp_path: Path) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    nodes = [
        subprocess.Popen(
            [sys.executable, "-m", "fsdp_profile", "run", "-n", "1", "--no-kineto", "-o", str(tmp_path / "run"),
             "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-id", "pair", "--rdzv-endpoint", endpoint, TINY],
            env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    ended = [(node.communicate(timeout=240), node.returncode) for node in nodes]
    assert [code for _, code in ended] == [0, 0], ended
    assert_whole(load_run(tmp_path / "run"), ranks=2, steps=3, strategy=Strategy.FSDP2)


def test_a_restart_is_a_run_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent("""
        import os, torch, torch.distributed as dist
        from torch import nn
        dist.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(nn.Linear(8, 8))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and step == 1:
                raise RuntimeError("planted")
            model(torch.ones(2, 8)).sum().backward()
            optimizer.step()
        dist.destroy_process_group()
        """)
    )
    done = fsdp_profile("run", "-n", "1", "--max-restarts", "1", "-o", str(tmp_path / "run"), str(script))
    assert done.returncode == 0, done.stderr
    first = read_manifest(tmp_path / "run")
    assert (first.ranks[0].ending, first.ranks[0].num_steps) == (Ending.EXCEPTION, 1)
    assert first.warnings == ["the job was started again; each restart is a run of its own in this folder: restart_1"]
    assert_whole(load_run(tmp_path / "run" / "restart_1"), ranks=1, steps=3, strategy=Strategy.DDP)
