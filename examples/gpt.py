"""A small GPT, its sizes and its data: what the training scripts beside this file share.

The model knows nothing of how it is spread over ranks. Its blocks are `layers.0`, `layers.1`, ...,
and every parameter's first dimension divides evenly by 2 and by 4 in all presets, so that FSDP2
shards carry no padding there.
"""

import argparse
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

INIT_STD = 0.02  # GPT-2's: the first loss is then close to log(vocab_size)
MLP_RATIO = 4  # width of the MLP over the width of the residual stream


@dataclass(frozen=True, kw_only=True, slots=True)
class GPTConfig:
    """Sizes of a GPT."""

    vocab_size: int
    seq_len: int
    """Tokens the model is given at once; also the number of learned positions."""
    dim: int
    """Width of the residual stream; a multiple of num_heads."""
    num_layers: int
    num_heads: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Preset:
    """A model and the batch it is usually trained with."""

    config: GPTConfig
    batch_size: int
    """Sequences per rank and step."""


PRESETS = {
    "toy": Preset(config=GPTConfig(vocab_size=512, seq_len=64, dim=128, num_layers=4, num_heads=4), batch_size=4),
    "125m": Preset(
        config=GPTConfig(vocab_size=25_600, seq_len=1024, dim=768, num_layers=12, num_heads=12), batch_size=4
    ),
    "3b": Preset(
        config=GPTConfig(vocab_size=50_304, seq_len=2048, dim=3072, num_layers=24, num_heads=24), batch_size=1
    ),
}


class CausalSelfAttention(nn.Module):
    """Every token looks at itself and at the tokens before it."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.qkv = nn.Linear(config.dim, 3 * config.dim, bias=False)
        self.out = nn.Linear(config.dim, config.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """What attention adds to the residual stream, (batch, seq, dim) like x."""
        batch_size, seq_len, dim = x.shape
        # (batch, seq, 3 * dim) -> three of (batch, heads, seq, head_dim)
        qkv = self.qkv(x).view(batch_size, seq_len, 3, self.num_heads, dim // self.num_heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        attended = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        merged: Tensor = self.out(attended.transpose(1, 2).reshape(batch_size, seq_len, dim))
        return merged


class Block(nn.Module):
    """Pre-norm transformer block: attention, then MLP, each added to the residual stream.

    This is the unit that the sharding scripts gather, use and reshard.
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.dim)
        self.attention = CausalSelfAttention(config)
        self.mlp_norm = nn.LayerNorm(config.dim)
        self.mlp = nn.Sequential(
            nn.Linear(config.dim, MLP_RATIO * config.dim, bias=False),
            nn.GELU(),
            nn.Linear(MLP_RATIO * config.dim, config.dim, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        """The residual stream after this block, (batch, seq, dim) as before it."""
        with_attention: Tensor = x + self.attention(self.attention_norm(x))
        with_mlp: Tensor = with_attention + self.mlp(self.mlp_norm(with_attention))
        return with_mlp


class GPT(nn.Module):
    """Tokens in, logits of the next token out. The head is not tied to the token embedding."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(config.vocab_size, config.dim)
        self.position_embedding = nn.Embedding(config.seq_len, config.dim)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = nn.LayerNorm(config.dim)
        self.lm_head = nn.Linear(config.dim, config.vocab_size, bias=False)
        self.apply(init_weights)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (batch, seq, vocab) for tokens (batch, seq) of at most `seq_len` positions."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token_embedding(tokens) + self.position_embedding(positions)
        for layer in self.layers:
            x = layer(x)
        logits: Tensor = self.lm_head(self.norm(x))
        return logits


def init_weights(module: nn.Module) -> None:
    """Draw the weights of a linear layer or an embedding; leave the norms at one and zero."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=INIT_STD)


def next_token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy, taken in fp32 whatever dtype the logits have."""
    return nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def random_batches(
    preset: Preset, *, steps: int, seed: int, rank: int, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """One (tokens, targets) pair per step, each (batch, seq); seed, rank and step decide the data.

    A sequence counts up from a random start, modulo vocab_size: synthetic, so that no data set is
    needed, and still something to learn.
    """
    vocab_size, seq_len = preset.config.vocab_size, preset.config.seq_len
    generator = torch.Generator().manual_seed(seed + rank)
    for _ in range(steps):
        start = torch.randint(vocab_size, (preset.batch_size, 1), generator=generator)
        sequence = ((start + torch.arange(seq_len + 1)) % vocab_size).to(device)
        yield sequence[:, :-1], sequence[:, 1:]


def pick_device() -> tuple[torch.device, str]:
    """This rank's device and the backend that connects it: its own GPU and nccl, else CPU and gloo.

    Expects LOCAL_RANK in the environment, as torchrun sets it.
    """
    if not torch.cuda.is_available():
        return torch.device("cpu"), "gloo"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device, "nccl"


def compute_dtype(device: torch.device) -> torch.dtype:
    """Dtype of forward and backward: bf16 on a GPU, fp32 on CPU, where strategies can be compared exactly."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags all scripts share: sizes of the model, length of the training."""
    sizes = parser.add_argument_group("model", "a preset, and what to change in it")
    sizes.add_argument("--preset", choices=PRESETS, default="toy", help="default: %(default)s")
    sizes.add_argument("--vocab", type=int, metavar="N", help="size of the vocabulary")
    sizes.add_argument("--seq-len", type=int, metavar="N", help="tokens in a sequence")
    sizes.add_argument("--dim", type=int, metavar="N", help="width of the residual stream")
    sizes.add_argument("--layers", type=int, metavar="N", help="number of blocks")
    sizes.add_argument("--heads", type=int, metavar="N", help="attention heads; must divide --dim")
    sizes.add_argument("--batch", type=int, metavar="N", help="sequences per rank and step")

    training = parser.add_argument_group("training")
    training.add_argument("--steps", type=int, default=5, metavar="N", help="default: %(default)s")
    training.add_argument("--lr", type=float, default=3e-4, metavar="LR", help="default: %(default)s")
    training.add_argument("--seed", type=int, default=0, metavar="N", help="of weights and data; default: %(default)s")


def chosen_preset(args: argparse.Namespace) -> Preset:
    """The preset named on the command line, with every size given there put in its place.

    Raises:
        ValueError: the heads do not divide the width.
    """
    preset = PRESETS[args.preset]
    flags = {
        "vocab_size": args.vocab,
        "seq_len": args.seq_len,
        "dim": args.dim,
        "num_layers": args.layers,
        "num_heads": args.heads,
    }
    config = replace(preset.config, **{name: size for name, size in flags.items() if size is not None})
    if config.dim % config.num_heads:
        raise ValueError(f"--dim {config.dim} is not a multiple of --heads {config.num_heads}; change one of them")
    batch_size = preset.batch_size if args.batch is None else args.batch
    return Preset(config=config, batch_size=batch_size)
