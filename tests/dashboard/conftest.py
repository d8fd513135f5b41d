"""Runs of a small model as FSDP2 and as DDP, written by RunBuilder: 2 ranks, 3 steps, all numbers known."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builder import RunBuilder
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

import fsdp_dashboard
from fsdp_dashboard import launch
from fsdp_profile.analysis.run import Run
from fsdp_profile.core.categories import Category
from fsdp_profile.core.manifest import Receipt
from fsdp_profile.core.schema import NOT_FREED, SETUP_STEP, CollectiveKind, Phase, SpanKind, Strategy, UnitKind

KIB, MIB = 1 << 10, 1 << 20
MS = 1_000_000
STEP = 40 * MS
NUM_STEPS, NUM_LAYERS, NUM_RANKS = 3, 4, 2
LAYER_BYTES, ROOT_BYTES = 776 * KIB, 520 * KIB
T0 = 1_700_000_000_000_000_000

MakeRun = Callable[..., Run]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Callable[..., AppTest]:
    """opened(path, ..., page="memory", run=[...]) runs the app and shows a page of it."""

    def open_(*paths: Path, page: str = "overview", **query: object) -> AppTest:
        monkeypatch.setenv(launch.ENV_RUNS, os.pathsep.join(map(str, paths)))
        app = AppTest.from_file(str(Path(fsdp_dashboard.__file__).with_name("app.py")), default_timeout=30)
        app.query_params.update(query)
        if page != "overview":
            app._page_hash = calc_hash(page)  # switch_page wants a first run, or a file named like its URL
        app.run()
        assert not app.exception
        return app

    return open_


@pytest.fixture(scope="session")
def ledger() -> Callable[[AppTest], dict[str, Any]]:
    """What the drawing of the memory page was sent."""
    return lambda app: json.loads(app.get("bidi_component")[0].proto.json)


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Write a run below the test's folder: make_run("name", Strategy.DDP)."""

    def make(name: str, strategy: Strategy = Strategy.FSDP2, *, layer: str = "layers.{}", **manifest: object) -> Run:
        return write_run(tmp_path / "runs" / name, strategy, layer=layer, **manifest)

    return make


def write_run(path: Path, strategy: Strategy, *, layer: str = "layers.{}", **manifest: object) -> Run:
    """A run of NUM_RANKS ranks; rank 1 needs a little more than rank 0."""
    run = RunBuilder(path.name, strategy=strategy, path=path)
    is_ddp = strategy is Strategy.DDP
    run.set(
        strategy_detail="DDP, 2 ranks" if is_ddp else f"{strategy}, reshard_after_forward=True, 2 ranks",
        receipt=Receipt(hook_events=540, allocator_events=1200, flush_ns=31 * MS, raw_bytes=96 * KIB),
        sources={"allocator": "recorded", "nvml": "not recorded: no NVIDIA driver"},
        **manifest,
    )
    for rank in range(NUM_RANKS):
        run.rank(rank)
        run.step(SETUP_STEP, T0 - 20 * MS, T0).phase(Phase.SETUP, T0 - 20 * MS, T0, step=SETUP_STEP)
        sizes = [ROOT_BYTES] + [LAYER_BYTES] * NUM_LAYERS
        names = ["", *(layer.format(i) for i in range(NUM_LAYERS))]
        for unit, (name, size) in enumerate(zip(names, sizes, strict=True)):
            kind = UnitKind.DDP_BUCKET if is_ddp else UnitKind.FSDP2
            run.unit(
                f"bucket {unit}" if is_ddp else name,
                numel=size // 4,
                sharded=size if is_ddp else size // 2,
                unsharded=size,
                kind=kind,
                shard_size=1 if is_ddp else 2,
                replicate_size=2 if is_ddp else 1,
            )
            kept = size if is_ddp else size // 2
            run.alloc(
                at=T0 - 10 * MS + unit,
                size=kept,
                category=Category.PARAM,
                unit=unit,
                name=f"{name}.weight",
            )
        for step in range(NUM_STEPS):
            _step(run, step, rank=rank, sizes=sizes, is_ddp=is_ddp)
    return run.build()


def _step(run: RunBuilder, step: int, *, rank: int, sizes: list[int], is_ddp: bool) -> None:
    t = T0 + step * STEP
    run.step(step, t, t + STEP)
    run.phase(Phase.FORWARD, t, t + 14 * MS, step=step)
    run.phase(Phase.BACKWARD, t + 14 * MS, t + 34 * MS, step=step)
    run.phase(Phase.OPTIMIZER, t + 34 * MS, t + 39 * MS, step=step)
    run.phase(Phase.OTHER, t + 39 * MS, t + STEP, step=step)
    run.alloc(at=t + 1, free=t + 39 * MS, size=16 * KIB, category=Category.INPUT)
    run.kernel(t + MS, t + 12 * MS, step=step).kernel(t + 15 * MS, t + 33 * MS, step=step)
    extra = 64 * KIB * rank
    for unit, size in enumerate(sizes):
        begin = t + MS if unit == 0 else t + (3 * unit) * MS
        end = t + 13 * MS if unit == 0 else begin + 2 * MS
        back = t + (33 - 4 * unit) * MS if unit else t + 30 * MS
        run.alloc(at=begin + 1000, free=back + 3 * MS - 1, size=520 * KIB + extra, unit=unit, operator="aten::mm")
        run.alloc(at=begin + 2000, free=end - 10, size=96 * KIB, category=Category.TEMPORARY, unit=unit)
        run.span(unit, SpanKind.FORWARD, begin, end, step=step)
        run.span(unit, SpanKind.BACKWARD, back, back + 3 * MS, step=step, phase=Phase.BACKWARD)
        done = back + 3 * MS
        if not is_ddp:
            for start, stop in ((begin - MS // 2, end), (back - MS // 2, done)):
                is_back = start > t + 14 * MS
                kwargs = {"step": step, "phase": Phase.BACKWARD if is_back else Phase.FORWARD}
                run.span(unit, SpanKind.ALL_GATHER, start, start + 300_000, size=size, prefetched=is_back, **kwargs)
                run.span(unit, SpanKind.RESHARD, stop, stop + 4_000, size=size, **kwargs)
                run.span(unit, SpanKind.UNSHARDED, start, stop, size=size, **kwargs)
                run.alloc(at=start, free=stop, size=size, category=Category.UNSHARDED_PARAM, unit=unit)
                run.alloc(
                    at=start + 1,
                    free=start + 400_000,
                    size=size // 2,
                    category=Category.ALL_GATHER,
                    unit=unit,
                )
                run.collective(CollectiveKind.ALL_GATHER, start, start + 600_000, unit=unit, size_bytes=size, **kwargs)
            run.alloc(at=back + MS, free=done + 200_000, size=size, category=Category.UNSHARDED_GRAD, unit=unit)
            run.alloc(at=done, free=done + 300_000, size=size, category=Category.REDUCE_SCATTER, unit=unit)
        reduce_kind = SpanKind.ALL_REDUCE if is_ddp else SpanKind.REDUCE_SCATTER
        run.span(unit, reduce_kind, done, done + 400_000, size=size, step=step, phase=Phase.BACKWARD)
        kind = CollectiveKind.ALL_REDUCE if is_ddp else CollectiveKind.REDUCE_SCATTER
        run.collective(kind, done, done + 800_000, unit=unit, size_bytes=size, step=step, phase=Phase.BACKWARD)
        kept = size if is_ddp else size // 2
        run.alloc(at=back + 2 * MS, free=t + STEP - 1, size=kept, category=Category.GRAD, unit=unit)
        if step == 0:
            run.alloc(at=t + 35 * MS + unit, size=2 * kept, category=Category.OPTIMIZER_STATE, unit=unit)
    run.alloc(at=t + 36 * MS, free=t + 38 * MS, size=200 * KIB, category=Category.OPTIMIZER_TEMPORARY)


@pytest.fixture(scope="session")
def write_runs() -> Callable[[Path], list[Run]]:
    """The two runs to compare, baseline first, below a folder."""
    return lambda folder: [
        write_run(folder / "ddp", Strategy.DDP),
        write_run(folder / "fsdp2", Strategy.FSDP2),
    ]


@pytest.fixture(scope="session")
def write_hostile() -> Callable[[Path, str], Run]:
    """A run at a path, whose units are called after a name."""
    return lambda path, name: write_run(path, Strategy.FSDP2, layer=name + "{}", warnings=[name])


def _on_device(path: Path, *, unit: str = "layers.0", process: int = 40 * MIB) -> RunBuilder:
    """12 MiB allocated, 13 active, 20 reserved, 90 of 100 MiB used on the device; a segment of 4 MiB on stream 7."""
    run = RunBuilder(path.name, path=path).set(device_type="cuda").unit(unit)
    run.span(0, SpanKind.FORWARD, 4, 9)
    run.alloc(at=5, size=10 * MIB, unit=0).alloc(at=6, free=60, size=2 * MIB, category=Category.BUCKET)
    run.row("segments", address=1 << 30, size_bytes=4 * MIB, start_ns=0, end_ns=NOT_FREED, start_event=0,
            end_event=NOT_FREED, stream=7, pool="0,0", is_expandable=False)  # fmt: skip
    run.totals(reserved=20 * MIB, active=13 * MIB)
    return run.device_sample(6, device_used_bytes=90 * MIB, process_used_bytes=process, device_total_bytes=100 * MIB)


@pytest.fixture(scope="session")
def on_device() -> Callable[..., RunBuilder]:
    """Collects a run on a device, at a path; build it."""
    return _on_device
