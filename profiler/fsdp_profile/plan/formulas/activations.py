"""Bytes of a transformer's activations, from its sizes.

Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022), equations 1, 2 and 6: in
bf16 a layer keeps 34 s b h bytes, and without a fused attention 5 a s^2 b more; with everything recomputed its input
alone, 2 s b h, and one layer at a time the whole. Dropout masks (2 of the 34) are counted although few models still
have dropout; the logits and the loss are not in the paper's formula and are counted separately.
"""

from dataclasses import dataclass

from fsdp_profile.core.errors import UsageError
from fsdp_profile.core.words import Word

_LAYER_BYTES = 34
_INPUT_BYTES = 2
_SCORE_BYTES = 5


class Checkpointing(Word):
    """What backward recomputes."""

    NONE = "none"
    SELECTIVE = "selective"
    """Attention's scores and their softmax: what a fused attention never keeps."""
    FULL = "full"
    """Everything of a layer but its input."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Transformer:
    """Sizes of a transformer and of its batch on one rank."""

    layers: int
    hidden: int
    seq: int
    batch: int = 1
    """Sequences of one micro-batch on one rank."""
    heads: int | None = None
    """Needed for attention that is not fused."""
    vocab: int | None = None
    """Needed for the logits."""
    is_fused: bool = True
    """Attention never keeps its s x s scores (FlashAttention, scaled_dot_product_attention)."""
    tensor_parallel: int = 1
    """With sequence parallelism: divides everything."""

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "seq", "batch", "heads", "vocab", "tensor_parallel"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"--{name.replace('_', '-')} {value}: give a whole number, 1 or more")

    @property
    def tokens(self) -> int:
        """Tokens of one micro-batch."""
        return self.seq * self.batch


def activation_bytes(model: Transformer, checkpointing: Checkpointing = Checkpointing.NONE) -> int:
    """What is alive at the end of forward (with FULL: while the first layer runs again), logits apart.

    >>> llama = Transformer(layers=32, hidden=4096, seq=1024)
    >>> activation_bytes(llama) / 2**30
    4.25

    Raises:
        UsageError: attention is not fused and the number of heads is not known.
    """
    layer = layer_bytes(model, recomputes_scores=checkpointing is not Checkpointing.NONE)
    if checkpointing is Checkpointing.FULL:
        return (_INPUT_BYTES * model.tokens * model.hidden * model.layers + layer) // model.tensor_parallel
    return layer * model.layers // model.tensor_parallel


def layer_bytes(model: Transformer, *, recomputes_scores: bool) -> int:
    """What one layer keeps when none of it but perhaps the scores is computed again."""
    linear = _LAYER_BYTES * model.tokens * model.hidden
    if model.is_fused or recomputes_scores:
        return linear
    if model.heads is None:
        raise UsageError("attention that is not fused keeps scores: give --heads")
    return linear + _SCORE_BYTES * model.heads * model.seq * model.seq * model.batch


def logit_bytes(model: Transformer) -> int | None:
    """Logits in bf16, and in fp32 with their gradient as cross entropy makes them; None without the vocabulary."""
    return None if model.vocab is None else (2 + 4 + 4) * model.tokens * model.vocab // model.tensor_parallel


def num_params(*, layers: int, hidden: int, vocab: int) -> int:
    """Parameters of a GPT with a tied embedding, by the usual estimate 12 L h^2 + V h."""
    return 12 * layers * hidden * hidden + vocab * hidden
