"""Closed forms: what each layout divides, what is transient, what is sent; and what cannot be asked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsdp_profile.core.errors import UsageError
from fsdp_profile.core.humanize import count_of
from fsdp_profile.plan.formulas.activations import Checkpointing, Transformer, activation_bytes, logit_bytes
from fsdp_profile.plan.formulas.costs import ModelSize, Options, plan_row
from fsdp_profile.plan.formulas.devices import Device, find_device
from fsdp_profile.plan.formulas.recipes import RECIPES, find_recipe
from fsdp_profile.plan.formulas.strategies import LAYOUTS, Layout, World

P = 1_000_000


def row(recipe: str, layout: Layout, *, ranks: int = 4, options: Options | None = None, **model: object):
    return plan_row(ModelSize(numel=P, **model), find_recipe(recipe), World(size=ranks), layout, options=options)


def test_what_each_layout_divides() -> None:
    found = {layout: row("mixed-adamw", layout) for layout in LAYOUTS}
    assert {layout: (r.param_bytes, r.grad_bytes, r.optimizer_bytes) for layout, r in found.items()} == {
        Layout.DDP: (2 * P, 2 * P, 12 * P),
        Layout.ZERO1: (2 * P, 2 * P, 3 * P),
        Layout.ZERO2: (2 * P, P // 2, 3 * P),
        Layout.FSDP: (P // 2, P // 2, 3 * P),
        Layout.FSDP_NO_RESHARD: (P // 2, P // 2, 3 * P),
        Layout.HSDP: (P, P, 6 * P),
    }


def test_what_is_gathered_and_on_its_way() -> None:
    unit = {"unit_numel": 1000}
    assert row("fsdp2-mixed", Layout.FSDP, **unit).gathered_bytes == 2 * 2 * 1000
    assert row("fsdp2-mixed", Layout.FSDP, options=Options(depth=3), **unit).gathered_bytes == 3 * 2 * 1000
    assert row("fsdp2-mixed", Layout.FSDP, **unit).reduced_bytes == (2 + 4) * 1000
    assert row("fsdp2-mixed", Layout.FSDP_NO_RESHARD, **unit).gathered_bytes == 2 * P
    assert row("autocast-ddp", Layout.DDP).reduced_bytes == 4 * P
    assert row("autocast-ddp", Layout.DDP, options=Options(bucket_view=True)).reduced_bytes == 0
    assert row("autocast-ddp", Layout.DDP).gathered_bytes == 2 * P
    assert row("fsdp2-mixed", Layout.FSDP).gathered_bytes is None


def test_what_a_rank_sends() -> None:
    sent = {layout: row("mixed-adamw", layout).traffic_bytes for layout in LAYOUTS}
    assert sent == {
        Layout.DDP: 3 * P,
        Layout.ZERO1: 3 * P,
        Layout.ZERO2: 3 * P,
        Layout.FSDP: 4.5 * P,
        Layout.FSDP_NO_RESHARD: 3 * P,
        Layout.HSDP: 6 * P // 2 + P,  # two shards: 3 halves of 2 P; then an all-reduce of P over two replicas
    }


def test_frozen_parameters_have_no_gradients_and_no_states() -> None:
    found = row("lora", Layout.DDP, trainable_numel=1000)
    assert (found.param_bytes, found.grad_bytes, found.optimizer_bytes) == (2 * P, 2000, 12_000)
    assert row("qlora", Layout.DDP, trainable_numel=0).param_bytes == round((0.5 + (8 / 64 + 32 / 16384) / 8) * P)


def test_every_recipe_is_what_its_name_says() -> None:
    assert {name: r.param_bytes + r.grad_bytes + r.optimizer_bytes for name, r in RECIPES.items()} == {
        "mixed-adamw": 16, "fp32": 16, "fsdp2-mixed": 16, "autocast-ddp": 16, "bf16-pure": 8, "sgd": 8,
        "sgd-momentum": 12, "adam-8bit": 6 + 8 / 2048, "lora": 16, "qlora": 16,
    }  # fmt: skip


def test_a_peak_is_known_only_when_all_its_parts_are() -> None:
    sizes = Transformer(layers=2, hidden=64, seq=32, batch=3, vocab=100)
    known = row("fp32", Layout.FSDP, transformer=sizes)
    activations = 34 * 32 * 3 * 64 * 2 + 10 * 32 * 3 * 100
    assert known.activation_bytes == activations
    assert known.peak_bytes == 4 * P + 2 * 4 * P // 2 + 8 * P // 2 + activations
    unknown = row("fp32", Layout.FSDP)
    assert unknown.peak_bytes is None
    small, large = (Device(name="x", title="x", total_bytes=size) for size in (P, 100 * P))
    assert [known.fits(small), known.fits(large), unknown.fits(small), unknown.fits(large)] == [
        False, True, False, None,
    ]  # fmt: skip


def test_activations_with_checkpointing_and_scores() -> None:
    sizes = Transformer(layers=4, hidden=8, seq=16, batch=2, heads=2, is_fused=False)
    linear, scores = 34 * 16 * 2 * 8, 5 * 2 * 16 * 16 * 2
    assert activation_bytes(sizes) == 4 * (linear + scores)
    assert activation_bytes(sizes, Checkpointing.SELECTIVE) == 4 * linear
    assert activation_bytes(sizes, Checkpointing.FULL) == 4 * 2 * 16 * 2 * 8 + linear
    assert logit_bytes(sizes) is None
    with pytest.raises(UsageError, match="--heads"):
        activation_bytes(Transformer(layers=4, hidden=8, seq=16, is_fused=False))


@given(st.integers(1, 10**15))
def test_a_number_of_parameters_reads_back(number: int) -> None:
    assert count_of(str(number)) == count_of(f"{number:,}") == number


@pytest.mark.parametrize("text", ["13GB", "13 GiB", "512MiB", "-5", "", "13x", "1.5", "nan", "inf", "1e99"])
def test_what_is_no_number_of_parameters(text: str) -> None:
    with pytest.raises(ValueError, match="size in bytes" if "G" in text or "Mi" in text else "whole number"):
        count_of(text)


def test_devices_are_named_or_sized() -> None:
    assert find_device("H100").total_bytes == 81_559 << 20
    assert find_device("48GiB").total_bytes == 48 << 30
    for name in ("h101", "48", "-1GiB"):
        with pytest.raises(UsageError, match="--device"):
            find_device(name)


def test_ranks_that_do_not_divide_the_mesh() -> None:
    with pytest.raises(UsageError, match="--replicas 3 does not divide --world-size 8"):
        plan_row(ModelSize(numel=P), find_recipe("fp32"), World(size=8, replicas=3), Layout.HSDP)
    for wrong in ({"size": 0}, {"size": 8, "replicas": 0}):
        with pytest.raises(UsageError, match="1 or more"):
            World(**wrong)
