from analysis.findings.faults import GIB, MIB, gib, told
from builder import RunBuilder

from fsdp_profile.core.schema import NOT_FREED, CollectiveKind


def reserved(run: RunBuilder, size: int, *, stream: int = 0, address: int = 1 << 40) -> None:
    run.row("segments", address=address, size_bytes=size, start_ns=0, end_ns=NOT_FREED, start_event=0,
            end_event=NOT_FREED, stream=stream, pool="0,0", is_expandable=False)  # fmt: skip


def test_freed_but_held_by_a_stream_is_not_activations() -> None:
    """pytorch/torchtitan#735: 13,975 MiB allocated, 18,803 MiB at its peak: record_stream holds the rest."""
    run = RunBuilder().set(device_type="cuda").alloc(at=1, size=13_975 * MIB)
    reserved(run, 4828 * MIB, stream=22)
    run.row("pending_frees", address=1 << 40, size_bytes=4828 * MIB, start_ns=0, end_ns=NOT_FREED, start_event=0,
            end_event=NOT_FREED, stream=22, pool="0,0")  # fmt: skip
    run.totals(reserved=20_000 * MIB, active=18_803 * MIB)
    found = told(run, "pending-frees")
    assert found.claim == (
        "4.71 GiB are freed but held by stream 22: 18.36 GiB active where tensors hold 13.65 GiB. They are not "
        "activations."
    )
    assert "TORCH_NCCL_AVOID_RECORD_STREAMS=1" in found.action
    assert found.saves_bytes == 4828 * MIB


def test_cached_in_pieces_and_for_another_stream() -> None:
    run = RunBuilder().set(device_type="cuda").alloc(at=1, size=GIB)
    for piece in range(8):
        reserved(run, 256 * MIB, address=(1 << 40) + piece * GIB)
    reserved(run, GIB, stream=7, address=1 << 50)
    run.totals(reserved=4 * GIB, active=GIB)
    elsewhere, pieces = told(run, "cached-elsewhere"), told(run, "fragmentation")
    assert elsewhere.claim == "1.00 GiB are cached for stream 7 pool 0,0 and cannot serve stream 0."
    assert pieces.claim == "3.00 GiB of 4.00 GiB reserved are cached, and the largest piece is 1.00 GiB."
    assert pieces.saves_bytes == 2 * GIB
    assert "expandable_segments:True" in pieces.action


def test_what_nvidia_smi_shows_beyond_pytorch() -> None:
    """pytorch/pytorch#147179: 60 live, 22 cached, 96 GB in nvidia-smi; NVIDIA/nccl#964: some 0.6 GB a communicator."""
    run = RunBuilder().set(device_type="cuda").alloc(at=5, size=gib(60))
    run.totals(reserved=gib(82), active=gib(60)).device_sample(5, device_used_bytes=gib(96))
    run.collective(CollectiveKind.ALL_GATHER, 1, 2, group="1", group_description="mesh_shard", group_size=4)
    run.collective(CollectiveKind.ALL_REDUCE, 2, 3, group="2", group_description="mesh_replicate", group_size=2)
    assert told(run, "outside-pytorch").claim == (
        "The device has 96.00 GiB in use: 60.00 GiB live + 22.00 GiB cached + 14.00 GiB outside PyTorch's allocator; "
        "2 communicators (mesh_shard 1, 4 ranks, mesh_replicate 2, 2 ranks)."
    )


def test_other_processes_on_the_device() -> None:
    run = RunBuilder().set(device_type="cuda").alloc(at=5, size=GIB).totals(reserved=GIB, active=GIB)
    run.device_sample(5, device_used_bytes=4 * GIB, process_used_bytes=2 * GIB)
    assert told(run, "other-processes").claim == (
        "Other processes use 2.00 GiB of this rank's device (50.0 % of what is in use)."
    )
