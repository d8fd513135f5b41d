"""What is kept on the host under CPU offload."""

from rich.console import Group, RenderableType

from fsdp_profile.analysis.memory.host_states import HostStates
from fsdp_profile.core.humanize import bytes_text
from fsdp_profile.render.terminal.parts import facts, heading


def host_states_report(found: HostStates | None) -> RenderableType | None:
    """Bytes by category, and how much of them is pinned; None where nothing was held on the host."""
    if found is None:
        return None
    rows = [(str(category), bytes_text(size)) for category, size in found.by_category.items()]
    rows.append(("of them pinned", bytes_text(found.pinned_bytes)))
    remark = f"rank {found.rank}, after step {found.step}; not in the device's ledger"
    return Group(heading(f"On the host {bytes_text(found.size_bytes)}", remark), facts(rows))
