"""The values that every renderer understands: sentences, facts and tables.

A sentence marks which of its words are names from a run, so that each renderer escapes them in its own way, and which
figures carry the sentence. A table holds raw numbers with their unit; a renderer chooses how they are written.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from fsdp_profile.core.humanize import bytes_text, ns_text, rate_text, ratio_text
from fsdp_profile.core.words import Word

NOT_RECORDED: Final = "not recorded"


class Mark(Enum):
    """How a renderer treats a part of a sentence."""

    PLAIN = "plain"
    """Our own words."""
    NAME = "name"
    """A name from a run: it may hold anything, and is shown as code where there is code."""
    STRONG = "strong"
    """The figure that the sentence is about."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some words of a sentence."""

    text: str
    mark: Mark = Mark.PLAIN


@dataclass(frozen=True, slots=True)
class Sentence:
    """One or more sentences of prose."""

    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """The words without marks."""
        return "".join(part.text for part in self.parts)

    def __add__(self, other: "Sentence") -> "Sentence":
        return Sentence((*self.parts, *other.parts))

    def __bool__(self) -> bool:
        return bool(self.parts)


def say(*parts: "str | Part | Sentence") -> Sentence:
    """A sentence from its parts; strings are our own words.

    >>> say("Rank ", strong("0"), " runs ", name("train.py"), ".").text
    'Rank 0 runs train.py.'
    """
    found: list[Part] = []
    for part in parts:
        if isinstance(part, Sentence):
            found += part.parts
        elif isinstance(part, Part):
            found.append(part)
        elif part:
            found.append(Part(part))
    return Sentence(tuple(found))


def name(text: str) -> Part:
    """A name from a run."""
    return Part(text, Mark.NAME)


def strong(text: str) -> Part:
    """The figure that a sentence is about."""
    return Part(text, Mark.STRONG)


def joined(sentences: Iterable[Sentence], separator: str) -> Sentence:
    """Several sentences as one.

    >>> joined([say("a"), say("b")], ", ").text
    'a, b'
    """
    found: list[str | Sentence] = []
    for sentence in sentences:
        found += [separator, sentence] if found else [sentence]
    return say(*found)


class Tone(Enum):
    """Whether a cell is a warning."""

    PLAIN = "plain"
    WARNING = "warning"
    FAILURE = "failure"


class Unit(Enum):
    """What the values of a column are."""

    TEXT = "text"
    """Our own words."""
    NAME = "name"
    """Names from a run."""
    CATEGORY = "category"
    """Members of Category, shown with their colour; words such as "total" have none."""
    COUNT = "count"
    BYTES = "bytes"
    BYTES_CHANGE = "bytes change"
    """Bytes with their sign."""
    NS = "ns"
    RATIO = "ratio"
    FINE_RATIO = "ratio, two decimals"
    RATE = "bytes/s"
    NUMBER = "number"
    """A number without a unit."""
    LOSS = "loss"
    DIFFERENCE = "difference"
    """Of two losses."""


Value = str | int | float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One column: what it is called, what its values are, and the values."""

    label: str
    unit: Unit
    values: tuple[Value, ...]
    absent: str = NOT_RECORDED
    """What stands for None."""
    is_named: bool = False
    """The label is a name from a run."""
    follows: bool = False
    """Stays beside the column before it where a table is too wide and goes on below."""
    tones: tuple[Tone, ...] = ()
    """Of each value; empty: all are plain."""

    @property
    def is_number(self) -> bool:
        """Whether the values are aligned to the right and sorted by size."""
        return self.unit not in (Unit.TEXT, Unit.NAME, Unit.CATEGORY)

    def texts(self) -> list[str]:
        """The values as people read them, one by one."""
        return [self.absent if value is None else value_text(value, self.unit) for value in self.values]


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Columns of one length; the first ones name the rows."""

    title: str = ""
    columns: tuple[Column, ...]
    note: str = ""
    """In which sense the numbers are meant: of which rank, over which steps."""
    num_totals: int = 0
    """Rows at the end that sum up the others."""
    num_keys: int = 1
    """Columns at the left that name the rows, repeated where a table goes on below."""

    @property
    def num_rows(self) -> int:
        """Rows, totals included."""
        return len(self.columns[0].values)

    def rows(self) -> list[tuple[str, ...]]:
        """The cells as people read them, row by row."""
        return list(zip(*(column.texts() for column in self.columns), strict=True))


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """A word and what it is."""

    label: str
    value: Sentence


def column(
    label: str,
    unit: Unit,
    values: Iterable[Value],
    *,
    absent: str = NOT_RECORDED,
    is_named: bool = False,
    follows: bool = False,
) -> Column:
    """A column from any iterable of values."""
    return Column(label=label, unit=unit, values=tuple(values), absent=absent, is_named=is_named, follows=follows)


def table(title: str, columns: Sequence[Column], *, note: str = "", num_totals: int = 0, num_keys: int = 1) -> Table:
    """A table from its columns.

    Raises:
        ValueError: the columns have different lengths.
    """
    if len({len(one.values) for one in columns}) > 1:
        raise ValueError(f"columns of '{title}' have different lengths")
    return Table(title=title, columns=tuple(columns), note=note, num_totals=num_totals, num_keys=num_keys)


def value_text(value: Value, unit: Unit) -> str:
    """A value as people read it.

    >>> value_text(1536, Unit.BYTES), value_text(-1536, Unit.BYTES_CHANGE), value_text(1234, Unit.COUNT)
    ('1.50 KiB', '-1.50 KiB', '1,234')
    """
    if value is None:
        return NOT_RECORDED
    if isinstance(value, Word):
        return value.label
    if isinstance(value, str):
        return value
    texts: dict[Unit, Callable[[float], str]] = {
        Unit.COUNT: lambda number: f"{number:,}",
        Unit.BYTES: lambda size: bytes_text(int(size)),
        Unit.BYTES_CHANGE: lambda size: f"{'+' if size > 0 else ''}{bytes_text(int(size))}" if size else "=",
        Unit.NS: lambda ns: ns_text(int(ns)),
        Unit.RATIO: ratio_text,
        Unit.FINE_RATIO: lambda ratio: f"{100 * ratio:.2f} %",
        Unit.RATE: rate_text,
        Unit.NUMBER: lambda number: f"{number:,.2f}" if isinstance(number, float) else f"{number:,}",
        Unit.LOSS: lambda loss: f"{loss:.6f}",
        Unit.DIFFERENCE: lambda difference: f"{difference:.1e}" if difference else "0",
    }
    return texts[unit](value)
