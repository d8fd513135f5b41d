"""The generator of synthetic CUDA snapshots makes what torch's own tools accept."""

import pytest
from ingest.snapshot.snapshot_factory import simulate

STEPS = [
    ("alloc", 1000), ("alloc", 30_000), ("request_free", 0), ("alloc", 5000), ("complete_free", 0), ("free", 0),
    ("release", 0), ("alloc", 70_000),
]  # fmt: skip


def test_torch_s_own_tools_read_it() -> None:
    viz = pytest.importorskip("torch.cuda._memory_viz")
    snapshot = simulate(STEPS).snapshot()
    assert viz.trace(snapshot).splitlines()[1:6] == [
        "12 entries",
        "a = cudaMalloc(9223372036854743040, 32.0KiB)",
        "b = a[0:1000.0B]",
        "c = a[1024:29.3KiB]",
        "del b # 1000.0B",
    ]
    assert "total_reserved: 128.0KiB\ntotal_allocated: 73.2KiB" in viz.segsum(snapshot)
    assert len(viz.trace_plot(snapshot)) > 1000
    assert len(viz.segment_plot(snapshot)) > 1000
