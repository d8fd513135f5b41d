"""On a machine with GPUs: the same laws and closed forms as on CPU, and the allocator's own levels.

One rank for each device. With one device nothing is sharded: shards and all-gathers are then those of one rank.
"""

import numpy as np
import pytest
from recording import EXAMPLES, fsdp_profile

from fsdp_profile.analysis.memory import ledger as memory
from fsdp_profile.analysis.memory.device_waterfall import waterfall
from fsdp_profile.analysis.run import Run, load_run
from fsdp_profile.core.categories import Category
from fsdp_profile.ingest.tables import numbers

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU: these run where torch.cuda.is_available()"),
]
STEPS = 3
P = 928_000 * 4


@pytest.fixture(scope="module", params=["train_ddp.py", "train_fsdp1.py", "train_fsdp2.py"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("gpu") / "run"
    script = str(EXAMPLES / request.param)
    done = fsdp_profile("run", "-n", "gpu", "-o", str(folder), script, "--steps", str(STEPS))
    assert done.returncode == 0, done.stderr
    return load_run(folder)


def test_the_categories_sum_to_what_is_allocated_and_the_levels_are_in_order(run: Run) -> None:
    assert run.manifest.device_type == "cuda"
    for rank in run.ranks:
        assert memory.conservation(run, rank=rank).category_errors == 0
        samples = run.table("memory_samples", rank=rank)
        allocated, active, reserved = (
            numbers(samples, f"{level}_bytes") for level in ("allocated", "active", "reserved")
        )
        assert np.all(allocated <= active) and np.all(active <= reserved)
        assert all(peak.unknown_ratio <= 0.01 for peak in memory.peak_of_steps(run, rank=rank))


def test_states_equal_the_closed_form(run: Run) -> None:
    shards = 1 if "ddp" in run.manifest.script else len(run.ranks)
    for rank in run.ranks:
        ledger = memory.timeline(run, rank=rank, step=STEPS - 1).by_category
        # The caching allocator rounds each block up to 512 bytes.
        assert P // shards <= ledger[Category.PARAM].max() <= P // shards + 37 * 512
        assert 2 * P // shards <= ledger[Category.OPTIMIZER_STATE].max() <= 2 * P // shards + 3 * 37 * 512


def test_the_waterfall_reaches_what_nvml_says(run: Run) -> None:
    for rank in run.ranks:
        found = waterfall(run, rank=rank)
        assert found is not None and found.reserved_bytes is not None and found.device_used_bytes is not None
        assert found.reserved_bytes <= found.device_used_bytes
        assert sum(pool.reserved_bytes for pool in found.pools) == found.reserved_bytes
