"""What a collective was is found in the arguments, the calls and the names, in that order."""

from ingest.kineto.kineto_factory import BASE_NS, groups, kernel, launch, timed, write

from fsdp_profile.ingest.kineto.reader import read_trace

US = 1000
TENSORS = ["TensorList"]
META = {"dtype": "BFloat16", "Group size": 4, "Process Group Name": "5"}
NO_ARGS = groups(("0", "default_pg", [0, 1, 2, 3]), ("5", "mesh_dp", [0, 1, 2, 3]))


def shapes(dims, types):
    return {"Input Dims": dims, "Input type": types}


def params(ts, kind, external_id, *, n_in=10, n_out=10, dur=8.0, tid=4242, **args):
    """The host's operator with the arguments of a collective."""
    known = {"Collective name": kind, "In msg nelems": n_in, "Out msg nelems": n_out, **META, **args}
    return timed("record_param_comms", ts, dur, tid=tid, **{"External id": external_id, **known})


def rows(tmp_path, events, metadata=NO_ARGS):
    return read_trace(write(tmp_path / "x.json", events, **metadata)).collectives.to_pylist()


def kinds(found):
    return [r["kind"] for r in found]


def test_own_arguments_beat_the_name(tmp_path):
    barrier = {"Collective name": "barrier", "In msg nelems": 1, "Out msg nelems": 1, "Seq": 12, **META}
    [row] = rows(tmp_path, [kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 10.5, 5, **barrier)])
    assert (row["kind"], row["seq"], row["group"], row["group_description"]) == ("BARRIER", 12, "5", "mesh_dp")
    assert row["issue_ns"] is None


def test_a_launch_inside_a_call_finds_it_without_external_id(tmp_path):
    found = rows(
        tmp_path,
        [
            params(100.5, "_allgather_base", 31, n_in=10, n_out=40),
            launch(104.5, 7),
            kernel("ncclDevKernel_Generic_1", 110.5, 5, correlation=7),
            params(200.5, "_reduce_scatter_base", 32, n_in=40, n_out=10),
            launch(204.5, 8, tid=1),  # another thread: not launched by that call
            kernel("ncclDevKernel_Generic_1", 210.5, 5, correlation=8),
        ],
    )
    assert kinds(found) == ["ALL_GATHER", "OTHER"]
    assert [r["size_bytes"] for r in found] == [80, None]
    assert [r["issue_ns"] for r in found] == [BASE_NS + 100_500, BASE_NS + 204_500]


def test_the_innermost_call_counts_and_a_wait_is_none(tmp_path):
    found = rows(
        tmp_path,
        [
            params(100.5, "allreduce_coalesced", 31, dur=50.0),
            params(110.5, "broadcast", 32, dur=20.0),
            params(112.5, "wait", 33, dur=10.0),
            launch(114.5, 7),
            kernel("ncclDevKernel_Generic", 150.5, 5, correlation=7),
            launch(140.5, 8),
            kernel("ncclDevKernel_Generic", 160.5, 5, correlation=8),
        ],
    )
    assert kinds(found) == ["BROADCAST", "ALL_REDUCE"]


def test_an_external_id_of_a_later_call_is_not_taken(tmp_path):
    events = [kernel("ncclDevKernel_Generic", 10.5, 5, **{"External id": 31}), params(100.5, "broadcast", 31)]
    assert kinds(rows(tmp_path, events)) == ["OTHER"]


def test_old_traces_tell_by_the_annotation_around_the_launch(tmp_path):
    annotation = timed("nccl:all_to_all", 99.5, 10, cat="user_annotation", **shapes([[8, 16]], ["float"]))
    events = [
        annotation,
        launch(104.5, 7),
        kernel("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", 110.5, 5, correlation=7),
    ]
    [row] = rows(tmp_path, events, {})
    assert (row["kind"], row["dtype"], row["in_numel"], row["size_bytes"]) == ("ALL_TO_ALL", "float32", 128, 512)
    assert (row["group"], row["group_size"], row["issue_ns"]) == (None, None, BASE_NS + 99_500)


def test_annotations_are_no_collectives(tmp_path):
    events = [
        timed("nccl:all_reduce", 10.5, 5, cat="user_annotation"),
        timed("nccl:all_reduce", 20.5, 5, cat="gpu_user_annotation", pid=0, tid=20),
        params(30.5, "allreduce", 3),
        timed("c10d::allreduce_", 30.5, 5),
    ]
    assert rows(tmp_path, events) == []


def test_kernels_of_other_libraries(tmp_path):
    names = [
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
        "void deep_ep::internode::dispatch<false, 8>(int4*)",
        "void deep_ep::intranode::combine<__nv_bfloat16, 8>(__nv_bfloat16*)",
        "void deep_ep::internode::notify_dispatch<false, 8>(int const*)",
        "nvshmemi_barrier_kernel",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(float)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float>(float)",
    ]
    found = rows(tmp_path, [kernel(name, 10.5 + i, 0.5) for i, name in enumerate(names)])
    assert kinds(found) == ["ALL_REDUCE", "ALL_REDUCE", "ALL_TO_ALL", "ALL_TO_ALL", "OTHER", "BARRIER"]


def test_sizes_are_of_the_whole_array(tmp_path):
    def sized(number, kind, n_in, n_out, **args):
        known = {"Collective name": kind, "In msg nelems": n_in, "Out msg nelems": n_out, **META, **args}
        return kernel("ncclDevKernel_Generic", number + 0.5, 0.25, **known)

    found = rows(
        tmp_path,
        [
            sized(1, "_allgather_base", 10, 40),
            sized(2, "all_gather", 10, 10),  # a list of outputs is told as one of them
            sized(3, "_reduce_scatter_base", 40, 10),
            sized(4, "allreduce", 40, 40, dtype="Float"),
            sized(5, "all_to_all", 40, 40, dtype="Packed7"),
            sized(6, "broadcast", 0, 40, dtype="c10::Half"),
        ],
    )
    assert [r["size_bytes"] for r in found] == [80, 80, 80, 160, None, 80]
    assert [r["dtype"] for r in found] == ["bfloat16", "bfloat16", "bfloat16", "float32", "Packed7", "float16"]


def test_the_only_group_is_the_one_meant(tmp_path):
    one = groups(("0", "default_pg", [0, 1]))
    [row] = rows(tmp_path, [kernel("ncclDevKernel_AllGather_RING_LL", 1.5, 2)], one)
    assert (row["group"], row["group_size"], row["group_description"]) == ("0", 2, "default_pg")
    [row] = rows(tmp_path, [kernel("ncclDevKernel_AllGather_RING_LL", 1.5, 2)])
    assert (row["group"], row["group_size"], row["group_description"]) == (None, None, None)


def gloo(name, ts, dur, numel, *, tid=4250):
    return timed(f"gloo:{name}", ts, dur, cat="user_annotation", tid=tid, **shapes([[numel]], ["float"]))


def test_gloo_takes_the_kind_of_the_call_it_can_carry(tmp_path):
    # HSDP: reduce-scatter, then all-reduce of the shard, on threads of two groups that overtake each other
    found = rows(
        tmp_path,
        [
            timed("c10d::_allgather_base_", 100.5, 9, **shapes([[544], [272], []], ["float", "float", ""])),
            gloo("all_gather", 105.5, 20, 272),
            timed("c10d::_reduce_scatter_base_", 200.5, 9, **shapes([[272], [544], []], ["float", "float", ""])),
            timed("c10d::allreduce_", 210.5, 9, **shapes([[[200], [72]], []], [*TENSORS, ""])),
            gloo("all_reduce", 215.5, 20, 272, tid=4251),
            gloo("all_reduce", 216.5, 25, 544),
            timed("c10d::barrier", 300.5, 9),
            gloo("all_reduce", 310.5, 2, 7),  # with no call that fits
            gloo("barrier", 311.5, 2, 1),
        ],
    )
    assert [(r["kind"], r["in_numel"], r["out_numel"], r["size_bytes"], r["group_size"]) for r in found] == [
        ("ALL_GATHER", 272, 544, 2176, 2),
        ("ALL_REDUCE", 272, 272, 1088, None),
        ("REDUCE_SCATTER", 544, 272, 2176, 2),
        ("BARRIER", 7, None, 28, None),
        ("BARRIER", 1, None, 4, None),
    ]
    assert [r["issue_ns"] for r in found] == [
        None if ts is None else BASE_NS + ts for ts in (100_500, 210_500, 200_500, 300_500, None)
    ]


def test_gloo_call_is_not_after_its_transport(tmp_path):
    events = [gloo("all_reduce", 5.5, 1, 8), timed("c10d::_reduce_scatter_base_", 6.5, 1)]
    assert kinds(rows(tmp_path, events)) == ["ALL_REDUCE"]


def test_gloo_without_operators_first_all_reduce_of_a_reduction_scatters(tmp_path):
    def annotated(ts, dur):
        return timed("FSDP::post_backward_reduce (layers.0)", ts, dur, cat="user_annotation")

    found = rows(
        tmp_path,
        [
            annotated(100.5, 40),
            gloo("all_reduce", 105.5, 10, 544),
            gloo("all_reduce", 120.5, 10, 272),
            annotated(200.5, 40),
            gloo("all_reduce", 205.5, 10, 544),
            gloo("all_reduce", 300.5, 10, 1),
        ],
    )
    assert kinds(found) == ["REDUCE_SCATTER", "ALL_REDUCE", "REDUCE_SCATTER", "ALL_REDUCE"]
    assert [r["issue_ns"] for r in found] == [None] * 4


def test_collectives_are_by_start(tmp_path):
    names = ["ncclDevKernel_Broadcast", "ncclDevKernel_AllGather", "ncclDevKernel_AllReduce"]
    events = [kernel(name, ts, 1) for name, ts in zip(names, (30.5, 10.5, 20.5), strict=True)]
    found = rows(tmp_path, events)
    assert kinds(found) == ["ALL_GATHER", "ALL_REDUCE", "BROADCAST"]
    assert [r["event"] for r in found] == [1, 2, 0]
