"""Cut a Kineto trace into blocks of whole events, in bounded memory, and keep what a damaged one holds.

[Note: Where a trace may be cut]
Between two events stands `}, {"`, then a letter. That cannot stand inside a JSON string: the quote would end
the string, and no letter follows the end of a string. It can stand inside one event whose arguments hold a
list of objects, and after the events, in the metadata. Then the block does not decode, and is read piece by
piece: pieces that are no events are joined with the next ones; those that never become one are dropped.
"""

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from fsdp_profile.core.errors import InputError
from fsdp_profile.ingest.kineto.events import BLOCK_DECODER, DECODE_ERRORS, Event, decode_event, parse_tolerant
from fsdp_profile.ingest.kineto.inflate import Bytes

BLOCK_BYTES: Final = 1 << 19
MAX_PIECE_BYTES: Final = 16 << 20
"""More than this without the end of an event is no trace."""
MAX_AROUND_BYTES: Final = 64 << 20
"""Most bytes kept of what stands before or after the events."""
MAX_JOINED_BYTES: Final = 1 << 20
"""Pieces are joined up to this in search of one event."""
MAX_FAILED: Final = 16
"""Pieces in a row that look like events and are none: those are damaged, and not part of a longer one."""
MAX_REPAIRED_BYTES: Final = 1 << 16
"""Joined pieces are repaired up to this."""
MAX_BEGINS: Final = 4
"""Places before a piece that are tried as the begin of its event."""
MAX_ARRAY_ENDS: Final = 64
WINDOW_BYTES: Final = 1 << 14

_WHITESPACE: Final = b" \t\r\n"
_BOM: Final = b"\xef\xbb\xbf"
_BOUNDARY: Final = re.compile(rb'\}\s*(,)\s*(\{)\s*"[A-Za-z]')
_BEGUN: Final = re.compile(rb'\}\s*(,)\s*(\{)\s*"?\Z')
"""A boundary with no more than the first bytes of the next event, at the end of a file."""
_EVENT_BEGIN: Final = re.compile(rb'\{\s*"(?:ph|cat|name|pid|tid|ts|dur|id|s|bp|args)"\s*:')
_EVENTS_KEY: Final = re.compile(rb'"traceEvents"\s*:\s*\[')
_ARRAY_END: Final = re.compile(rb'\}\s*(\])\s*(?:,\s*"|\}|\Z)')
_EMPTY_ARRAY: Final = re.compile(rb"\s*(\])")
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[][{}]', re.DOTALL)
_CLOSERS: Final = {b"{": b"}", b"[": b"]"}
_PHASE_KEY: Final = re.compile(rb'"ph"\s*:')
_OWN_KEYS: Final = re.compile(rb'"(?:traceEvents|schemaVersion)"\s*:')


class Block(NamedTuple):
    """Some events in the order of the file."""

    events: list[Event]
    payload: bytes | None
    """The JSON array they come from; None when they were read one by one, with exact times."""


class EventStream:
    """The events of one file. What else there is to know of it is complete when `blocks` is used up."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.source = Bytes(path)
        self.is_array = False
        """The file is a bare array of events."""
        self.is_cut = False
        """The file ends before it is complete."""
        self.is_mixed = False
        """Parts of another trace were met among the events or behind them."""
        self.num_events = 0
        self.num_dropped = 0
        self.first_drop: int | None = None
        """Whole events before the first one that was dropped."""
        self.head = b""
        """What stands before the events."""
        self.tail = b""
        """What stands after the events."""
        self.num_bad_utf8 = 0
        """Events in which bytes were replaced."""
        self.num_not_numbers = 0
        """Values that are words such as NaN."""
        self._in_tail = False

    def blocks(self, block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
        """Every whole event of the file.

        Raises:
            InputError: the file cannot be read, is empty, or is not a trace.
        """
        chunks = self.source.blocks(block_bytes)
        text = self._read_head(chunks)
        while True:
            if self._in_tail:
                self.tail += text
                text = b""
                if len(self.tail) > MAX_AROUND_BYTES:
                    break
            elif (cut := last_boundary(text)) is not None:
                block, start = self._take(text, *cut)
                yield block
                text = text[start:]
                if self._in_tail:
                    continue
            if len(text) > MAX_PIECE_BYTES:
                raise InputError(f"{self.path}: not a Kineto trace (no event ends in {len(text) >> 20} MiB)")
            if not (chunk := next(chunks, b"")):
                break
            text += chunk
        if not self._in_tail:
            events, start = self._salvage_last(text)
            yield Block(events, None)
            self.tail = text[start:]
        self._check_end()

    def _read_head(self, chunks: Iterator[bytes]) -> bytes:
        """Read up to the first event; the bytes from there on."""
        head = b""
        for chunk in chunks:
            head = (head + chunk).removeprefix(_BOM).lstrip(_WHITESPACE)
            if _BOM.startswith(head):  # nothing yet
                continue
            if head.startswith(b"["):
                self.is_array = True
                return head[1:]
            if not head.startswith(b"{"):
                raise InputError(f"{self.path}: not a Kineto trace (not JSON)")
            if found := _EVENTS_KEY.search(head):
                self.head = head[: found.start()]
                return head[found.end() :]
            if len(head) > MAX_AROUND_BYTES:
                break
        damage = f"; {self.source.damage}" if self.source.damage else ""
        if not head:
            raise InputError(f"{self.path}: empty file{damage}")
        raise InputError(f"{self.path}: not a Kineto trace, or cut before its first event (no traceEvents{damage})")

    def _take(self, text: bytes, comma: int, brace: int) -> tuple[Block, int]:
        """The events before the cut, and where the rest begins."""
        payload = b"".join((b"[", memoryview(text)[:comma], b"]"))
        try:
            events = BLOCK_DECODER.decode(payload)
        except DECODE_ERRORS:
            events, start = self._salvage(text, [*_boundaries(text, comma), (comma, brace)])
            return Block(events, None), start
        self.num_events += len(events)
        return Block(events, payload), brace

    def _salvage(self, text: bytes, cuts: list[tuple[int, int]]) -> tuple[list[Event], int]:
        """Read piece by piece; see [Note: Where a trace may be cut].

        Args:
            text: from the beginning of an event.
            cuts: end of a piece and start of the next one.

        Returns:
            The whole events, and where the rest begins: pieces that may become an event with what follows,
            or what stands behind the events.
        """
        events: list[Event] = []
        piece, begins, num_failed = 0, [0], 0
        for end, following in cuts:
            if piece > begins[0] and _EVENT_BEGIN.match(text, piece):
                begins.append(piece)
            if (found := self._whole(text, piece, begins, end)) is not None:
                events.append(found)
                begins, num_failed = [following], 0
            elif (behind := self._events_end(text, piece, begins, end)) is not None:
                last, start = behind
                return events + last, start
            else:
                num_failed += _PHASE_KEY.search(text, piece, end) is not None
                if num_failed >= MAX_FAILED and len(begins) > 1:
                    self._drop(text[begins[0] : begins[-1]])
                    begins, num_failed = begins[-1:], 0
            piece = following
        return events, begins[0]

    def _whole(self, text: bytes, piece: int, begins: list[int], end: int) -> Event | None:
        """The event that ends at `end`, if one does; what stands before it is dropped.

        Args:
            text: some pieces.
            piece: begin of the last one.
            begins: where an event may begin since the last whole one, the first place first.
            end: end of the last piece.
        """
        start = begins[0]
        for begin in dict.fromkeys((piece, *begins[:-MAX_BEGINS:-1], start)):
            if end - begin > MAX_JOINED_BYTES:
                continue
            repair = begin == piece or end - begin <= MAX_REPAIRED_BYTES
            decoded = decode_event(text[begin:end], repair=repair)
            if decoded is None:
                continue
            if begin > start and not decoded.event.ph:
                return None  # an object inside an event, which it does not end
            if begin > start:
                self._drop(text[start:begin])
            self.num_events += 1
            self.num_bad_utf8 += decoded.is_bad_utf8
            self.num_not_numbers += decoded.num_not_numbers
            return decoded.event
        return None

    def _salvage_last(self, text: bytes) -> tuple[list[Event], int]:
        """Read the end of the file piece by piece; the whole events and where the tail begins."""
        end = len(text)
        begun = [(m.start(1), m.start(2)) for m in _BEGUN.finditer(text)]
        events, start = self._salvage(text, [*_boundaries(text, end), *begun, (end, end)])
        rest = text[start:]
        if self._in_tail:
            return events, start
        if not rest.strip(_WHITESPACE + b","):
            self.is_cut = not self.is_array
            return events, end
        for found in islice(_ARRAY_END.finditer(rest), MAX_ARRAY_ENDS):
            if self._closes(rest[found.end(1) :]) and not is_unfinished(rest):
                self._drop(rest[: found.start(1)])
                self._in_tail = True
                return events, start + found.end(1)
        self._drop(rest)
        self.is_cut = True
        return events, end

    def _events_end(self, text: bytes, piece: int, begins: list[int], end: int) -> tuple[list[Event], int] | None:
        """The last event and where the tail begins, if the array of events ends in this piece."""
        if self.num_events == 0 and begins[0] == 0 and (empty := _EMPTY_ARRAY.match(text)):
            self._in_tail = True
            return [], empty.end(1)
        for found in islice(_ARRAY_END.finditer(text, piece, end), MAX_ARRAY_ENDS):
            event = self._whole(text, piece, begins, found.start(1))
            if event is not None:
                self._in_tail = True
                return [event], found.end(1)
        return None

    def _check_end(self) -> None:
        if not self._in_tail:
            self.is_cut = self.is_cut or bool(self.source.damage)
        elif _OWN_KEYS.search(self.tail) and _EVENTS_KEY.search(self.tail):
            self.is_mixed = True
        elif not self._closes(self.tail):
            self.is_cut = True

    def _closes(self, tail: bytes) -> bool:
        """Whether the file is complete with this after its events."""
        if self.is_array:
            return not tail.strip(_WHITESPACE)
        return parse_tolerant(b'{"traceEvents":[]' + tail) is not None

    def _drop(self, region: bytes) -> None:
        if self.first_drop is None:
            self.first_drop = self.num_events
        self.num_dropped += max(1, len(_PHASE_KEY.findall(region)))
        self.is_mixed = self.is_mixed or _OWN_KEYS.search(region) is not None


def _boundaries(text: bytes, end: int) -> list[tuple[int, int]]:
    """Where the comma and the brace of every boundary before `end` are."""
    return [(m.start(1), m.start(2)) for m in _BOUNDARY.finditer(text, 0, end)]


def last_boundary(text: bytes) -> tuple[int, int] | None:
    """Where the comma and the brace of the last boundary between events are; None when there is none.

    >>> last_boundary(b'{"ph": "X"}, {"ph": "X"}, {"ph"')
    (24, 26)
    """
    window = WINDOW_BYTES
    while True:
        start = max(0, len(text) - window)
        last = None
        for last in _BOUNDARY.finditer(text, start):  # noqa: B007
            pass
        if last is not None:
            return last.start(1), last.start(2)
        if start == 0:
            return None
        window *= 8


def is_unfinished(text: bytes) -> bool:
    """Whether brackets at the end are all that a JSON object lacks: it is cut, not damaged.

    >>> is_unfinished(b'{"args": {"x": [{"y": 1}]}'), is_unfinished(b'{"name": "a "b"", "x": [{"y": 1}]}')
    (True, False)
    """
    missing: list[bytes] = []
    for token in _TOKEN.findall(text):
        if token in _CLOSERS:
            missing.append(_CLOSERS[token])
        elif token in (b"}", b"]") and (not missing or missing.pop() != token):
            return False
    return bool(missing) and parse_tolerant(text + b"".join(reversed(missing))) is not None
