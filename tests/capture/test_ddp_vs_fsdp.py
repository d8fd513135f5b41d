"""benchmarks/ddp_vs_fsdp.py: its parameter count is the model's, its closed forms are what they say, and it runs."""

import argparse
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from recording import EXAMPLES

BENCHMARKS = EXAMPLES.parent / "benchmarks"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))
    import ddp_vs_fsdp

    return ddp_vs_fsdp


def test_the_parameter_count_is_the_models(benchmark: ModuleType) -> None:
    sys.path.insert(0, str(EXAMPLES))
    import gpt

    sizes = benchmark.Sizes(layers=24, dim=3072, vocab=50_304, seq_len=2048, batch=1)
    parser = argparse.ArgumentParser()
    gpt.add_model_arguments(parser)
    preset = gpt.chosen_preset(parser.parse_args(sizes.flags))
    with torch.device("meta"):
        model = gpt.GPT(preset.config)
    assert sizes.numel == sum(p.numel() for p in model.parameters()) == 3_033_569_280


def test_closed_forms_say_that_they_are_estimates(benchmark: ModuleType) -> None:
    sizes = benchmark.Sizes(layers=2, dim=64, vocab=128, seq_len=16, batch=1)
    # A block has 49,408 parameters, the root 17,536: DDP keeps 12 bytes of 116,352 parameters, FSDP 4 of them, and
    # the root and three blocks in fp32.
    assert sizes.numel == 116_352
    ddp, fsdp = 12 * 116_352, 4 * (116_352 + 17_536 + 3 * 49_408)
    assert benchmark.closed_forms(sizes, ranks=2).split() == [
        "2", f"{ddp / 2**20:.2f}", "MiB", f"{fsdp / 2**20:.2f}", "MiB", f"{(ddp - fsdp) / ddp * 100:.2f}", "%",
        "estimate",
    ]  # fmt: skip


@pytest.mark.slow
def test_it_prints_both_peaks_and_the_exact_percentage(tmp_path: Path) -> None:
    sizes = ["--layers", "2", "--dim", "64", "--vocab", "128", "--seq-len", "16"]
    command = [sys.executable, str(BENCHMARKS / "ddp_vs_fsdp.py"), *sizes, "--ranks", "2", "-o", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    row = done.stdout.splitlines()[-1].split()
    assert (row[0], row[-1]) == ("2", "equal")
    assert 0 < float(row[5]) < 100
