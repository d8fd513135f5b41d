"""The `steps` and `phases` tables of a rank: when each optimizer step and each phase began and ended."""

from typing import Any

import numpy as np

from fsdp_profile.core.capture_log import EndReason
from fsdp_profile.core.schema import SETUP_STEP, TEARDOWN_STEP
from fsdp_profile.ingest.rank.attribution import Clock
from fsdp_profile.ingest.rank.capture_log import CaptureLog


def step_columns(log: CaptureLog, clock: Clock, last_ns: int) -> dict[str, Any]:
    """Columns of the `steps` table."""
    start = int(log.rank.get("start_ns", clock.phase_start_ns[0]))
    first = clock.first_forward_ns
    rows: list[tuple[int, int, int, bool]] = [(SETUP_STEP, start, first if first is not None else last_ns, True)]
    begin = first
    if begin is not None:
        for step, end in enumerate(clock.step_end_ns.tolist()):
            rows.append((step, begin, end, True))
            begin = _resumed_after(log, end)
        ended_by_window = log.end is not None and log.end.get("reason") == EndReason.WINDOW_ENDED
        if begin < last_ns and not ended_by_window:
            rows.append((int(clock.steps(np.array([last_ns]))[0]), begin, last_ns, False))
    return {
        "step": [r[0] for r in rows],
        "start_ns": [r[1] for r in rows],
        "end_ns": [r[2] for r in rows],
        "complete": [r[3] for r in rows],
        "recorded": [_is_recorded(log, r[0]) for r in rows],
    }


def _resumed_after(log: CaptureLog, step_end_ns: int) -> int:
    """When the recording went on after a step: at once, or after the pause in which the capture wrote.

    That pause is ours and belongs to no step.
    """
    following = log.began_ns[log.began_ns > step_end_ns]
    next_end = log.step_ends[log.step_ends > step_end_ns]
    is_next = len(following) and (len(next_end) == 0 or following[0] < next_end[0])
    return int(following[0]) if is_next else step_end_ns


def _is_recorded(log: CaptureLog, step: int) -> bool:
    """A chunk may span steps: the one written after a step holds it; what follows the last is whole at an end only."""
    if step == TEARDOWN_STEP:
        return log.end is not None
    return any(recorded >= step for recorded in log.recorded_steps)


def phase_columns(log: CaptureLog, clock: Clock, last_ns: int) -> dict[str, Any]:
    """Phases cut at the steps' ends, so that each row lies in one step; the pauses after steps are in none."""
    start = clock.phase_start_ns
    ends = clock.step_end_ns[(clock.step_end_ns > start[0]) & (clock.step_end_ns < last_ns)]
    resumed = np.array([_resumed_after(log, end) for end in ends.tolist()], np.int64)
    paused = ends[resumed > ends]
    inner = np.unique(np.concatenate([ends, resumed]))
    index = np.concatenate([np.arange(len(start)), clock.phase_index(inner)])
    begin = np.concatenate([start, inner])
    order = np.argsort(begin, kind="stable")
    begin, index = begin[order], index[order]
    end = np.append(begin[1:], max(last_ns, int(begin[-1])))
    keep = (end > begin) & ~np.isin(begin, paused)
    # A phase that starts with a step belongs to it, not to the one that ended there.
    return {
        "step": clock.steps(begin + 1)[keep],
        "phase": list(clock.phase_names(index)[keep]),
        "start_ns": begin[keep],
        "end_ns": end[keep],
    }
