"""The fewest ranks and the largest batch: the next one does not fit."""

from fsdp_profile.plan.formulas.activations import Transformer
from fsdp_profile.plan.formulas.costs import ModelSize, Options
from fsdp_profile.plan.formulas.devices import Device
from fsdp_profile.plan.formulas.recipes import find_recipe
from fsdp_profile.plan.formulas.search import fewest_ranks, largest_batch
from fsdp_profile.plan.formulas.strategies import Layout, World

RECIPE = find_recipe("mixed-adamw")
MODEL = ModelSize(numel=1_000_000, unit_numel=10_000)
TRANSIENT = 2 * 2 * 10_000 + 4 * 10_000


def device(size: int) -> Device:
    return Device(name="x", title="x", total_bytes=size)


def test_the_fewest_ranks() -> None:
    found = fewest_ranks(
        MODEL, RECIPE, device(4_000_000 + TRANSIENT), layouts=[Layout.FSDP, Layout.DDP, Layout.HSDP],
        options=Options(), replicas=2,
    )  # fmt: skip
    assert [f.row and f.row.world_size for f in found] == [4, None, 8]
    assert found[0].reason == (
        f"3 ranks would need {(16_000_000 / 3 + TRANSIENT) / 2**20:.2f} MiB, most of it optimizer states (3.81 MiB)"
    )
    assert (
        found[1].reason == "even on 4,096 ranks it needs 15.26 MiB of 3.89 MiB, most of it optimizer states (11.44 MiB)"
    )


def test_one_rank_can_be_enough() -> None:
    (found,) = fewest_ranks(MODEL, RECIPE, device(1 << 30), layouts=[Layout.DDP], options=Options(), replicas=2)
    assert (found.row and found.row.world_size, found.reason) == (1, "one rank is enough")


def test_the_largest_batch() -> None:
    sizes = Transformer(layers=2, hidden=64, seq=128)
    each = 34 * 128 * 64 * 2
    model = ModelSize(numel=1_000_000, unit_numel=10_000, transformer=sizes)
    room = 8_000_000 + TRANSIENT + 5 * each + each // 2
    (found,) = largest_batch(model, RECIPE, device(room), world=World(size=2), layouts=[Layout.FSDP], options=Options())
    assert found.batch == 5
    assert found.reason.startswith("6 would need ")
    (none,) = largest_batch(model, RECIPE, device(room), world=World(size=2), layouts=[Layout.DDP], options=Options())
    assert (none.batch, none.row) == (0, None)
