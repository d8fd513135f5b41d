"""CUDA: the caching allocator's history, and a Kineto window with device activity.

The history is a ring in the allocator; at a flush what is new since the last one is taken from a snapshot, as plain
numbers (there is no dump that is not a pickle). Written from PyTorch's sources (torch/cuda/memory.py 2.4 .. 2.15);
the snapshot reader is tested on real and synthetic snapshots, this file has not run on a device yet.
"""

from pathlib import Path
from typing import Any

from fsdp_profile.capture.sources.cpu import module_calls
from fsdp_profile.capture.user_code import UserCode
from fsdp_profile.core.capture_log import BLOCK_FIELDS, CUDA_EVENTS, SEGMENT_FIELDS, SITE, as_columns


class CudaHistory:
    """The allocator's history of every device this process uses."""

    def __init__(self, *, max_entries: int, user_code: UserCode | None = None) -> None:
        self._user_code = user_code
        self._max_entries = max_entries
        self._last_us: dict[int, int] = {}

    def arm(self) -> None:
        """Start with CUDA itself: queued until the first use of a device, so that no context is made early."""
        import torch

        torch.cuda._lazy_call(self._start)

    def _start(self) -> None:
        import torch

        torch.cuda.memory._record_memory_history(
            enabled="all", context="alloc" if self._user_code else None, stacks="python", max_entries=self._max_entries
        )

    def take(self) -> list[dict[str, Any]]:
        """Per device with new events: their columns and the segments as they are now."""
        import torch

        if not torch.cuda.is_initialized():
            return []
        snapshot = torch.cuda.memory._snapshot()
        found = []
        for device, trace in enumerate(snapshot.get("device_traces", [])):
            since = self._last_us.get(device, -1)
            fresh = [e for e in trace if e.get("time_us", 0) > since]
            if not fresh:
                continue
            self._last_us[device] = fresh[-1].get("time_us", since)
            found.append(
                {
                    "device": device,
                    "ring_was_full": len(trace) >= self._max_entries,
                    "events": {**as_columns(CUDA_EVENTS, map(_event, fresh)), **self._sites(fresh)},
                    "segments": [_segment(s) for s in snapshot["segments"] if s.get("device") == device],
                }
            )
        return found

    def _sites(self, events: list[dict[str, Any]]) -> dict[str, list[str]]:
        own = self._user_code
        return {} if own is None else {SITE: [own.line_of_frames(e.get("frames") or []) for e in events]}

    def stop(self) -> None:
        """End the history (the script's own recording, if any, ends with it: there is only one)."""
        import torch

        if torch.cuda.is_initialized():
            torch.cuda.memory._record_memory_history(enabled=None)


class CudaTrace:
    """Kineto with CPU and device activity over the recorded steps, one trace file."""

    def __init__(self, *, user_code: UserCode | None = None) -> None:
        self._profiler: Any = None
        self._user_code = user_code

    @property
    def is_running(self) -> bool:
        """Whether Kineto records now."""
        return self._profiler is not None

    def start(self) -> None:
        """Begin."""
        from torch.profiler import ProfilerActivity, profile

        self._profiler = profile(
            activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], with_stack=self._user_code is not None
        )
        self._profiler.start()

    def stop(self, *, trace: Path) -> dict[str, list[Any]]:
        """End and write the trace; with stacks the calls of modules, as `module_calls` has them, else nothing."""
        profiler, self._profiler = self._profiler, None
        profiler.stop()
        profiler.export_chrome_trace(str(trace))
        if self._user_code is None:
            return {}
        return module_calls(profiler.profiler.kineto_results.experimental_event_tree(), self._user_code)


def _event(event: dict[str, Any]) -> tuple[Any, ...]:
    """A row of CUDA_EVENTS; an out-of-memory event has no address but the device's free bytes."""
    address = event.get("addr", event.get("device_free", 0))
    return event.get("action", ""), address, event.get("size", 0), event.get("stream", 0), event.get("time_us", 0)


def _segment(segment: dict[str, Any]) -> dict[str, Any]:
    blocks = [{field: block.get(field) for field in BLOCK_FIELDS} for block in segment.get("blocks", [])]
    return {**{field: segment.get(field) for field in SEGMENT_FIELDS}, "blocks": blocks}
