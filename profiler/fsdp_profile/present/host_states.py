"""States that are kept on the host under CPU offload."""

from fsdp_profile.analysis.memory.host_states import HostStates
from fsdp_profile.core.humanize import bytes_text
from fsdp_profile.present.memory import TOTAL, categories_text
from fsdp_profile.present.values import Sentence, Table, Unit, column, say, strong, table


def host_states(found: HostStates) -> Sentence:
    """How much is on the host, and what it is."""
    return say(
        strong(f"On the host {bytes_text(found.size_bytes)}"), f" after step {found.step}, not on the device: "
        f"{categories_text(found.by_category)}; {bytes_text(found.pinned_bytes)} of it pinned.",
    )  # fmt: skip


def host_table(found: HostStates) -> Table:
    """Bytes on the host by category, and how much of them is pinned."""
    sizes = found.by_category
    return table(
        f"On the host {bytes_text(found.size_bytes)}",
        [
            column("category", Unit.CATEGORY, [*sizes, TOTAL, "pinned"]),
            column("bytes", Unit.BYTES, [*sizes.values(), found.size_bytes, found.pinned_bytes]),
        ],
        note=f"rank {found.rank}, after step {found.step}; not on the device",
        num_totals=2,
    )
