"""Record from inside a script: `with profile() as recording: ... recording.step()`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fsdp_profile.core.errors import UsageError

if TYPE_CHECKING:
    from fsdp_profile.capture.session import Session


class Recording:
    """The recording of this rank while `profile` is open."""

    def __init__(self, run_dir: Path, session: "Session") -> None:
        self._session = session
        self.run_dir = run_dir
        """The run directory, the same in every rank."""

    def step(self) -> None:
        """A training step ended.

        Raises:
            UsageError: `profile` was entered without by_hand=True, so the optimizer's steps end the steps.
        """
        if not self._session.tracker.is_by_hand:
            raise UsageError(
                "step(): a step ends with the optimizer's step; enter profile(by_hand=True) to end steps yourself"
            )
        self._session.end_step()


@contextmanager
def profile(
    output: Path | str | None = None,
    *,
    by_hand: bool = False,
    kineto: bool = True,
    allocator: bool = True,
    stacks: bool = False,
) -> Iterator[Recording]:
    """Record this rank while the block runs: every step in it, and the ledger from here on.

    Enter it after `init_process_group` and before the model is wrapped. All ranks enter it; they do not
    communicate. None of the arguments affects the training.

    Args:
        output: the run directory (default: a new one below runs/).
        by_hand: `step()` ends a step; otherwise the optimizer's step does.
        kineto: keep the Kineto trace of every step.
        allocator: record allocator events.
        stacks: record the source line of every allocation (slower).

    Raises:
        UsageError: there is no process group, or this process is recorded already.
        OutputError: the run directory holds something else, or cannot be written.
    """
    import sys

    import torch.distributed as dist

    from fsdp_profile.capture.options import Options
    from fsdp_profile.capture.process import arm
    from fsdp_profile.capture.process.join import join_own_run

    if not dist.is_initialized():
        raise UsageError("profile(): there is no process group; enter it after torch.distributed.init_process_group")
    if arm.is_armed():
        raise UsageError("profile(): this process is already being recorded; a process has one recording")
    given = Path(output) if output is not None else None
    run_dir = join_own_run(given, rank=dist.get_rank(), world_size=dist.get_world_size())
    options = Options(last_step=sys.maxsize, kineto=kineto, allocator=allocator, stacks=stacks)
    session = arm.arm_late(run_dir, options)
    session.tracker.is_by_hand = by_hand
    try:
        yield Recording(run_dir, session)
    finally:
        session.end()
