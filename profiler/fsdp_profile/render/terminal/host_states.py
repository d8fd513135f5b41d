"""What is kept on the host under CPU offload."""

from rich.console import RenderableType

from fsdp_profile.analysis.memory.host_states import HostStates
from fsdp_profile.present.host_states import host_table
from fsdp_profile.render.terminal.values import table_grid


def host_states_report(found: HostStates | None) -> RenderableType | None:
    """Bytes by category, and how much of them is pinned; None where nothing was held on the host."""
    return table_grid(host_table(found)) if found is not None else None
