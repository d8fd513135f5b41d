"""Train the GPT with fully_shard (FSDP2): every parameter is a DTensor, split over the ranks on dim 0.

torchrun --nproc-per-node 2 examples/train_fsdp2.py
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
    rank = dist.get_rank()
    preset = gpt.chosen_preset(args)

    torch.manual_seed(args.seed)
    with device:
        model = gpt.GPT(preset.config)

    # Inside out: each block becomes a unit, then the root takes what is left (embeddings, final norm,
    # head). A resharded block frees its full parameters after forward and gathers them again in backward.
    # The root's own parameters stay gathered in between: backward wants them first.
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=gpt.compute_dtype(device), reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=not args.no_reshard)
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
    parser.add_argument("--no-reshard", action="store_true", help="keep blocks gathered from forward to backward")
    main(parser.parse_args())
