"""Train the GPT with FullyShardedDataParallel (FSDP1): one flat parameter per block, split over the ranks.

torchrun --nproc-per-node 2 examples/train_fsdp1.py
torchrun --nproc-per-node 4 examples/train_fsdp1.py --sharding hybrid
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

import gpt

SHARDINGS = {
    "full": ShardingStrategy.FULL_SHARD,
    "grad_op": ShardingStrategy.SHARD_GRAD_OP,
    "no_shard": ShardingStrategy.NO_SHARD,
    "hybrid": ShardingStrategy.HYBRID_SHARD,
}
NUM_REPLICAS = 2  # of the shards, under --sharding hybrid


def main(args: argparse.Namespace) -> None:
    """Train for `args.steps` steps; rank 0 prints its own loss at each."""
    device, backend = gpt.pick_device()
    dist.init_process_group(backend)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    preset = gpt.chosen_preset(args)

    # Hybrid shards over the second dimension of a mesh and replicates over the first. Always give it the
    # mesh: without one, shards span a whole node, and a node with one device would sync no gradients.
    mesh = None
    if args.sharding == "hybrid":
        if world_size % NUM_REPLICAS or world_size < 2 * NUM_REPLICAS:
            raise ValueError(f"--sharding hybrid on {world_size} ranks: use 4, 6, 8, ... ranks")
        mesh = init_device_mesh(device.type, (NUM_REPLICAS, world_size // NUM_REPLICAS))

    torch.manual_seed(args.seed)
    with device:
        model: nn.Module = gpt.GPT(preset.config)

    # Each Block becomes a unit; the root unit takes the rest (embeddings, final norm, head).
    model = FullyShardedDataParallel(
        model,
        sharding_strategy=SHARDINGS[args.sharding],
        auto_wrap_policy=ModuleWrapPolicy({gpt.Block}),
        mixed_precision=MixedPrecision(param_dtype=gpt.compute_dtype(device), reduce_dtype=torch.float32),
        device_id=device,  # on CPU too: by itself FSDP1 looks for an accelerator
        device_mesh=mesh,
        use_orig_params=True,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)  # after wrapping: it must see the shards

    batches = gpt.random_batches(preset, steps=args.steps, seed=args.seed, rank=rank, device=device)
    for step, (tokens, targets) in enumerate(batches):
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
    parser.add_argument("--sharding", choices=SHARDINGS, default="full", help="default: %(default)s")
    main(parser.parse_args())
