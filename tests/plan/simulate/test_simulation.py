"""Scripts simulated without data, against what the same scripts measured (sample_runs, on gloo)."""

from pathlib import Path

import pytest
import torch

from fsdp_profile.analysis.memory import ledger
from fsdp_profile.analysis.run import load_run
from fsdp_profile.core.categories import Category
from fsdp_profile.core.errors import InputError, SimulationError, UsageError
from fsdp_profile.plan.calibrate import calibrated, measured_row
from fsdp_profile.plan.formulas.strategies import Layout, World
from fsdp_profile.plan.simulate.simulation import Simulation, simulate, simulated_row

ROOT = Path(__file__).resolve().parents[3]
SIZES = ("--dim", "128", "--layers", "4", "--batch", "2", "--seq-len", "32", "--steps", "4")
P = 923_904 * 4
NUM_PARAMS = 37
"""AdamW keeps a 4-byte step counter for each."""
MADE: dict[tuple[str, int, Layout | None], Simulation] = {}


def simulated(script: str, ranks: int, layout: Layout | None = None) -> Simulation:
    key = (script, ranks, layout)
    if key not in MADE:
        words = [str(ROOT / "examples" / script), *SIZES]
        MADE[key] = simulate(words, world=World(size=ranks), layout=layout)
    return MADE[key]


def measured(name: str):
    return ledger.peak(load_run(ROOT / "sample_runs" / name), rank=0, step=1)


def test_fsdp1_is_the_measured_peak_to_the_byte() -> None:
    found, known = simulated("train_fsdp1.py", 2).peak, measured("gpt-fsdp1-2ranks")
    assert (found.allocated_bytes, found.phase, found.unit_name) == (
        known.allocated_bytes,
        known.phase,
        known.unit_name,
    )
    assert found.by_category == known.by_category


def test_ddp_is_the_measured_peak_but_for_scalars() -> None:
    found, known = simulated("train_ddp.py", 2).peak, measured("gpt-ddp-2ranks")
    assert known.allocated_bytes - found.allocated_bytes == 12
    assert found.by_category[Category.BUCKET] == P


def test_fsdp2_is_the_measured_peak_but_for_what_gloo_holds() -> None:
    found = simulated("train_fsdp2.py", 2).peak
    run = load_run(ROOT / "sample_runs" / "gpt-fsdp2-2ranks")
    known = measured("gpt-fsdp2-2ranks")
    blocks = ledger.blocks_at(run, rank=0, event=known.event).to_pylist()
    (scratch,) = [b["size_bytes"] for b in blocks if b["category"] == "ALL_GATHER" and not b["name"]]
    assert abs(found.allocated_bytes / (known.allocated_bytes - scratch) - 1) <= 0.05
    assert found.by_category[Category.PARAM] == known.by_category[Category.PARAM]


@pytest.mark.parametrize(
    ("script", "layout", "shards"),
    [
        ("train_ddp.py", Layout.FSDP, 4),
        ("train_fsdp2.py", Layout.DDP, 1),
        ("train_fsdp2.py", Layout.FSDP_NO_RESHARD, 4),
        ("train_fsdp1.py", Layout.HSDP, 2),
        ("train_fsdp1.py", Layout.DDP, 1),
        ("train_fsdp1.py", Layout.FSDP_NO_RESHARD, 4),
    ],
)
def test_states_of_every_layout_are_the_closed_forms(script: str, layout: Layout, shards: int) -> None:
    found = simulated(script, 4, layout)
    row = simulated_row(found)
    assert (row.layout, row.world_size, row.basis) == (layout, 4, "simulated")
    assert (row.param_bytes, row.grad_bytes) == (P // shards, P // shards)
    counters = row.optimizer_bytes - 2 * P // shards
    assert 0 < counters <= 4 * NUM_PARAMS
    law = ledger.conservation(found.run, rank=0)
    assert (law.category_errors, law.reported_errors) == (0, 0)
    assert found.peak.unknown_ratio == 0


def test_a_simulated_run_says_that_it_is_one() -> None:
    manifest = simulated("train_ddp.py", 4, Layout.FSDP).run.manifest
    assert manifest.warnings[0] == (
        "simulated, not measured: rank 0 of 4 alone, no data in its tensors; its times are not measurements"
    )
    assert manifest.sources["allocator events"] == "simulated: no data in its tensors"
    assert manifest.strategy_detail == "FSDP2 reshard_after_forward=True, 5 units, 4 ranks"
    assert simulated("train_ddp.py", 4, Layout.FSDP).placeholder_reads == {"examples/train_ddp.py:44 main": 1}


def test_calibrated_by_a_measured_run_of_another_strategy_and_world_size() -> None:
    source = load_run(ROOT / "sample_runs" / "gpt-fsdp2-2ranks")
    here = simulated("train_fsdp2.py", 2)
    as_ddp = calibrated(simulated("train_fsdp2.py", 4, Layout.DDP), source=here, run=source)
    known = measured_row(load_run(ROOT / "sample_runs" / "gpt-ddp-4ranks"))
    assert abs(as_ddp.peak_bytes / known.peak_bytes - 1) <= 0.001
    assert as_ddp.error_ratio == pytest.approx(1 - here.peak.allocated_bytes / 11_509_188)


def test_an_ordinary_script_is_simulated_whole() -> None:
    path = Path(__file__).parents[1] / "scripts" / "ordinary.py"
    found = simulate([str(path)], world=World(size=8))
    assert found.note == ""
    # The sampler's permutation, the scaler's found_inf and scale, isfinite, and three reads for the log.
    assert {place.rsplit(":", 1)[-1] for place in found.placeholder_reads} == {
        "20 main", "26 main", "30 main", "32 main", "35 main", "36 main",
    }  # fmt: skip
    numel = 64 * 256 + 256 + 256 * 10 + 10
    assert found.states == {
        Category.PARAM: 4 * numel,
        Category.GRAD: 4 * numel,
        Category.OPTIMIZER_STATE: 8 * numel + 4 * 4 + 2 * 4,  # step counters; the scaler's scale and growth tracker
    }
    assert found.peak.by_category[Category.BUCKET] == 4 * numel


def test_under_zero1_rank_0_has_the_states_of_the_parameters_that_it_steps() -> None:
    found = simulate(
        [str(Path(__file__).parents[1] / "scripts" / "ordinary.py")], world=World(size=4), layout=Layout.ZERO1
    )
    numel = 64 * 256 + 256 + 256 * 10 + 10
    assert found.states == {
        Category.PARAM: 4 * numel,
        Category.GRAD: 4 * numel,
        Category.OPTIMIZER_STATE: 8 * 64 * 256 + 4 + 2 * 4,  # the largest of four parameters; the scaler's two
    }


def test_a_ddp_script_that_formats_its_norm_is_simulated_sharded() -> None:
    path = Path(__file__).parents[1] / "scripts" / "ordinary.py"
    found = simulate([str(path)], world=World(size=2), layout=Layout.FSDP)
    assert found.note == ""
    numel = 64 * 256 + 256 + 256 * 10 + 10
    assert found.states[Category.PARAM] == 4 * numel // 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="with CUDA the tensors are CUDA's")
@pytest.mark.parametrize(
    ("kind", "shards", "prefix"), [("ddp", 1, "DDP"), ("fsdp1", 4, "FSDP1"), ("fsdp2", 4, "FSDP2")]
)
def test_a_script_for_cuda_is_simulated_where_there_is_none(kind: str, shards: int, prefix: str) -> None:
    path = Path(__file__).parents[1] / "scripts" / "for_cuda.py"
    found = simulate([str(path), kind], world=World(size=4))
    assert found.run.manifest.strategy_detail.lower().startswith(kind)
    numel = 64 * 256 + 256 + 256 * 64 + 64
    assert found.states[Category.PARAM] == found.states[Category.GRAD] == 4 * numel // shards
    assert (found.note, found.cuda_as_cpu) == ("", True)


def script(tmp_path: Path, body: str) -> list[str]:
    path = tmp_path / "train.py"
    path.write_text(body)
    return [str(path)]


def test_a_call_that_cannot_be_simulated_is_named(tmp_path: Path) -> None:
    body = "import torch\n\nx = torch.tensor([0, 1])\nprint(torch.nonzero(x))\n"
    with pytest.raises(
        SimulationError, match=r"train\.py:4: print\(torch\.nonzero\(x\)\): Dynamic.*; try --real .*--params"
    ):
        simulate(script(tmp_path, body), world=World(size=2))


def test_a_script_without_a_step(tmp_path: Path) -> None:
    with pytest.raises(SimulationError, match="ended without an optimizer step"):
        simulate(script(tmp_path, "import torch\n"), world=World(size=2))


def test_what_cannot_be_simulated_at_all(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        simulate([str(tmp_path / "none.py")], world=World(size=2))
    with pytest.raises(UsageError, match="--as zero2"):
        simulate(script(tmp_path, ""), world=World(size=2), layout=Layout.ZERO2)
    with pytest.raises(UsageError, match="does not divide"):
        simulate(script(tmp_path, ""), world=World(size=3), layout=Layout.HSDP)


def test_real_tensors_and_a_fake_process_group() -> None:
    words = [str(ROOT / "examples" / "train_fsdp1.py"), *SIZES]
    found = simulate(words, world=World(size=2), fake_tensors=False)
    assert found.peak.by_category == measured("gpt-fsdp1-2ranks").by_category
    assert "real tensors" in found.run.manifest.warnings[0]
