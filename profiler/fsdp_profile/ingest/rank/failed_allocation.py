"""The failed allocation that ended a rank, from the exception it told; on CPU there is no other record of it."""

from typing import Any

import numpy as np

from fsdp_profile.core.errors import asked_bytes, is_out_of_memory
from fsdp_profile.ingest.rank.capture_log import CaptureLog
from fsdp_profile.ingest.rank.pairing import Samples


def oom_columns(log: CaptureLog, samples: Samples) -> dict[str, Any]:
    """Columns of the `ooms` table: one row when the rank ended for want of memory, else none.

    While the exception unwinds the stack, operators free what they had: the last event that took memory is the
    moment before the failure.
    """
    message = str((log.failure or {}).get("message", ""))
    took = np.flatnonzero(samples.delta_bytes > 0)
    if log.failure is None or not is_out_of_memory(message) or not len(took):
        return {name: [] for name in ("t_ns", "event", "asked_bytes", "device_free_bytes", "stream")}
    event = int(took[-1])
    return {
        "t_ns": [int(samples.t_ns[event])],
        "event": [event],
        "asked_bytes": [asked_bytes(message)],
        "device_free_bytes": [None],
        "stream": [0],
    }
