"""Record an example under strategies of `run --as`."""

import argparse
import math
import sys
from pathlib import Path

import pytest
import torch
from recording import EXAMPLES

from fsdp_profile.analysis.memory import ledger as memory
from fsdp_profile.analysis.run import Run
from fsdp_profile.core.categories import Category

FLOAT = COUNTER = 4


VOCAB, STEPS = 509, 3


STATES = (Category.PARAM, Category.GRAD, Category.OPTIMIZER_STATE)


@pytest.fixture(scope="module")
def units() -> list[list[torch.Size]]:
    """The shapes of every unit's parameters, the root's last."""
    sys.path.insert(0, str(EXAMPLES))
    import gpt

    parser = argparse.ArgumentParser()
    gpt.add_model_arguments(parser)
    preset = gpt.chosen_preset(parser.parse_args(["--vocab", str(VOCAB)]))
    with torch.device("meta"):
        model = gpt.GPT(preset.config)
    blocks = [[p.shape for p in block.parameters()] for block in model.layers]
    return [*blocks, [p.shape for name, p in model.named_parameters() if not name.startswith("layers.")]]


def replicated(units: list[list[torch.Size]]) -> tuple[int, int, int]:
    """Parameters, gradients and AdamW's states of DDP, in bytes."""
    shapes = [shape for unit in units for shape in unit]
    param_bytes = FLOAT * sum(shape.numel() for shape in shapes)
    return param_bytes, param_bytes, 2 * param_bytes + COUNTER * len(shapes)


def zero1(units: list[list[torch.Size]], *, ranks: int, rank: int) -> tuple[int, int, int]:
    """ZeRO-1: the largest parameter first, each to the rank with the fewest elements so far."""
    in_order = [shape for unit in (*units[-1:], *units[:-1]) for shape in unit]  # ties break by the model's own order
    embeddings, rest = in_order[:2], in_order[2 : len(units[-1])]
    model_order = [*embeddings, *in_order[len(units[-1]) :], *rest]
    load, mine = [0] * ranks, []
    for shape in sorted(model_order, key=lambda s: s.numel(), reverse=True):
        owner = load.index(min(load))
        load[owner] += shape.numel()
        mine += [shape.numel()] if owner == rank else []
    param_bytes, grad_bytes, _ = replicated(units)
    return param_bytes, grad_bytes, 2 * FLOAT * sum(mine) + COUNTER * len(mine)


def fsdp2(units: list[list[torch.Size]], *, shards: int, rank: int) -> tuple[int, int, int]:
    """FSDP2: rows of dim 0, padded to the same number on every rank; states have no padding."""
    padded = real = counters = 0
    for rows, *rest in (shape for unit in units for shape in unit):
        chunk, width = math.ceil(rows / shards), math.prod(rest)
        padded += chunk * width
        real += min(max(rows - chunk * (rank % shards), 0), chunk) * width
        counters += 1
    return FLOAT * padded, FLOAT * padded, 2 * FLOAT * real + COUNTER * counters


def fsdp1(units: list[list[torch.Size]], *, shards: int, rank: int) -> tuple[int, int, int]:
    """FSDP1: equal parts of each unit's flat parameter; a parameter of which a rank has nothing has no state."""
    padded = real = counters = 0
    for shapes in units:
        chunk = math.ceil(sum(shape.numel() for shape in shapes) / shards)
        begin, end, at = chunk * (rank % shards), chunk * (rank % shards + 1), 0
        for shape in shapes:
            held = max(min(at + shape.numel(), end) - max(at, begin), 0)
            at, real, counters = at + shape.numel(), real + held, counters + (held > 0)
        padded += chunk
    return FLOAT * padded, FLOAT * padded, 2 * FLOAT * real + COUNTER * counters


def held(run: Run, *, rank: int) -> tuple[int, ...]:
    """The most of each state in step 1, when the optimizer's are there from the beginning."""
    ledger = memory.timeline(run, rank=rank, step=1)
    return tuple(int(ledger.by_category[category].max()) for category in STATES)


SCRIPT = Path(__file__).parents[1] / "scripts" / "rewrapped.py"
