"""Runs built to have a fault, and what the rules say of them."""

from builder import RunBuilder

from fsdp_profile.analysis.findings.evaluate import findings
from fsdp_profile.analysis.findings.finding import Finding
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import Phase, SpanKind

MIB, GIB = 1 << 20, 1 << 30
MB, GB = 10**6, 10**9
PARAM, STATE, GRAD = Category.PARAM, Category.OPTIMIZER_STATE, Category.GRAD


def gib(number: float) -> int:
    return round(number * GIB)


def told(run: RunBuilder, rule: str) -> Finding:
    """The one finding of a rule."""
    [found] = [f for f in findings(run.build()) if f.rule == rule]
    return found


def rules(run: RunBuilder) -> list[str]:
    return [f.rule for f in findings(run.build())]


def healthy() -> RunBuilder:
    """Sharded over 8 ranks in equal units, three steps, states dominate, each block gathered for its use only."""
    run = RunBuilder().set(world_size=8)
    run.unit("", unsharded=MIB // 64, numel=4, shard_size=8)
    for block in range(8):
        run.unit(f"layers.{block}", unsharded=MIB, numel=256 << 10, shard_size=8, trainable_numel=256 << 10)
    run.step(-1, 0, 10).phase(Phase.SETUP, 0, 10, step=-1)
    run.alloc(at=1, size=60 * MIB, category=PARAM).alloc(at=5, size=120 * MIB, category=STATE)
    for step in range(3):
        at = 10 + 100 * step
        run.step(step, at, at + 100)
        run.phase(Phase.FORWARD, at, at + 50, step=step).phase(Phase.BACKWARD, at + 50, at + 90, step=step)
        run.phase(Phase.OPTIMIZER, at + 90, at + 100, step=step)
        run.alloc(at=at + 2, free=at + 60, size=2 * MIB, category=Category.ACTIVATION, unit=1)
        run.alloc(at=at + 2, free=at + 60, size=2 * MIB, category=Category.ACTIVATION, unit=2)
        run.alloc(at=at + 3, free=at + 8, size=MIB, category=Category.UNSHARDED_PARAM, unit=1)
        run.span(1, SpanKind.FORWARD, at + 2, at + 9, step=step)
        run.span(1, SpanKind.UNSHARDED, at + 3, at + 8, size=MIB, step=step)
        run.alloc(at=at + 70, free=at + 99, size=60 * MIB, category=GRAD)
    return run
