"""What a zoom into a ledger asks of a run."""

from fsdp_dashboard.data import RunRef, ask
from fsdp_profile.analysis.memory import time_window
from fsdp_profile.analysis.memory.time_window import Detail


def detail(ref: RunRef, *, rank: int, start_ns: int, end_ns: int) -> Detail:
    """Finer rows of a part of it."""
    found: Detail = ask(time_window.detail, ref, rank=rank, start_ns=start_ns, end_ns=end_ns)
    return found
