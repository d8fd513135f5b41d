"""Train the GPT with hybrid sharding (HSDP): fully_shard inside a group of ranks, replicas across groups.

torchrun --nproc-per-node 4 examples/train_hsdp.py
"""

import argparse

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import gpt


def main(args: argparse.Namespace) -> None:
    """Train for `args.steps` steps; rank 0 prints its own loss at each."""
    device, backend = gpt.pick_device()
    dist.init_process_group(backend)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    preset = gpt.chosen_preset(args)
    if args.replicas < 1 or world_size % args.replicas:
        raise ValueError(f"--replicas {args.replicas} does not divide {world_size} ranks; change one of them")

    torch.manual_seed(args.seed)
    with device:
        model = gpt.GPT(preset.config)

    # A 2-D mesh is all that tells HSDP from FSDP2. With 4 ranks and 2 replicas it is [[0, 1], [2, 3]]: a
    # row holds one copy of the model in shards (gather and reduce-scatter along it, so rows belong inside
    # a node), a column holds the same shard twice (all-reduce of its gradient along it).
    mesh = init_device_mesh(
        device.type, (args.replicas, world_size // args.replicas), mesh_dim_names=("replicate", "shard")
    )
    policy = MixedPrecisionPolicy(param_dtype=gpt.compute_dtype(device), reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)  # after sharding: it must see the shards

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
    parser.add_argument("--replicas", type=int, default=2, metavar="R", help="default: %(default)s")
    main(parser.parse_args())
