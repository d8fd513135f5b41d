"""The ledger of a rank packed for a page: few enough rows for any run, such that every one of them was.

[Note: Two levels]
Of the whole run at most MAX_ROWS rows are kept (thinning.py), and of the step of the peak as many again as fit
MAX_STEP_ROWS: there the page can be zoomed to single events. Columns are differences from row to row, as float64,
which holds whole numbers up to 2**53 exactly; gzip makes little of them.
"""

import base64
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from fsdp_profile.analysis.memory import Ints, Timeline
from fsdp_profile.analysis.thinning import kept_rows
from fsdp_profile.colours import STACK_ORDER
from fsdp_profile.export.files import gzipped

MAX_ROWS: Final = 30_000
MAX_STEP_ROWS: Final = 15_000


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedLedger:
    """Rows of a ledger as the page's script reads them."""

    categories: tuple[str, ...]
    """Those with bytes, in the order of a stack."""
    num_rows: int
    zero_ns: int
    """Unix time of the first row; times in the page count from it."""
    text: str
    """Base64 of gzip of float64: times, then each category, as differences."""


def pack(ledger: Timeline, *, step: Ints) -> PackedLedger:
    """Pack a ledger; `step` are the rows of the step that is kept finer."""
    total = ledger.allocated_bytes
    rows = kept_rows(total, max_rows=MAX_ROWS)
    if len(step):
        rows = np.union1d(rows, step[kept_rows(total[step], max_rows=MAX_STEP_ROWS)])
    used = [category for category in STACK_ORDER if ledger.by_category[category].any()]
    zero = int(ledger.t_ns[0])
    columns = [ledger.t_ns[rows] - zero, *(ledger.by_category[category][rows] for category in used)]
    content = b"".join(_differences(column).tobytes() for column in columns)
    return PackedLedger(
        categories=tuple(str(category) for category in used),
        num_rows=len(rows),
        zero_ns=zero,
        text=base64.b64encode(gzipped(content)).decode("ascii"),
    )


def _differences(column: Ints) -> "np.ndarray[Any, np.dtype[np.float64]]":
    return np.diff(column, prepend=0).astype("<f8")
