"""What the modules of the re-wrapping share: the strategy, its meshes, notes and refusals."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from fsdp_profile.capture.rewrap.target import Recipe, Target


class RewrapRefusedError(RuntimeError):
    """A call of the script has no clear meaning under the strategy that `--as` asked for."""


@dataclass(kw_only=True, slots=True)
class Context:
    """The re-wrapping of one process."""

    target: Target
    write_note: Callable[[str], None]
    """Writes a note to the recording; see `note`."""
    noted: set[str] = field(default_factory=set)
    meshes: dict[str, Any] = field(default_factory=dict)
    """Device type -> mesh; making one is a collective, so each is made once."""
    has_sharded_ddp: bool = False
    """A DDP object of the script was sharded: it does not handle DTensors."""

    def note(self, text: str) -> None:
        """Record, once, what was done in place of what."""
        if text not in self.noted:
            self.noted.add(text)
            self.write_note(text)

    def refuse(self, call: str, why: str) -> NoReturn:
        """See [Note: Shim or refuse] in rewrap.

        Raises:
            RewrapRefusedError: always.
        """
        raise RewrapRefusedError(
            f"fsdp-profile run --as {self.target.text}: {call}: {why}; leave it out of this run, or record the script "
            "--as as-is"
        )

    def mesh(self, device_type: str) -> Any:
        """The mesh of a sharded strategy over all ranks: (ranks) or, under HSDP, (replicas, shards)."""
        if device_type not in self.meshes:
            import torch.distributed as dist
            from torch.distributed.device_mesh import init_device_mesh

            world_size, shards = dist.get_world_size(), self.target.shards
            if self.target.recipe is Recipe.HSDP:
                shape, names = (world_size // shards, shards), ("replicate", "shard")
                self.meshes[device_type] = init_device_mesh(device_type, shape, mesh_dim_names=names)
            else:
                self.meshes[device_type] = init_device_mesh(device_type, (world_size,))
        return self.meshes[device_type]

    def check_spans(self, mesh: Any, call: str) -> None:
        """Refuse a mesh that does not span all ranks."""
        import torch.distributed as dist

        if mesh is not None and mesh.size() != dist.get_world_size():
            self.refuse(call, f"its mesh spans {mesh.size()} of {dist.get_world_size()} ranks (tensor parallel?)")

    def mesh_like(self, mesh: Any, call: str) -> Any:
        """The strategy's mesh in place of a script's."""
        self.check_spans(mesh, call)
        return self.mesh(mesh.device_type if mesh is not None else accelerator())


def accelerator() -> str:
    """Type of the device that torch would pick where the script names none."""
    torch = sys.modules["torch"]
    found = torch._C._get_accelerator().type
    return str(found)


def device_type_of(module: Any) -> str:
    """Type of the device on which a module's parameters are."""
    first = next(iter(module.parameters()), None)
    return str(first.device.type) if first is not None else accelerator()


def is_reduced(dtype: Any) -> bool:
    """Whether a dtype of a mixed precision policy is lower than fp32."""
    return dtype is not None and dtype.itemsize < 4
