"""What the manifest keeps of one rank's log, and how its process ended."""

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from fsdp_profile.core.capture_log import EndReason
from fsdp_profile.core.manifest import RankRecord
from fsdp_profile.core.schema import Ending
from fsdp_profile.ingest.rank.capture_log import CaptureLog

WARM_UP_STEPS: Final = 2  # the first allocates, makes the optimizer's states and starts Kineto


@dataclass(kw_only=True, slots=True)
class RankFacts:
    """What the manifest keeps of one rank's log."""

    rank: int
    process: dict[str, Any] = field(default_factory=dict)
    end: dict[str, Any] | None = None
    has_exit: bool = False
    """It came to its end by itself."""
    known: dict[str, Any] = field(default_factory=dict)
    """The closing record, or what of it was known when the process was killed."""
    failure: dict[str, Any] | None = None
    model: dict[str, Any] = field(default_factory=dict)
    units: list[dict[str, Any]] = field(default_factory=list)
    optimizers: list[dict[str, Any]] = field(default_factory=list)
    num_steps: int = 0
    recorded_steps_ns: list[int] = field(default_factory=list)
    unrecorded_steps_ns: list[int] = field(default_factory=list)
    allocator_events: int = 0
    has_collectives: bool = False
    has_kineto: bool = False
    warnings: list[str] = field(default_factory=list)
    rewrapped: list[str] = field(default_factory=list)


def facts_of(rank: int, log: CaptureLog, *, has_kineto: bool) -> RankFacts:
    """The facts in a rank's log."""
    events = len(log.allocator["t_ns"]) + sum(len(chunk["events"]["time_us"]) for chunk in log.cuda)
    return RankFacts(
        rank=rank,
        process=log.rank,
        end=log.end,
        has_exit=log.has_exit or (log.end is not None and log.end.get("reason") != EndReason.WINDOW_ENDED),
        known={**log.so_far, **(log.end or {})},
        failure=log.failure,
        model=log.model,
        units=list(log.units.values()),
        optimizers=log.optimizers,
        num_steps=len(log.step_ends),
        recorded_steps_ns=[int(ns) for ns in np.diff(log.step_ends)[WARM_UP_STEPS - 1 :]],
        unrecorded_steps_ns=[int(ns) for ns in np.diff(log.unrecorded_step_ends)],
        allocator_events=events,
        has_collectives=len(log.transport["name"]) > 0 or len(log.calls["unit"]) > 0,
        has_kineto=has_kineto,
        warnings=list(log.warnings),
        rewrapped=log.rewrapped,
    )


def rank_record(facts: RankFacts, exit_code: int | None, *, is_foreign: bool) -> RankRecord:
    """A rank's row of the manifest; `is_foreign`: another launcher waited for it, so its exit code is not known."""
    ending, message = _ending(facts, exit_code)
    if ending is Ending.UNKNOWN and is_foreign and facts.has_exit:
        ending = Ending.COMPLETED
    end = facts.known
    return RankRecord(
        rank=facts.rank,
        host=str(facts.process.get("host", "")),
        pid=int(facts.process.get("pid", 0)),
        device=str(end.get("device_name") or ""),
        ending=ending,
        exit_code=exit_code,
        message=message,
        num_steps=facts.num_steps,
    )


def _ending(facts: RankFacts, exit_code: int | None) -> tuple[Ending, str]:
    if facts.failure is not None:
        return Ending.EXCEPTION, str(facts.failure.get("message", ""))
    if exit_code is not None and exit_code < 0:
        return Ending.SIGNAL, f"killed by signal {-exit_code}"
    if exit_code:
        return Ending.EXITED, f"exit code {exit_code}"
    if exit_code == 0:
        return Ending.COMPLETED, ""
    return Ending.UNKNOWN, "" if facts.end else "its process ended before it could record how"
