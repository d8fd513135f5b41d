"""The example scripts, recorded on gloo: the ledger adds up and equals the closed forms to the byte.

P is the model's bytes, n its parameters, N the ranks a parameter is sharded over. Every parameter of the toy divides
by N on dim 0, so no padding: params P/N, gradients P/N, AdamW 2P/N and a 4-byte step counter a parameter.
"""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from recording import NUM_STEPS, RECORDINGS

from fsdp_profile.analysis.memory import ledger as memory
from fsdp_profile.analysis.run import Run
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import NOT_FREED, CollectiveKind, SpanKind, Strategy
from fsdp_profile.ingest.tables import numbers, strings

P = 928_000 * 4
NUM_PARAMS = 37
BLOCK = 197_120 * 4
ROOT = 139_520 * 4
UNITS = ["layers.0", "layers.1", "layers.2", "layers.3", ""]
SHARDS = {"ddp": 1, "ddp_bucket_view": 1, "fsdp1": 2, "fsdp2": 2, "hsdp": 2}
SHARDED = ["fsdp1", "fsdp2", "hsdp"]

Recorded = Callable[[str], Run]


def most(run: Run, category: Category, *, rank: int, step: int) -> int:
    return int(memory.timeline(run, rank=rank, step=step).by_category[category].max())


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_event_of_every_rank_adds_up(recorded: Recorded, name: str) -> None:
    run = recorded(name)
    assert run.ranks == tuple(range(RECORDINGS[name][1]))
    for rank in run.ranks:
        law = memory.conservation(run, rank=rank)
        assert law.num_events > 1000
        assert (law.category_errors, law.reported_errors) == (0, 0)


@pytest.mark.parametrize("name", RECORDINGS)
def test_at_most_one_percent_of_the_peak_is_unknown(recorded: Recorded, name: str) -> None:
    run = recorded(name)
    for rank in run.ranks:
        for peak in memory.peak_of_steps(run, rank=rank):
            assert peak.unknown_ratio <= 0.01


@pytest.mark.parametrize("name", RECORDINGS)
def test_states_equal_the_closed_form(recorded: Recorded, name: str) -> None:
    run, shards = recorded(name), SHARDS[name]
    for rank in run.ranks:
        for step in range(NUM_STEPS):
            assert most(run, Category.PARAM, rank=rank, step=step) == P // shards
            assert most(run, Category.GRAD, rank=rank, step=step) == P // shards
            states = most(run, Category.OPTIMIZER_STATE, rank=rank, step=step)
            # FSDP1 leaves no state for parameters of which this rank holds nothing.
            expected = 2 * P // shards + 4 * NUM_PARAMS
            assert expected - states == (4 * (NUM_PARAMS - _held_params(run, rank)) if name == "fsdp1" else 0)


def _held_params(run: Run, rank: int) -> int:
    """Parameters with a state on this rank: the step counters, 4 bytes each, that were ever alive at once."""
    blocks = run.table("allocations", rank=rank)
    is_counter = (strings(blocks, "category") == "OPTIMIZER_STATE") & (strings(blocks, "name") == "step")
    return int(is_counter.sum())


@pytest.mark.parametrize("name", ["ddp", "ddp_bucket_view"])
def test_buckets_duplicate_gradients_unless_they_are_views(recorded: Recorded, name: str) -> None:
    run = recorded(name)
    for rank in run.ranks:
        ledger = memory.timeline(run, rank=rank, step=2)
        begins = int(np.flatnonzero(numbers(run.table("memory_samples", rank=rank), "step") == 2)[0])
        phases = strings(run.table("memory_samples", rank=rank), "phase")[begins : begins + len(ledger.t_ns)]
        steady = ledger.by_category[Category.BUCKET][np.flatnonzero(phases == "OPTIMIZER")]
        assert set(steady.tolist()) == {P if name == "ddp" else 0}


@pytest.mark.parametrize("name", SHARDED)
def test_gathered_parameters_are_gone_after_the_last_reshard_of_a_step(recorded: Recorded, name: str) -> None:
    run = recorded(name)
    for rank in run.ranks:
        spans = run.table("unit_spans", rank=rank)
        is_reshard = strings(spans, "kind") == SpanKind.RESHARD.value
        for step in range(NUM_STEPS):
            ledger = memory.timeline(run, rank=rank, step=step)
            last_ns = numbers(spans, "end_ns")[is_reshard & (numbers(spans, "step") == step)].max()
            gathered = ledger.by_category[Category.UNSHARDED_PARAM]
            assert gathered.max() > 0
            assert set(gathered[ledger.t_ns > last_ns].tolist()) == {0}


@pytest.mark.parametrize("name", SHARDED)
def test_units_are_named_and_sized_as_the_script_built_them(recorded: Recorded, name: str) -> None:
    run = recorded(name)
    for rank in run.ranks:
        units = run.table("units", rank=rank)
        # FSDP1 wraps from the leaves to the root, fully_shard is called in that order: the root comes last.
        assert strings(units, "name").tolist() == UNITS
        assert numbers(units, "unsharded_bytes").tolist() == [BLOCK] * 4 + [ROOT]
        assert numbers(units, "sharded_bytes").tolist() == [BLOCK // 2] * 4 + [ROOT // 2]
        assert set(numbers(units, "replicate_size").tolist()) == {2 if name == "hsdp" else 1}


@pytest.mark.parametrize("name", SHARDED)
def test_blocks_gather_twice_a_step_and_the_root_once(recorded: Recorded, name: str) -> None:
    run = recorded(name)
    for rank in run.ranks:
        spans = run.table("unit_spans", rank=rank)
        rows = zip(
            numbers(spans, "unit").tolist(), strings(spans, "kind"), numbers(spans, "step").tolist(), strict=True
        )
        counts = Counter(rows)
        for step in range(NUM_STEPS):
            for unit in range(5):
                gathers = 1 if unit == 4 else 2
                assert counts[unit, SpanKind.ALL_GATHER.value, step] == gathers
                assert counts[unit, SpanKind.RESHARD.value, step] == gathers
                assert counts[unit, SpanKind.UNSHARDED.value, step] == gathers
                assert counts[unit, SpanKind.REDUCE_SCATTER.value, step] == 1
                assert counts[unit, SpanKind.ALL_REDUCE.value, step] == (1 if name == "hsdp" else 0)


def test_traffic_of_a_step_is_one_and_a_half_times_ddp(recorded: Recorded) -> None:
    """Whole arrays: DDP all-reduces P (2P on the wire); FSDP gathers 2P less the root's second, scatters P."""
    ddp, fsdp = recorded("ddp"), recorded("fsdp2")
    assert bytes_of_step(ddp, step=1) == {"ALL_REDUCE": P}
    assert bytes_of_step(fsdp, step=1) == {"ALL_GATHER": 2 * P - ROOT, "REDUCE_SCATTER": P}


def bytes_of_step(run: Run, *, step: int) -> dict[str, int]:
    table = run.table("collectives", rank=0)
    found: Counter[str] = Counter()
    for row in table.select(["kind", "step", "size_bytes"]).to_pylist():
        if row["step"] == step and row["kind"] != CollectiveKind.BROADCAST:
            found[row["kind"]] += row["size_bytes"]
    return dict(found)


@pytest.mark.parametrize("name", RECORDINGS)
def test_steps_and_phases_are_found_without_help(recorded: Recorded, name: str) -> None:
    run = recorded(name)
    for rank in run.ranks:
        steps = run.table("steps", rank=rank)
        complete = steps.filter(steps.column("complete"))
        assert numbers(complete, "step").tolist() == [-1, 0, 1, 2]
        phases = run.table("phases", rank=rank)
        for step in range(NUM_STEPS):
            mine = strings(phases, "phase")[numbers(phases, "step") == step].tolist()
            order = [p for p in mine if p != "OTHER"]
            assert order == ["FORWARD", "BACKWARD", "OPTIMIZER"]


def test_ddp_buckets_are_units_and_cover_the_gradients(recorded: Recorded) -> None:
    units = recorded("ddp").table("units", rank=0)
    assert sum(numbers(units, "sharded_bytes").tolist()) == P
    assert strings(units, "name").tolist() == [f"bucket {i}" for i in range(units.num_rows)]
    spans = recorded("ddp").table("unit_spans", rank=0)
    assert Counter(strings(spans, "kind")) == {"ALL_REDUCE": NUM_STEPS * units.num_rows} or units.num_rows > 1


def test_the_manifest_says_what_ran_and_what_was_not_recorded(recorded: Recorded) -> None:
    details = {name: recorded(name).manifest for name in RECORDINGS}
    assert {name: m.strategy for name, m in details.items()} == {
        "ddp": Strategy.DDP,
        "ddp_bucket_view": Strategy.DDP,
        "fsdp1": Strategy.FSDP1,
        "fsdp2": Strategy.FSDP2,
        "hsdp": Strategy.HSDP,
    }
    for manifest in details.values():
        assert manifest.complete and manifest.warnings == []
        assert (manifest.model.name, manifest.model.numel, manifest.model.num_params) == ("GPT", 928_000, 37)
        assert manifest.model.param_bytes == P
        assert manifest.sources["allocator events"] == "recorded"
        assert manifest.sources["Kineto traces"] == "recorded"


def test_host_memory_is_sampled(recorded: Recorded) -> None:
    samples = recorded("fsdp2").table("device_samples", rank=0)
    rss = samples.column("host_rss_bytes").to_numpy()
    assert len(rss) >= NUM_STEPS
    assert np.all(rss > 50 << 20)  # torch alone is larger


def test_no_span_is_left_open(recorded: Recorded) -> None:
    for name in SHARDED:
        spans = recorded(name).table("unit_spans", rank=0)
        assert NOT_FREED not in numbers(spans, "end_ns").tolist()
