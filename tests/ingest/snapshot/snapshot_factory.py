"""Snapshots for tests: by hand, and by a small caching allocator that keeps the true totals.

Its events carry the bytes asked for; totals, blocks and their states are those of 512-byte blocks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsdp_profile.ingest.snapshot.reader import DeviceHistory, history_from_snapshot, read_snapshot

ROUND_BYTES = 512
SEGMENT_BYTES = 64 * ROUND_BYTES
FIRST_ADDRESS = (1 << 63) - SEGMENT_BYTES  # the second segment lies above what int64 holds


def round_up(size: int, multiple: int = ROUND_BYTES) -> int:
    return max(-(-size // multiple), 1) * multiple


@dataclass(kw_only=True)
class Life:
    """One block from alloc to free, as the replay should find it."""

    address: int
    size: int
    asked: int
    start_event: int
    requested_event: int | None = None
    end_event: int | None = None


@dataclass(kw_only=True)
class Simulation:
    """Call alloc, request_free, complete_free, release and tick; then ask for snapshots."""

    events: list[dict[str, Any]] = field(default_factory=list)
    allocated: list[int] = field(default_factory=list)
    active: list[int] = field(default_factory=list)
    reserved: list[int] = field(default_factory=list)
    blocks: list[Life] = field(default_factory=list)
    segments: dict[int, int] = field(default_factory=dict)
    """Address -> size."""
    time_us: int = 1_790_857_027_000_000

    def in_use(self) -> list[Life]:
        return [b for b in self.blocks if b.end_event is None]

    def alloc(self, asked: int) -> None:
        size = round_up(asked)
        address = self._fit(size)
        if address is None:
            address = self._new_segment(round_up(size, SEGMENT_BYTES))
        self.blocks.append(Life(address=address, size=size, asked=asked, start_event=len(self.events)))
        self._record("alloc", address, asked)

    def request_free(self, index: int) -> Life | None:
        live = [b for b in self.in_use() if b.requested_event is None]
        if not live:
            return None
        block = live[index % len(live)]
        block.requested_event = len(self.events)
        self._record("free_requested", block.address, block.asked)
        return block

    def complete_free(self, index: int) -> None:
        pending = [b for b in self.in_use() if b.requested_event is not None]
        if pending:
            block = pending[index % len(pending)]
            block.end_event = len(self.events)
            self._record("free_completed", block.address, block.asked)

    def release(self, index: int) -> None:
        """Give an unused segment back; its address may come again."""
        unused = [a for a, size in self.segments.items() if not self._used(a, size)]
        if unused:
            address = unused[index % len(unused)]
            self._record("segment_free", address, self.segments.pop(address))

    def tick(self, action: str) -> None:
        """An event that moves nothing."""
        self._record(action, 0, 0)

    def snapshot(self, *, first_event: int = 0) -> dict[str, Any]:
        """What torch would dump, when the ring buffer lost the events before `first_event`."""
        return {
            "segments": [self._segment(address, size) for address, size in self.segments.items()],
            "device_traces": [self.events[first_event:]],
        }

    def _used(self, address: int, size: int) -> list[Life]:
        inside = [b for b in self.in_use() if address <= b.address < address + size]
        return sorted(inside, key=lambda b: b.address)

    def _fit(self, size: int) -> int | None:
        for address, total in self.segments.items():
            at = address
            for block in self._used(address, total):
                if block.address - at >= size:
                    return at
                at = block.address + block.size
            if address + total - at >= size:
                return at
        return None

    def _new_segment(self, size: int) -> int:
        address = FIRST_ADDRESS
        while any(a < address + size and address < a + s for a, s in self.segments.items()):
            address += SEGMENT_BYTES
        self.segments[address] = size
        self._record("segment_alloc", address, size)
        return address

    def _record(self, action: str, address: int, size: int) -> None:
        event = {"action": action, "addr": address, "size": size, "stream": 0, "time_us": self.time_us}
        self.time_us += len(self.events) % 3
        self.events.append(event)
        in_use = self.in_use()
        self.allocated.append(sum(b.size for b in in_use if b.requested_event is None))
        self.active.append(sum(b.size for b in in_use))
        self.reserved.append(sum(self.segments.values()))

    def _segment(self, address: int, size: int) -> dict[str, Any]:
        blocks, at = [], address
        for held in self._used(address, size):
            if held.address > at:
                blocks.append(block(address=at, size=held.address - at, state="inactive"))
            state = "active_allocated" if held.requested_event is None else "active_pending_free"
            blocks.append(block(address=held.address, size=held.size, state=state, requested_size=held.asked))
            at = held.address + held.size
        if address + size > at:
            blocks.append(block(address=at, size=address + size - at, state="inactive"))
        return segment(*blocks, address=address, total_size=size, segment_pool_id=(0, 0))


def simulate(steps: list[tuple[str, int]]) -> Simulation:
    """Run `(operation, number)` steps: the number is the size asked for, or picks the block or segment."""
    simulation = Simulation()
    for operation, number in steps:
        match operation:
            case "alloc":
                simulation.alloc(number)
            case "free":
                block = simulation.request_free(number)
                if block is not None:
                    pending = [b for b in simulation.in_use() if b.requested_event is not None]
                    simulation.complete_free(pending.index(block))
            case "request_free":
                simulation.request_free(number)
            case "complete_free":
                simulation.complete_free(number)
            case "release":
                simulation.release(number)
            case action:
                simulation.tick(action)
    return simulation


def block(*, address: int = 0, size: int = 512, state: str = "active_allocated", **more: Any) -> dict[str, Any]:
    """One block of a segment."""
    return {"address": address, "size": size, "requested_size": size, "state": state, "frames": [], **more}


def segment(*blocks: dict[str, Any], address: int = 0, total_size: int = 1 << 20, **more: Any) -> dict[str, Any]:
    """One segment, of device 0 unless said otherwise."""
    return {
        "device": 0,
        "address": address,
        "total_size": total_size,
        "stream": 0,
        "blocks": list(blocks),
    } | more


def event(action: Any, addr: Any = 0, size: Any = 512, *, us: int = 0, **more: Any) -> dict[str, Any]:
    """One event."""
    return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": us, **more}


def snapshot(*events: dict[str, Any], segments: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """A snapshot of one device."""
    return {"segments": list(segments), "device_traces": [list(events)]}


def only_history(taken: Any) -> DeviceHistory:
    """The history of a snapshot with one device, given as a path or loaded."""
    histories = read_snapshot(taken) if isinstance(taken, Path) else history_from_snapshot(taken)
    assert len(histories) == 1
    assert histories[0].device == 0
    return histories[0]
