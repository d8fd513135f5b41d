"""A GPT under FSDP2 that times its own steps; rank 0 prints one JSON line: CPU ns of forward + backward, and of all."""

import argparse
import json
import time
from pathlib import Path
from sys import path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
import gpt


def main() -> None:
    """Train for a few steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    steps = parser.parse_args().steps
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    config = gpt.GPTConfig(vocab_size=512, seq_len=128, dim=256, num_layers=6, num_heads=4)
    model = gpt.GPT(config)
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(config.vocab_size, (8, config.seq_len))
    found = []
    for _ in range(steps):
        dist.barrier()
        begin = time.process_time_ns()
        logits = model(tokens)
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        computed = time.process_time_ns()
        optimizer.step()
        optimizer.zero_grad()
        found.append((computed - begin, time.process_time_ns() - begin))
    if dist.get_rank() == 0:
        print(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
