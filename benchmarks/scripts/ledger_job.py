"""What the scripts of the ledger matrix share: a training job, what its own tensors say, what other tools say of it.

A script makes a Job and hands it to `main`. Without flags it only trains, as any script does; `--facts DIR` writes
what is true of its tensors; `--measure` runs the same job under PyTorch's own memory tools instead.
"""

import argparse
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

STEPS = 3
_TRACEBACK_LIMIT = 160  # characters of an error kept in the table


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """Models, their optimizers, and one training step without zero_grad."""

    models: tuple[nn.Module, ...]
    optimizers: tuple[torch.optim.Optimizer, ...]
    step: Callable[[int], None]
    expected: dict[str, int]
    """Closed forms of this rank's states in bytes, by the ledger's category; empty where there is none."""


Make = Callable[[], Job]

after_backward: list[Callable[[], None]] = []
"""Called by scripts after every backward: MemTracker wants its modules' statistics reset between forwards."""


def main(make: Make, args: argparse.Namespace) -> None:
    """Train, or measure; ranks write into `--facts` what they found."""
    dist.init_process_group("gloo")
    if args.measure and dist.get_rank() == 0:
        for name in args.measure:
            _write(args.facts, name, _MEASURES[name](make))
    elif args.measure:  # the tools watch one rank; the others only train with it
        for _ in args.measure:
            _train(make())
    else:
        job = make()
        for step in range(STEPS):
            job.step(step)
            if step == STEPS - 1:
                _write(args.facts, "facts", {"tensors": tensor_bytes(job), "expected": job.expected})
            _zero_grad(job)
    dist.destroy_process_group()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags every script of the matrix has."""
    parser.add_argument("--facts", type=Path, metavar="DIR", help="write facts and measurements of each rank there")
    parser.add_argument(
        "--measure", nargs="+", choices=_MEASURES, default=[], help="run rank 0 under these tools instead"
    )


def tensor_bytes(job: Job) -> dict[str, int]:
    """Bytes of the storages of parameters, gradients and optimizer states, each storage once."""
    params = [p for model in job.models for p in model.parameters()]
    states = [v for o in job.optimizers for s in o.state.values() for v in s.values() if torch.is_tensor(v)]
    return {
        "PARAM": _storage_bytes(getattr(p, "_local_shard", p) for p in _flat_params(job) or params),
        "GRAD": _storage_bytes(p.grad for p in _flat_params(job) or params if p.grad is not None),
        "OPTIMIZER_STATE": _storage_bytes(states),
    }


def _flat_params(job: Job) -> list[Any]:
    """FSDP1's flat parameters: the others are views of them, and at times no parameters at all."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    modules = [module for model in job.models for module in FullyShardedDataParallel.fsdp_modules(model)]
    return [module._handle.flat_param for module in modules if module._handle is not None]


def _storage_bytes(tensors: Iterable[Any]) -> int:
    storages = (getattr(t, "_local_tensor", t).untyped_storage() for t in tensors)
    return sum({s.data_ptr(): s.nbytes() for s in storages if s.nbytes()}.values())


def _train(job: Job) -> None:
    for step in range(STEPS):
        job.step(step)
        _zero_grad(job)


def _zero_grad(job: Job) -> None:
    for optimizer in job.optimizers:
        optimizer.zero_grad()


def _write(folder: Path | None, name: str, values: dict[str, Any]) -> None:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}_{os.environ.get('RANK', '0')}.json").write_text(json.dumps(values))


def _memtracker(make: Make) -> dict[str, Any]:
    """Peak of torch.distributed._tools: FSDPMemTracker where the root is an FSDP2 module, else MemTracker."""
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
    from torch.distributed._tools.mem_tracker import MemTracker
    from torch.distributed.fsdp import FSDPModule

    job = make()
    is_fsdp2 = len(job.models) == 1 and isinstance(job.models[0], FSDPModule)
    tracker = FSDPMemTracker(job.models[0], job.optimizers[0]) if is_fsdp2 else MemTracker()
    if not is_fsdp2:
        tracker.track_external(*job.models, *job.optimizers)
    found: dict[str, Any] = {"tool": type(tracker).__name__}
    after_backward.append(tracker.reset_mod_stats)
    try:
        with tracker:
            _train(job)
        peak = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]
        found |= {str(key): int(value) for key, value in peak.items()}
    except Exception as e:  # noqa: BLE001  (whatever the tool raises is its row in the table)
        found["raises"] = _one_line(e)
    after_backward.clear()
    return found


def _profiler_run(make: Make) -> dict[str, Any]:
    """torch.profiler's memory timeline over set-up and all steps."""
    with _profile() as profiler:
        _train(make())
    return _uncategorised(profiler)


def _profiler_step(make: Make) -> dict[str, Any]:
    """torch.profiler's memory timeline over the last step alone."""
    job = make()
    for step in range(STEPS - 1):
        job.step(step)
        _zero_grad(job)
    with _profile() as profiler:
        job.step(STEPS - 1)
        _zero_grad(job)
    return _uncategorised(profiler)


def _profile() -> Any:
    from torch.profiler import ProfilerActivity, profile

    return profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True, with_stack=True)


def _uncategorised(profiler: Any) -> dict[str, Any]:
    """Share of bytes without a category: at the timeline's peak and over byte-time."""
    from torch.profiler._memory_profiler import MemoryProfileTimeline

    try:
        times, sizes = MemoryProfileTimeline(profiler._memory_profile())._coalesce_timeline("cpu")
    except Exception as e:  # noqa: BLE001  (whatever the tool raises is its row in the table)
        return {"raises": _one_line(e)}
    from torch.profiler._memory_profiler import _CATEGORY_TO_INDEX

    unknown = _CATEGORY_TO_INDEX[None] + 1
    totals = [sum(row) for row in sizes]
    peak = max(range(len(totals)), key=totals.__getitem__)
    spans = [later - time for time, later in pairwise(times)]
    byte_time = sum(total * span for total, span in zip(totals, spans, strict=False))
    lost = sum(row[unknown] * span for row, span in zip(sizes, spans, strict=False))
    return {
        "peak_bytes": totals[peak],
        "peak_ratio": sizes[peak][unknown] / totals[peak] if totals[peak] else 0.0,
        "byte_time_ratio": lost / byte_time if byte_time else 0.0,
    }


def _one_line(error: Exception) -> str:
    text = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {text}"[:_TRACEBACK_LIMIT]


_MEASURES: dict[str, Callable[[Make], dict[str, Any]]] = {
    "memtracker": _memtracker,
    "profiler-run": _profiler_run,
    "profiler-step": _profiler_step,
}
