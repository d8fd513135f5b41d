"""Train the GPT with DistributedDataParallel: every rank keeps the whole model.

torchrun --nproc-per-node 2 examples/train_ddp.py
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gpt


def main(args: argparse.Namespace) -> None:
    """Train for `args.steps` steps; rank 0 prints its own loss at each."""
    device, backend = gpt.pick_device()
    dist.init_process_group(backend)
    rank = dist.get_rank()
    preset = gpt.chosen_preset(args)

    torch.manual_seed(args.seed)
    with device:
        model: nn.Module = gpt.GPT(preset.config)

    # Parameters, gradients and optimizer state are whole on every rank. Gradients meet in buckets, which
    # take as much memory again, unless the gradients are views into them.
    model = DistributedDataParallel(model, gradient_as_bucket_view=args.bucket_view)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)

    # DDP has no mixed precision policy: parameters stay fp32, autocast runs the matmuls in bf16.
    dtype = gpt.compute_dtype(device)
    autocast = torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32)

    batches = gpt.random_batches(preset, steps=args.steps, seed=args.seed, rank=rank, device=device)
    for step, (tokens, targets) in enumerate(batches):
        with autocast:
            loss = gpt.next_token_loss(model(tokens), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(f"step {step} loss {loss.item():.6f}", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    gpt.add_model_arguments(parser)
    parser.add_argument("--bucket-view", action="store_true", help="let gradients be views into DDP's buckets")
    main(parser.parse_args())
