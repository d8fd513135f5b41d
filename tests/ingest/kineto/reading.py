"""The events of the small traces, and what is compared of them."""

from ingest.kineto.kineto_factory import BASE_NS

US = 1000


ALL_GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


REDUCE_SCATTER = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


GEMM = "toy_gemm_128x128_nn"


CONTROL = [
    ("FSDP::all_gather (layers.0)", "user_annotation", 1000, 40),
    ("record_param_comms", "cpu_op", 1002, 6),
    ("cudaLaunchKernel", "cuda_runtime", 1004, 2),
    (ALL_GATHER, "kernel", 1020, 100),
    (GEMM, "kernel", 1125, 80),
    (REDUCE_SCATTER, "kernel", 1230, 60),
]


def events_of(trace, *, origin_ns=BASE_NS):
    """Name, category, start and duration in us."""
    rows = trace.events.to_pylist()
    found = [
        (r["name"], r["category"], (r["start_ns"] - origin_ns) / US, (r["end_ns"] - r["start_ns"]) / US) for r in rows
    ]
    assert all(start == int(start) for _, _, start, _ in found)
    return found


def collectives_of(trace):
    """Kind and duration in us."""
    durations = durations_ns(trace)
    return [(r["kind"], durations[r["event"]] / US) for r in trace.collectives.to_pylist()]


def durations_ns(trace):
    return (trace.events["end_ns"].to_numpy() - trace.events["start_ns"].to_numpy()).tolist()


def shifted(by_us):
    return [(name, category, start + by_us, duration) for name, category, start, duration in CONTROL]


def assert_is_control(trace):
    assert events_of(trace) == CONTROL
    assert collectives_of(trace) == [("ALL_GATHER", 100), ("REDUCE_SCATTER", 60)]
    assert (trace.num_events, trace.num_dropped, trace.is_cut) == (7, 0, False)
