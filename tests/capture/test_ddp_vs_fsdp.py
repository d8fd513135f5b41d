"""benchmarks/ddp_vs_fsdp.py: its parameter count is the model's, the full size is simulated, and it runs."""

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


def test_the_full_size_is_simulated_and_says_that_it_is_an_estimate(benchmark: ModuleType) -> None:
    sizes = benchmark.Sizes(layers=2, dim=64, vocab=128, seq_len=16, batch=1)
    assert sizes.numel == 116_352
    row = benchmark.simulated(sizes, argparse.Namespace(optimizer="sgd"), ranks=2).split()
    assert (row[0], row[2], row[4], row[6:]) == ("2", "MiB", "MiB", ["%", "simulated:", "an", "ESTIMATE"])
    ddp, fsdp, reduction = float(row[1]), float(row[3]), float(row[5])
    # DDP keeps parameters, gradients and buckets whole; FSDP keeps half of the first two and gathers units.
    assert ddp >= 12 * sizes.numel / 2**20 > fsdp >= 4 * sizes.numel / 2**20
    assert reduction == pytest.approx((1 - fsdp / ddp) * 100, abs=1)


@pytest.mark.slow
def test_it_prints_both_peaks_and_the_exact_percentage(tmp_path: Path) -> None:
    sizes = ["--layers", "2", "--dim", "64", "--vocab", "128", "--seq-len", "16"]
    command = [sys.executable, str(BENCHMARKS / "ddp_vs_fsdp.py"), *sizes, "--ranks", "2", "-o", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    row = done.stdout.splitlines()[-1].split()
    assert (row[0], row[-1]) == ("2", "equal")
    assert 0 < float(row[5]) < 100
