"""Small traces as torch.profiler writes them."""

import json
from pathlib import Path

BASE_NS = 1_790_857_026_000_000_000


def timed(name, ts, dur, *, cat="cpu_op", pid=4242, tid=4242, **args):
    """One timed event."""
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(name, ts, dur, *, stream=7, correlation=-1, **args):
    """One kernel."""
    linked = {"correlation": correlation} if correlation >= 0 else {}
    return timed(name, ts, dur, cat="kernel", pid=0, tid=stream, stream=stream, **linked, **args)


def launch(ts, correlation, *, tid=4242, **args):
    """The host launches a kernel."""
    return timed("cudaLaunchKernel", ts, 2, cat="cuda_runtime", tid=tid, correlation=correlation, **args)


def document(events, **metadata):
    """A whole trace."""
    return {"schemaVersion": 1, "baseTimeNanoseconds": BASE_NS, **metadata, "traceEvents": events}


def write(path: Path, events, **metadata) -> Path:
    """A trace file."""
    path.write_text(json.dumps(document(events, **metadata), indent=1))
    return path


def groups(*listed, rank=0, world_size=4):
    """Metadata of a rank in process groups (name, description, ranks)."""
    config = [
        {"pg_name": name, "pg_desc": text, "backend_config": "cuda:nccl", "pg_size": len(ranks), "ranks": ranks}
        for name, text, ranks in listed
    ]
    return {"distributedInfo": {"rank": rank, "world_size": world_size, "pg_config": config}}
