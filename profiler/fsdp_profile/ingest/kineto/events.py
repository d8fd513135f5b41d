"""What is read of one event, and how: fast where it is valid JSON of the usual types, tolerant where not.

[Note: Exact times]
Times are microseconds with up to three decimals. As float64 they are exact to the nanosecond below 2**43 us
(102 days): the base time of a trace is at most 3 months back, so its times are. Absolute unix times are not:
they are taken from the text. An event read by `decode_event` has such times as text already.
"""

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

import msgspec

Number = int | float | str | None
"""A number as writers put it: Ascend's are strings, some are null."""

UNFINISHED_US: Final = -1
"""Duration of an event whose end was not seen."""

MAX_EXACT_FLOAT_US: Final = float(1 << 43)
"""See [Note: Exact times]."""

_NO_RAW: Final = msgspec.Raw(b"")


class Args(msgspec.Struct, gc=False, frozen=True):
    """The arguments of an event that are used; -1 and None are "not given"."""

    external_id: Number = msgspec.field(name="External id", default=-1)
    correlation: Number = msgspec.field(name="correlation", default=-1)
    stream: Number = msgspec.field(name="stream", default=-1)
    collective: str | None = msgspec.field(name="Collective name", default=None)
    in_numel: Number = msgspec.field(name="In msg nelems", default=None)
    out_numel: Number = msgspec.field(name="Out msg nelems", default=None)
    dtype: str | None = msgspec.field(name="dtype", default=None)
    group_size: Number = msgspec.field(name="Group size", default=None)
    group: Number = msgspec.field(name="Process Group Name", default=None)
    group_description: str | None = msgspec.field(name="Process Group Description", default=None)
    seq: Number = msgspec.field(name="Seq", default=None)
    device_type: Number = msgspec.field(name="Device Type", default=None)
    input_dims: msgspec.Raw = msgspec.field(name="Input Dims", default=_NO_RAW)
    input_types: msgspec.Raw = msgspec.field(name="Input type", default=_NO_RAW)


NO_ARGS: Final = Args()


def without_inputs(args: Args) -> Args:
    """The same without the inputs, which are views that keep the whole block they come from in memory."""
    return msgspec.structs.replace(args, input_dims=_NO_RAW, input_types=_NO_RAW)


class Event(msgspec.Struct, gc=False):
    """One event. A time is None when it is missing."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Number = None
    tid: Number = None
    ts: Number = None
    dur: Number = UNFINISHED_US
    args: Args | None = None


class _Start(msgspec.Struct, gc=False):
    ts: msgspec.Raw = _NO_RAW


BLOCK_DECODER: Final = msgspec.json.Decoder(list[Event])
_EVENT_DECODER: Final = msgspec.json.Decoder(Event)
_STARTS_DECODER: Final = msgspec.json.Decoder(list[_Start])

DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeError, RecursionError)
"""What the decoders raise on damaged bytes; the last one for nesting without end."""

_ARG_KEYS: Final = {f.name: f.encode_name for f in msgspec.structs.fields(Args)}
_TEXT_ARGS: Final = frozenset({"collective", "dtype", "group_description"})
_JSON_ARGS: Final = frozenset({"input_dims", "input_types"})

# Strings are matched first, so that words inside them stay.
_NOT_A_NUMBER: Final = re.compile(r'"(?:[^"\\]|\\.)*"|(?<![\w.])[-+]?(?:nan|inf(?:inity)?)\b', re.IGNORECASE)
_MAY_BE_TOKEN: Final = re.compile(r"[:,\[]\s*[-+]?(?:nan|inf)", re.IGNORECASE)


class Decoded(NamedTuple):
    """An event and what was put right in it."""

    event: Event
    is_bad_utf8: bool = False
    num_not_numbers: int = 0


def starts_as_text(payload: bytes) -> list[str]:
    """The `ts` of every event in a block, as written."""
    return [bytes(e.ts).decode("ascii", "replace").strip('"') for e in _STARTS_DECODER.decode(payload)]


def decode_event(text: bytes, *, repair: bool) -> Decoded | None:
    """The event in `text`; None when it is not exactly one event, or only one after repair, which takes time."""
    text = text.strip(b" \t\r\n,")
    if not (text.startswith(b"{") and text.endswith(b"}")):
        return None
    try:
        event = _EVENT_DECODER.decode(text)
    except DECODE_ERRORS:
        return _decode_tolerant(text) if repair else None
    if isinstance(event.ts, float) and abs(event.ts) >= MAX_EXACT_FLOAT_US:
        return _decode_tolerant(text)
    return Decoded(event)


def _decode_tolerant(raw: bytes) -> Decoded | None:
    parsed = parse_tolerant(raw)
    if parsed is None:
        return None
    event = _event_from(parsed.value)
    cleaned = event.name.encode("utf-8", "replace").decode()  # lone surrogates cannot be stored
    is_bad_utf8 = parsed.is_bad_utf8 or cleaned != event.name
    event.name = cleaned
    return Decoded(event, is_bad_utf8, parsed.num_not_numbers)


class Parsed(NamedTuple):
    """A JSON object and what was put right to read it."""

    value: dict[str, Any]
    is_bad_utf8: bool
    num_not_numbers: int


def parse_tolerant(raw: bytes) -> Parsed | None:
    """A JSON object, fractions as text; None when it is none.

    Invalid UTF-8 is replaced, words such as NaN are null, control characters are allowed.
    """
    text = raw.decode("utf-8", "replace")
    num_not_numbers = 0

    def null_for_token(match: re.Match[str]) -> str:
        nonlocal num_not_numbers
        if match[0].startswith('"'):
            return match[0]
        num_not_numbers += 1
        return "null"

    cleaned = _NOT_A_NUMBER.sub(null_for_token, text) if _MAY_BE_TOKEN.search(text) else text
    try:
        value = json.loads(cleaned, strict=False, parse_float=str)
    except (ValueError, RecursionError):
        return None
    return Parsed(value, text.encode() != raw, num_not_numbers)


def _event_from(found: Mapping[str, Any]) -> Event:
    args = found.get("args")
    return Event(
        ph=_text(found.get("ph")),
        cat=_text(found.get("cat")),
        name=_text(found.get("name")),
        pid=_number(found.get("pid")),
        tid=_number(found.get("tid")),
        ts=_number(found.get("ts")),
        dur=_number(found.get("dur", UNFINISHED_US)),
        args=_args_from(args) if isinstance(args, dict) else None,
    )


def _args_from(found: Mapping[str, Any]) -> Args:
    values: dict[str, Any] = {}
    for name, key in _ARG_KEYS.items():
        if key not in found:
            continue
        value = found[key]
        if name in _JSON_ARGS:
            values[name] = msgspec.Raw(json.dumps(value).encode())
        elif name in _TEXT_ARGS:
            values[name] = _text(value) or None
        else:
            values[name] = _number(value)
    return Args(**values)


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _number(value: object) -> Number:
    return value if isinstance(value, int | float | str) and not isinstance(value, bool) else None


def exact_ns(value: Number) -> int | None:
    """A time in us as whole ns, exact where it has at most three decimals; None when it is none.

    >>> exact_ns("1790857026001000.123")
    1790857026001000123
    """
    if value is None:
        return None
    try:
        us = Decimal(value)
        # adjusted() keeps a huge exponent from becoming a huge integer.
        return int((us * 1000).to_integral_value()) if us.is_finite() and us.adjusted() < 18 else None
    except (ArithmeticError, ValueError):
        return None


def to_int(value: Number) -> int | None:
    """An int64 from a number or its text ("0x1f" too); None when it is none.

    >>> to_int("0x10"), to_int(7.0), to_int("stream 7")
    (16, 7, None)
    """
    try:
        number = int(value, 0) if isinstance(value, str) else None if value is None else int(value)
    except (ValueError, OverflowError):
        return None
    return number if number is not None and -(1 << 63) <= number < 1 << 63 else None
