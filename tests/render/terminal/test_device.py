"""The waterfall, the post-mortem and growth as printed."""

from builder import RunBuilder
from render.terminal.samples import printed

from fsdp_profile.analysis.memory.device_waterfall import waterfall
from fsdp_profile.analysis.memory.growth import growth, kept_unsharded
from fsdp_profile.analysis.memory.host_states import host_states
from fsdp_profile.analysis.memory.postmortem import post_mortems
from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import NOT_FREED, SpanKind
from fsdp_profile.render.terminal.growth import growth_report
from fsdp_profile.render.terminal.host_states import host_states_report
from fsdp_profile.render.terminal.postmortem import postmortem_report
from fsdp_profile.render.terminal.waterfall import waterfall_report

MIB = 1 << 20


def lines(drawn, width=80):
    return [line.rstrip() for line in printed(drawn, width=width).splitlines()]


def device_run():
    run = RunBuilder().set(device_type="cuda").unit("layers.0")
    run.alloc(at=5, size=10 * MIB, unit=0).alloc(at=6, free=60, size=2 * MIB, category=Category.BUCKET)
    run.row("segments", address=1 << 30, size_bytes=4 * MIB, start_ns=0, end_ns=NOT_FREED, start_event=0,
            end_event=NOT_FREED, stream=7, pool="0,0", is_expandable=False)  # fmt: skip
    run.totals(reserved=20 * MIB, active=13 * MIB)
    return run.device_sample(6, device_used_bytes=90 * MIB, process_used_bytes=40 * MIB, device_total_bytes=100 * MIB)


def test_the_waterfall_adds_up_from_what_tensors_hold_to_what_nvidia_smi_says():
    assert lines(waterfall_report(waterfall(device_run().build(), rank=0))) == [
        "Device  rank 0, at the peak",
        "level                              bytes  what it is",
        "────────────────────────────────────────────────────────────────────────────────",
        "allocated                      12.00 MiB  by tensors: the sum of all categories",
        "+ freed but held by a stream    1.00 MiB  freed while a stream still used it",
        "+ cached                        7.00 MiB  reserved, in no block",
        "= reserved                     20.00 MiB  by PyTorch's caching allocator",
        "+ outside PyTorch              70.00 MiB  not from PyTorch's allocator",
        "   of it this process          20.00 MiB  CUDA context, communicators, libraries",
        "   of it other processes       50.00 MiB  on the same device",
        "= device used                  90.00 MiB  as NVML and nvidia-smi report",
        "device size                   100.00 MiB",
        "",
        "stream  pool  reserved  in blocks  held by a stream    cached  largest free",
        "───────────────────────────────────────────────────────────────────────────",
        "7       0,0   4.00 MiB        0 B               0 B  4.00 MiB      4.00 MiB",
        "",
        "Cached: reserved by the allocator and in no block; only allocations of the same",
        "stream and pool can use it.",
    ]
    assert waterfall_report(None) is None


def test_the_post_mortem_names_the_rank_the_request_and_the_remedies():
    run = device_run().row("ooms", t_ns=6, event=1, asked_bytes=64 * MIB, device_free_bytes=3 * MIB, stream=0)
    page = lines(postmortem_report(post_mortems(run.build())), width=100)
    assert page[:4] == [
        "Out of memory. Rank 0 asked for 64.00 MiB, in forward of step 0, with 12.00 MiB allocated. The",
        "largest free block in the allocator's pools was 4.00 MiB; the device had 3.00 MiB free.",
        "",
        "Live at that moment: 12.00 MiB allocated on rank 0  forward of step 0",
    ]
    device = page.index("Device  rank 0, when the allocation failed")
    assert page[device + 4 : device + 6] == [
        "+ freed but held by a stream    1.00 MiB  freed while a stream still used it",
        "+ cached                        7.00 MiB  reserved, in no block",
    ]
    assert page[page.index("Remedies  what each would save alone; the savings do not add up") + 1 :] == [
        "- 50.00 MiB (measured): other processes use this device: end them",
        "- 5.00 MiB (estimate): half the batch: activations and inputs halve",
        "- 3.00 MiB (estimate): PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: cached, but in pieces or in",
        "  other streams' pools",
        "- 2.00 MiB (measured): gradient_as_bucket_view=True: gradients live in the buckets",
        "- 1.00 MiB (measured): TORCH_NCCL_AVOID_RECORD_STREAMS=1: freed, but a stream still holds it",
    ]
    assert postmortem_report([]) is None


def test_what_is_kept_on_the_host_is_told_apart():
    run = device_run()
    for category, is_pinned, size in (("OPTIMIZER_STATE", False, 8), ("PARAM", True, 4)):
        run.row("host_states", t_ns=50, step=0, category=category, is_pinned=is_pinned, size_bytes=size * MIB)
    assert lines(host_states_report(host_states(run.build(), rank=0))) == [
        "On the host 12.00 MiB  rank 0, after step 0; not on the device",
        "   category             bytes",
        "─────────────────────────────",
        "O  optimizer state   8.00 MiB",
        "P  parameters        4.00 MiB",
        "─────────────────────────────",
        "   total            12.00 MiB",
        "   pinned            4.00 MiB",
    ]
    assert host_states_report(host_states(device_run().build(), rank=0)) is None


def test_growth_says_how_much_a_step_and_from_where():
    run = RunBuilder().unit("a")
    for step in range(6):
        run.step(step, 100 * step, 100 * step + 100)
        run.alloc(at=100 * step + 10, size=MIB, operator="aten::clone", unit=0)
    run.span(0, SpanKind.UNSHARDED, 10, 40).alloc(
        at=10, free=190, size=4 * MIB, category=Category.UNSHARDED_PARAM, unit=0
    )
    found = run.build()
    report = growth_report(growth(found, rank=0), kept_unsharded(found, rank=0), unit_names={0: "a"})
    assert lines(report) == [
        "Live bytes of activations grow by 1.00 MiB a step: 2.00 MiB after step 1, 6.00",
        "MiB after step 5.",
        "These blocks outlived their step.",
        "per step  blocks  phase    unit  tensor  allocated by",
        "─────────────────────────────────────────────────────",
        "1.00 MiB       4  forward  a     -       aten::clone",
        "",
        "Kept unsharded",
        "- a: 4.00 MiB of its gathered parameters are still in memory at the end of step",
        "  0, after its reshard; something refers to them.",
    ]
    assert growth_report([], [], unit_names={}) is None
