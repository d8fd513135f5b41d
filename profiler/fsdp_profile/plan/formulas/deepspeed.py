"""DeepSpeed's own estimates of model states, offloading included, in its formulas.

As in deepspeed/runtime/zero/stage_1_and_2.py and stage3.py (`estimate_zero2_model_states_mem_needs`,
`estimate_zero3_model_states_mem_needs`). They keep fp32 gradients and let ZeRO-2 hold 4 bytes of every parameter, so
that they are not the formulas of the ZeRO paper. One node of `gpus` ranks each.
"""

from dataclasses import dataclass
from typing import Final

from fsdp_profile.core.words import Word

BUFFER_FACTOR: Final = 1.5
"""DeepSpeed's `additional_buffer_factor`: on the host only."""


class Offload(Word):
    """What lies on the host."""

    NONE = "none"
    OPTIMIZER = "optimizer"
    ALL = "all"
    """Optimizer states and parameters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Needs:
    """Bytes of one rank's device, and of one node's host memory."""

    device_bytes: int
    host_bytes: int


def zero2_needs(numel: int, *, gpus: int, nodes: int = 1, offload: Offload = Offload.NONE) -> Needs:
    """Of ZeRO-2; with the optimizer on the host or not.

    >>> needs = zero2_needs(2_851_000_000, gpus=8)
    >>> round(needs.device_bytes / 2**30, 2)
    15.93
    """
    if offload is Offload.NONE:
        host = numel * 4 * gpus
        return Needs(device_bytes=4 * numel + 16 * numel // (gpus * nodes), host_bytes=int(host * BUFFER_FACTOR))
    host = numel * max(4 * gpus * nodes, 16)
    return Needs(device_bytes=2 * numel, host_bytes=int(host * BUFFER_FACTOR))


def zero3_needs(
    numel: int, *, largest_layer: int, gpus: int, nodes: int = 1, offload: Offload = Offload.NONE,
    zero_init: bool = True,
) -> Needs:  # fmt: skip
    """Of ZeRO-3. `zero_init`: the model was made inside `zero.Init`, never whole on one rank."""
    layer, share = 4 * largest_layer, 1 / nodes
    match offload:
        case Offload.NONE:
            device = layer + 18 * numel // (gpus * nodes)
            host = largest_layer * 4.0 * gpus if zero_init else numel * 4.0 * gpus
        case Offload.OPTIMIZER:
            device = layer + 2 * numel // (gpus * nodes)
            host = numel * (16 * share if zero_init else max(4 * gpus, 16 * share))
        case Offload.ALL:
            device = layer
            host = numel * (18 * share if zero_init else max(4 * gpus, 18 * share))
    return Needs(device_bytes=device, host_bytes=int(host * BUFFER_FACTOR))
