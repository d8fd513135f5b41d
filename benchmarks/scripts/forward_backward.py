"""Forward and backward of the examples' GPT under FSDP1 FULL_SHARD, a unit for each block; recorded under `run --as`.

The optimizer is plain SGD, which keeps no state: it only marks the end of a step. `--optimizer adamw` trains for real.
"""

import argparse
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
import gpt

OPTIMIZERS = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}


def main(args: argparse.Namespace) -> None:
    """Run `args.steps` steps; rank 0 prints its own loss at each."""
    device, backend = gpt.pick_device()
    dist.init_process_group(backend)
    preset = gpt.chosen_preset(args)
    torch.manual_seed(args.seed)
    with device:
        model: nn.Module = gpt.GPT(preset.config)
    model = FullyShardedDataParallel(
        model,
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        auto_wrap_policy=ModuleWrapPolicy({gpt.Block}),
        mixed_precision=MixedPrecision(param_dtype=gpt.compute_dtype(device), reduce_dtype=torch.float32),
        device_id=device,
        use_orig_params=True,
    )
    optimizer = OPTIMIZERS[args.optimizer](model.parameters(), lr=args.lr)
    batches = gpt.random_batches(preset, steps=args.steps, seed=args.seed, rank=dist.get_rank(), device=device)
    for step, (tokens, targets) in enumerate(batches):
        loss = gpt.next_token_loss(model(tokens), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    gpt.add_model_arguments(parser)
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd")
    main(parser.parse_args())
