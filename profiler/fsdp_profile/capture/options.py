"""What the launcher asks the capture to record; passed as JSON in the environment."""

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Choices of `fsdp-profile run` that reach the ranks."""

    first_step: int = 0
    """First step whose Kineto trace is kept."""
    last_step: int = 8
    """Recording ends before this step. Allocator events are recorded from the start of the process until then,
    because a ledger adds up only if it has every block that is live."""
    kineto: bool = True
    """Keep the Kineto trace of every recorded step."""
    allocator: bool = True
    """Record allocator events."""
    stacks: bool = False
    """Record the source line of every allocation."""
    sample_interval_s: float = 0.1
    """Interval between samples of NVML and RSS."""
    buffer_bytes: int = 1 << 30
    """CPU: growth of the process since the last flush that causes a flush at the next safe moment, also in a step."""
    max_history_entries: int = 1_000_000
    """CUDA: length of the allocator's history ring."""
    strategy: str = ""
    """Train under this strategy (`run --as`) in place of the script's own; '' leaves every wrapper alone."""
    losses: bool = False
    """Record the loss of every backward."""

    def to_json(self) -> str:
        """For the environment of the ranks."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> "Options":
        """The inverse of to_json."""
        return Options(**json.loads(text))
