"""The ledger of a rank packed for a page: downsampled so that any run fits; every row is a real allocator event.

[Note: Two levels]
The whole run is downsampled to at most MAX_ROWS rows (analysis/memory/downsampling.py), and the step of the peak adds
up to MAX_STEP_ROWS more, so that the page can be zoomed to single events there. A ledger that compresses badly gets
fewer rows, so that two of them fit a page of 2 MB. Columns are differences from row to row, as float64, which holds
whole numbers up to 2**53 exactly.
"""

import base64
import gzip
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from fsdp_profile.analysis.memory.downsampling import kept_rows
from fsdp_profile.analysis.memory.ledger import Ints, Timeline
from fsdp_profile.core.categories import STACK_ORDER, Category

MAX_ROWS: Final = 80_000
MAX_STEP_ROWS: Final = 20_000
MAX_CHARS: Final = 920_000
"""Largest length of the packed text."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedLedger:
    """Rows of a ledger as the page's script reads them."""

    categories: tuple[Category, ...]
    """Those with bytes, in the order of a stack."""
    num_rows: int
    num_events: int
    """Rows of the ledger itself."""
    zero_ns: int
    """Unix time of the first row; times in the page count from it."""
    text: str
    """Base64 of gzip of float64: times, then each category, as differences."""


def pack(ledger: Timeline, *, step: Ints) -> PackedLedger:
    """Pack a ledger; `step` are the rows of the step that is downsampled less."""
    used = [category for category in STACK_ORDER if ledger.by_category[category].any()]
    share = 1
    while True:
        rows = _rows(ledger, step, share)
        text = _packed([ledger.t_ns[rows] - ledger.t_ns[0], *(ledger.by_category[c][rows] for c in used)])
        if len(text) <= MAX_CHARS or len(rows) < 1_000:
            break
        share *= 2
    return PackedLedger(
        categories=tuple(used),
        num_rows=len(rows),
        num_events=len(ledger.t_ns),
        zero_ns=int(ledger.t_ns[0]),
        text=text,
    )


def _rows(ledger: Timeline, step: Ints, share: int) -> Ints:
    total, t_ns = ledger.allocated_bytes, ledger.t_ns
    rows = kept_rows(total, t_ns, max_rows=MAX_ROWS // share)
    if not len(step):
        return rows
    return np.union1d(rows, step[kept_rows(total[step], t_ns[step], max_rows=MAX_STEP_ROWS // share)])


def _packed(columns: list[Ints]) -> str:
    content = b"".join(_differences(column).tobytes() for column in columns)
    return base64.b64encode(gzipped(content)).decode("ascii")


def _differences(column: Ints) -> "np.ndarray[Any, np.dtype[np.float64]]":
    return np.diff(column, prepend=0).astype("<f8")


def gzipped(content: bytes) -> bytes:
    """The same bytes for the same content: no time and no name in the header."""
    return gzip.compress(content, compresslevel=9, mtime=0)
