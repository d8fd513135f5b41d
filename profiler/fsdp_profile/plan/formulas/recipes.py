"""How many bytes a parameter costs: the dtypes of parameters, gradients and optimizer states.

[Note: Two recipes for mixed precision] Megatron and DeepSpeed keep bf16 parameters and gradients beside an fp32
master copy that the optimizer owns (2 + 2 + 12). PyTorch's own FSDP2 keeps fp32 shards and gathers bf16 copies of one
unit at a time (4 + 4 + 8). Both are 16 bytes a parameter; what is divided, and what is transient, differs.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from fsdp_profile.core.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """Bytes of one parameter."""

    name: str
    what: str
    param_bytes: float
    """Kept."""
    grad_bytes: float
    """Kept, once reduced."""
    optimizer: tuple[tuple[str, float], ...]
    """Each state's name and bytes."""
    compute_bytes: float
    """In the dtype that is gathered and multiplied."""
    reduce_bytes: float
    """In the dtype gradients are reduced in."""
    bucket_bytes: float = 0
    """DDP's buckets beside the gradients; 0 where gradients are views into them, or another engine reduces."""
    cast_bytes: float = 0
    """Copies in compute dtype that autocast keeps from forward to backward, where parameters are not gathered."""
    frozen_bytes: float | None = None
    """Of a parameter that is not trained (LoRA); None: all are trained."""
    source: str

    @property
    def optimizer_bytes(self) -> float:
        """All states of one parameter."""
        return sum(size for _, size in self.optimizer)


_MASTER = (("fp32 master copy", 4.0), ("momentum", 4.0), ("variance", 4.0))
_ADAM = (("momentum", 4.0), ("variance", 4.0))
_ZERO = "ZeRO (Rajbhandari et al., 2020), section 3.1: 2 + 2 + K, K = 12 for Adam"
_BLOCKS = 2048
"""Elements that share one scale in bitsandbytes' first 8-bit optimizers; 256 since 0.43: then 8/256 bytes."""
_QLORA_BYTES = 0.5 + (8 / 64 + 32 / (64 * 256)) / 8
"""NF4: 4 bits, and of the scales 8 bits for 64 elements and 32 bits for 256 of those."""

_ALL = (
    Recipe(
        name="mixed-adamw", what="bf16 parameters and gradients, fp32 master copy and AdamW (2+2+4+4+4)",
        param_bytes=2, grad_bytes=2, optimizer=_MASTER, compute_bytes=2, reduce_bytes=2, source=_ZERO,
    ),
    Recipe(
        name="fp32", what="everything fp32, AdamW (4+4+8)",
        param_bytes=4, grad_bytes=4, optimizer=_ADAM, compute_bytes=4, reduce_bytes=4, bucket_bytes=4,
        source="torch.optim.AdamW: exp_avg and exp_avg_sq like the parameter",
    ),
    Recipe(
        name="fsdp2-mixed", what="FSDP2 MixedPrecisionPolicy: fp32 shards, bf16 gathered, fp32 reduced (4+4+8)",
        param_bytes=4, grad_bytes=4, optimizer=_ADAM, compute_bytes=2, reduce_bytes=4, bucket_bytes=4, cast_bytes=2,
        source="torch.distributed.fsdp.MixedPrecisionPolicy(param_dtype=bf16, reduce_dtype=fp32)",
    ),
    Recipe(
        name="autocast-ddp", what="DDP under autocast: fp32 states and buckets, bf16 copies cast in forward (4+4+8)",
        param_bytes=4, grad_bytes=4, optimizer=_ADAM, compute_bytes=4, reduce_bytes=4, bucket_bytes=4, cast_bytes=2,
        source="torch.autocast's weight cache; DDP without gradient_as_bucket_view",
    ),
    Recipe(
        name="bf16-pure", what="everything bf16, AdamW too (2+2+4)",
        param_bytes=2, grad_bytes=2, optimizer=(("momentum", 2.0), ("variance", 2.0)), compute_bytes=2,
        reduce_bytes=2, bucket_bytes=2, source="torch.optim.AdamW on bf16 parameters",
    ),
    Recipe(
        name="sgd", what="everything fp32, SGD without momentum (4+4)",
        param_bytes=4, grad_bytes=4, optimizer=(), compute_bytes=4, reduce_bytes=4, bucket_bytes=4,
        source="torch.optim.SGD keeps no state",
    ),
    Recipe(
        name="sgd-momentum", what="everything fp32, SGD with momentum (4+4+4)",
        param_bytes=4, grad_bytes=4, optimizer=(("momentum", 4.0),), compute_bytes=4, reduce_bytes=4, bucket_bytes=4,
        source="torch.optim.SGD: momentum_buffer like the parameter",
    ),
    Recipe(
        name="adam-8bit", what="bf16 parameters and gradients, 8-bit Adam (2+2+2, and the scales of its blocks)",
        param_bytes=2, grad_bytes=2,
        optimizer=(("momentum", 1.0), ("variance", 1.0), ("scales", 8 / _BLOCKS)), compute_bytes=2, reduce_bytes=2,
        bucket_bytes=2, source="8-bit Optimizers (Dettmers et al., 2022): blocks of 2048 elements, one fp32 scale each",
    ),
    Recipe(
        name="lora", what="frozen bf16 base (2), trained adapters with fp32 master copy and AdamW (2+2+12)",
        param_bytes=2, grad_bytes=2, optimizer=_MASTER, compute_bytes=2, reduce_bytes=2, frozen_bytes=2,
        source="LoRA (Hu et al., 2021): only adapters have gradients and states",
    ),
    Recipe(
        name="qlora", what="frozen NF4 base (0.516), trained adapters with fp32 master copy and AdamW (2+2+12)",
        param_bytes=2, grad_bytes=2, optimizer=_MASTER, compute_bytes=2, reduce_bytes=2, frozen_bytes=_QLORA_BYTES,
        source="QLoRA (Dettmers et al., 2023): NF4 with double quantisation, 0.127 bits a parameter of scales",
    ),
)  # fmt: skip

RECIPES: Final = MappingProxyType({recipe.name: recipe for recipe in _ALL})

DEFAULT_RECIPE: Final = "mixed-adamw"


def find_recipe(name: str) -> Recipe:
    """The recipe of a name.

    Raises:
        UsageError: there is none.
    """
    if name not in RECIPES:
        raise UsageError(f"--recipe {name}: not known; choose one of {', '.join(RECIPES)}")
    return RECIPES[name]
