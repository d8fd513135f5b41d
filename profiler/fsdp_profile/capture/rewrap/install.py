"""Train an unmodified script under another strategy than its own: the layer behind `run --as`, off unless asked for.

The wrappers are exchanged where the script calls them: `FullyShardedDataParallel(...)`, `fully_shard(...)`,
`DistributedDataParallel(...)`, and the optimizer's step. FSDP1 stays FSDP1, FSDP2 stays FSDP2; a DDP script is sharded
with `fully_shard`. Everything below is torch's own, so the hooks see the units of the new strategy as of any script.

[Note: Shim or refuse] A call that only the script's own strategy knows is answered where its meaning is clear
(`model.no_sync()`, `param.full_tensor()` of a whole parameter). Where it is not, `refuse` raises in the script's own
line and names the call: a guess would give a run that looks right and is wrong.
"""

from collections.abc import Callable

from fsdp_profile.capture.on_import import OnImport
from fsdp_profile.capture.rewrap import ddp, fsdp1, fsdp2, zero1
from fsdp_profile.capture.rewrap.context import Context
from fsdp_profile.capture.rewrap.target import Recipe, Target

WriteNote = Callable[[str], None]


def install(imports: OnImport, target: Target, write_note: WriteNote) -> None:
    """Exchange the wrappers as they are imported; `write_note` receives what was done in place of what.

    Install after the capture's own hooks: what is exchanged here must not reach them twice.
    """
    if target.recipe is Recipe.AS_IS:
        return
    context = Context(target=target, write_note=write_note)
    imports.when(fsdp1.MODULE, lambda module: fsdp1.install(module, context))
    for name in fsdp2.MODULES:
        imports.when(name, lambda module: fsdp2.install(module, context))
    if target.is_sharded:
        imports.when(ddp.MODULE, lambda module: ddp.install(module, context))
        imports.when(ddp.CLIP, lambda module: ddp.whole_norm(module, context))
    if target.recipe is Recipe.ZERO1:
        imports.when("torch.optim.optimizer", lambda module: zero1.install(module, context))
    else:
        imports.when(zero1.TORCHS_OWN, lambda module: zero1.plain_optimizers(module, context))
