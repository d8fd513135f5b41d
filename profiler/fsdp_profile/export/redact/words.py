"""Which words of a run may leave this machine: those that this project, torch or a vendor defined.

Anything else may tell of a person, a machine or a project, and becomes a pseudonym or nothing. So a word that nobody
thought of is removed.
"""

import hashlib
import hmac
import re
from enum import Enum
from typing import Final

from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import Basis, CollectiveKind, Phase, Prefetch, SpanKind, Strategy, UnitKind

ENUMS: Final[dict[str, tuple[type[Enum], ...]]] = {
    "phase": (Phase,),
    "category": (Category,),
    "basis": (Basis,),
    "kind": (SpanKind, UnitKind, CollectiveKind),
    "prefetch": (Prefetch,),
}
"""Column -> whose members its words are."""

PATTERNS: Final = {
    "dtype": re.compile(r"(b?float|u?int|bool|complex)\d{0,3}(_e\dm\d\w{0,6})?"),
    "compute_dtype": re.compile(r"(b?float|u?int|bool|complex)\d{0,3}(_e\dm\d\w{0,6})?"),
    "reshard_after_forward": re.compile(r"yes|no|\d{1,6}"),
    "sharding": re.compile(r"FULL_SHARD|SHARD_GRAD_OP|NO_SHARD|HYBRID_SHARD|_HYBRID_SHARD_ZERO2"),
    "pool": re.compile(r"[\d,]{1,40}"),
}
"""Column -> what a word in it may look like."""

_OPERATOR: Final = re.compile(
    r"(aten|c10d|gloo|nccl|c10|prim|prims|torch|fsdp|_c10d_functional)::?\w{1,80}(\.\w{1,20})?"
    r"|FSDP::\w{1,40}|ProfilerStep#\d+|PythonSubclass|PythonDispatchMode|\[memory\]"
    r"|nccl(Dev)?Kernel\w*(\([\w, *]*\))?|(Memcpy|Memset) ?[\w ()>-]{0,40}"
    r"|(void )?at::(native|cuda)::[\w:<>(), *&{}\[\]#.+-]{1,4000}"
    r"|(ampere|volta|turing|sm\d\d|cutlass|cublas|cublasLt|cudnn|nvjet|triton_(poi|per|red|tem)_fused)\w*"
    r"|(autograd::engine::evaluate_function: )?(torch::autograd::AccumulateGrad|\w{1,60}Backward\d{1,2})"
)
_LABEL: Final = re.compile(r"(FSDP::\w{1,40}) (?:for )?\(?([\w.]*)\)?")
_OPTIMIZER_STEP: Final = re.compile(r"Optimizer\.(?:step|zero_grad)#(\w*)\.(?:step|zero_grad)")
_GROUP: Final = re.compile(r"\d{1,6}|default_pg|undefined|mesh_(default|shard|replicate|dp|fsdp|ddp|tp|pp|cp|ep)")
_DEVICE: Final = re.compile(
    r"(x86_64|aarch64|arm64|i386|cpu|cuda:?\d*)|(NVIDIA|Tesla|GeForce|Quadro|AMD|Instinct|Intel)( [\w()-]{1,20}){0,8}"
)
_VERSION: Final = re.compile(r"(\d+(?:\.\w{1,8})*)(\+(?:cpu|cu\d+|rocm[\d.]+))?")
_OUR_NAMES: Final = frozenset({
    "", "(root)", "UNSHARDED_PARAM", "PARAM", "INPUT", "ALL_GATHER", "UNSHARDED_GRAD", "REDUCE_SCATTER",
    "GRAD", "OPTIMIZER_STATE", "BUCKET", "BUFFER", "held by the script", "weight", "bias", "step", "exp_avg",
    "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "square_avg",
})  # fmt: skip
_STRATEGY_WORDS: Final = frozenset({
    *(str(s) for s in Strategy), "reshard", "after", "forward", "reshard_after_forward", "True", "False", "units",
    "unit", "ranks", "rank", "bucket", "buckets", "x", "mesh", "of", "over", "mixed", "imported", "replicas", "shards",
    "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2", "and", "with", "yes", "no",
})  # fmt: skip
_OPTIMIZERS: Final = frozenset({
    "Adam", "AdamW", "SGD", "Adagrad", "Adadelta", "Adamax", "RMSprop", "Rprop", "NAdam", "RAdam", "LBFGS", "Adafactor",
    "SparseAdam", "ASGD", "Muon", "ZeroRedundancyOptimizer",
})  # fmt: skip
_REASONS: Final = frozenset({
    "no NVIDIA driver", "the CPU allocator has no reserved pool", "switched off or no step in the window",
    "none were seen", "no FSDP or DDP module was seen", "the ranks did not end", "none among the files",
    "not in imported files", "the ranks ran on CPU",
})  # fmt: skip
_PSEUDONYM_DIGITS: Final = 8


def pseudonym(kind: str, word: str, key: str) -> str:
    """The same for the same word and key, and telling nothing of it to who cannot guess the word (with a key: at all).

    >>> pseudonym("host", "node-17", "") == pseudonym("host", "node-17", ""), pseudonym("host", "a", "k")[:5]
    (True, 'host_')
    """
    digest = hmac.new(f"fsdp-profile {kind} {key}".encode(), word.encode("utf-8", "surrogatepass"), hashlib.sha256)
    return f"{kind}_{digest.hexdigest()[:_PSEUDONYM_DIGITS]}"


def module_path(name: str, key: str) -> str:
    """A module path with every name in it replaced; numbers and our own words stay.

    >>> module_path("", ""), module_path("bucket 3", ""), module_path("layers.3", "").split(".")[1]
    ('', 'bucket 3', '3')
    """
    if name in _OUR_NAMES or re.fullmatch(r"bucket \d+", name):
        return name
    return ".".join(
        part if part.isdecimal() or part in _OUR_NAMES else pseudonym("m", part, key) for part in name.split(".")
    )


def operator(name: str, key: str, *, hide_modules: bool) -> str:
    """An operator's or kernel's name if torch or a vendor made it up, else a pseudonym.

    >>> operator("aten::mm", "", hide_modules=True), operator("my secret range", "", hide_modules=False)[:3]
    ('aten::mm', 'op_')
    """
    label = _LABEL.fullmatch(name)
    if label is not None:
        return f"{label[1]} ({module_path(label[2], key)})" if hide_modules else name
    step = _OPTIMIZER_STEP.fullmatch(name)
    if step is not None:
        return name if step[1] in _OPTIMIZERS else f"Optimizer.step#{optimizer(step[1])}.step"
    if name == "" or _OPERATOR.fullmatch(name):
        return name
    return pseudonym("op", name, key)


def group(name: str, key: str) -> str:
    """A process group's name or description if torch made it up, else a pseudonym."""
    return name if name == "" or _GROUP.fullmatch(name) else pseudonym("group", name, key)


def device(name: str) -> str:
    """A device's name if a vendor made it up."""
    return name if _DEVICE.fullmatch(name) else ""


def version(text: str) -> str:
    """A version without a label of whoever built it.

    >>> version("2.13.0+cpu"), version("2.5.0+acme.internal"), version("secret")
    ('2.13.0+cpu', '2.5.0', '')
    """
    found = _VERSION.match(text)
    return (found[1] + (found[2] or "")) if found else ""


def reason(text: str) -> str:
    """Why something was not recorded, if it is one of our own sentences."""
    for prefix in ("not recorded: ", "imported: "):
        if text.startswith(prefix):
            rest = text.removeprefix(prefix)
            is_kept = rest in _REASONS or (prefix == "imported: " and rest.isdecimal())
            return prefix + (rest if is_kept else "the reason was removed")
    return text if text in _REASONS or text == "recorded" else "the reason was removed"


def strategy_detail(text: str, otherwise: str) -> str:
    """The strategy in words, if all of them are ours."""
    return text if set(re.findall(r"[^\W\d]\w*", text)) <= _STRATEGY_WORDS else otherwise


def optimizer(name: str) -> str:
    """An optimizer's class if it is torch's."""
    return name if name in _OPTIMIZERS else "optimizer"
