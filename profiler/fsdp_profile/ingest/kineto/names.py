"""Names as torch, NCCL, RCCL and gloo write them: categories, collectives, dtypes, ranks in file names.

NCCL's kernels were `ncclKernel_AllReduce_RING_LL_Sum_float`, are `ncclDevKernel_AllReduce_Sum_f32_RING_LL`,
`ncclSymkDevKernel_...` on symmetric memory, sometimes in lower case; RCCL's are `ncclDevKernel_Generic`.
"""

import re
from pathlib import PurePath
from typing import Final

from fsdp_profile.core.schema import CollectiveKind

PYTHON_FUNCTION: Final = "python_function"
PARAM_COMMS: Final = "record_param_comms"
"""The host's operator that carries the arguments of a collective."""
NCCL_PREFIX: Final = "nccl:"
GLOO_PREFIX: Final = "gloo:"
C10D_PREFIX: Final = "c10d::"
REDUCE_ANNOTATION: Final = "FSDP::post_backward_reduce"
"""FSDP2's annotation around the reduce-scatter of a unit (and, under HSDP, the all-reduce after it)."""

KERNEL_CATEGORIES: Final = frozenset({"kernel", "collective_comm"})
DEVICE_CATEGORIES: Final = KERNEL_CATEGORIES | {
    "gpu_memcpy",
    "gpu_memset",
    "memcpy",
    "memset",
    "gpu_user_annotation",
    "cuda_sync",
    "cuda_event",
}
LAUNCH_CATEGORIES: Final = frozenset(
    {
        "cuda_runtime",
        "cuda_driver",
        "runtime",
        "xpu_runtime",
        "xpu_driver",
        "mtia_runtime",
        "privateuse1_runtime",
    }
)
OPERATOR_CATEGORIES: Final = frozenset({"cpu_op", "operator", "user_annotation"})
HOST_CATEGORIES: Final = (
    OPERATOR_CATEGORIES | LAUNCH_CATEGORIES | {PYTHON_FUNCTION, "cpu_instant_event", "overhead", "trace"}
)

_KINDS: Final = (
    # The longer words first: reduce is in reduce_scatter and all_reduce.
    ("reducescatter", CollectiveKind.REDUCE_SCATTER),
    ("allgather", CollectiveKind.ALL_GATHER),
    ("allreduce", CollectiveKind.ALL_REDUCE),
    ("alltoall", CollectiveKind.ALL_TO_ALL),
    ("broadcast", CollectiveKind.BROADCAST),
    ("barrier", CollectiveKind.BARRIER),
    ("sendrecv", CollectiveKind.SEND_RECV),
    ("reduce", CollectiveKind.REDUCE),
    ("send", CollectiveKind.SEND_RECV),
    ("recv", CollectiveKind.SEND_RECV),
)
_DEEP_EP: Final = re.compile(r"(?<![a-z])ep::(?:internode|intranode)\w*::(\w+)")
"""DeepEP's kernels: dispatch and combine are the two all-to-alls of a mixture of experts."""
_COMMUNICATION_KERNEL: Final = re.compile(
    r"(?:nccl|rccl|msccl|nvshmem|(?:multimem|one_shot|two_shot)_(?:all_|reduce_)|cross_device_reduce)\w*",
    re.IGNORECASE,
)
_CROSS_DEVICE_REDUCE: Final = "cross_device_reduce"
"""vLLM's all-reduce over peer memory."""
_NO_COLLECTIVES: Final = frozenset({"wait", "init"})

_DTYPES: Final = {
    "float": ("float32", 4),
    "double": ("float64", 8),
    "half": ("float16", 2),
    "bfloat16": ("bfloat16", 2),
    "long": ("int64", 8),
    "longint": ("int64", 8),
    "int": ("int32", 4),
    "short": ("int16", 2),
    "shortint": ("int16", 2),
    "char": ("int8", 1),
    "signedchar": ("int8", 1),
    "byte": ("uint8", 1),
    "unsignedchar": ("uint8", 1),
    "bool": ("bool", 1),
    "complexfloat": ("complex64", 8),
    "complexdouble": ("complex128", 16),
    "float8_e4m3fn": ("float8_e4m3fn", 1),
    "float8_e4m3fnuz": ("float8_e4m3fnuz", 1),
    "float8_e5m2": ("float8_e5m2", 1),
    "float8_e5m2fnuz": ("float8_e5m2fnuz", 1),
}

_RANK_IN_NAME: Final = (
    re.compile(r"(?<!local)(?<!local[-_])rank[-_=.]?(\d{1,7})(?!\d)", re.IGNORECASE),
    re.compile(r"(?<![A-Za-z0-9])r(\d{1,7})(?![A-Za-z0-9])", re.IGNORECASE),
    re.compile(r"(?<![A-Za-z])worker[-_]?(\d{1,7})(?!\d)", re.IGNORECASE),
)


def collective_kind(name: str) -> CollectiveKind | None:
    """What a collective of this name is, OTHER when the name does not show it; None when it is not a collective.

    >>> str(collective_kind("_reduce_scatter_base")), str(collective_kind("coalesced"))
    ('REDUCE_SCATTER', 'OTHER')
    >>> collective_kind("wait") is None
    True
    """
    plain = name.lower().replace("_", "")
    if plain in _NO_COLLECTIVES:
        return None
    return next((kind for word, kind in _KINDS if word in plain), CollectiveKind.OTHER)


def kernel_kind(name: str) -> CollectiveKind | None:
    """What a kernel of this name carries, OTHER when the name does not show it; None when it is not a collective.

    >>> str(kernel_kind("ncclSymkDevKernel_ReduceScatter_LL_sum_f32(args)")), kernel_kind("reduce_kernel")
    ('REDUCE_SCATTER', None)
    """
    if expert := _DEEP_EP.search(name):
        is_exchange = expert[1] in {"dispatch", "combine"}
        return CollectiveKind.ALL_TO_ALL if is_exchange else CollectiveKind.OTHER
    found = _COMMUNICATION_KERNEL.search(name)
    if not found:
        return None
    # The identifier only: templates and signatures hold words of their own.
    is_all_reduce = _CROSS_DEVICE_REDUCE in found[0].lower()
    return CollectiveKind.ALL_REDUCE if is_all_reduce else collective_kind(found[0])


def dtype_of(name: str) -> tuple[str, int | None]:
    """Torch's name of a dtype and its bytes; an unknown one as it is, and None.

    >>> dtype_of("c10::BFloat16"), dtype_of("long int"), dtype_of("Packed7")
    (('bfloat16', 2), ('int64', 8), ('Packed7', None))
    """
    plain = name.rpartition("::")[2].replace(" ", "").lower()
    return _DTYPES.get(plain, (name, None))


def rank_in_name(path: PurePath) -> int | None:
    """The rank in the name of a file or of its folder.

    >>> [rank_in_name(PurePath(p)) for p in ("rank-3.json", "r0-2031.1.json", "rank_00002/trace.json")]
    [3, 0, 2]
    >>> rank_in_name(PurePath("host_4242.1700000000.pt.trace.json")) is None
    True
    """
    for text in (path.name, path.parent.name):
        for pattern in _RANK_IN_NAME:
            if found := pattern.search(text):
                return int(found[1])
    return None
