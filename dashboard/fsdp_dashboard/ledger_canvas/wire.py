"""Rows on their way to the browser: columns of whole numbers, packed small enough for a page.

Each column is its differences from row to row as float64 (exact up to 2**53), bytes of equal weight stand together,
and all of it is deflated: what web/common.js unpacks.
"""

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

Ints = np.ndarray[Any, np.dtype[np.int64]]


def packed(columns: Mapping[str, Ints]) -> dict[str, Any]:
    """Columns of one length as {rows, columns, text}."""
    names = list(columns)
    rows = len(columns[names[0]])
    values = np.concatenate([np.diff(columns[name], prepend=0) for name in names]).astype("<f8")
    planes = values.view(np.uint8).reshape(-1, 8).T
    text = base64.b64encode(zlib.compress(planes.tobytes(), 6)).decode("ascii")
    return {"rows": rows, "columns": names, "text": text}


def unpacked(found: Mapping[str, Any]) -> dict[str, Ints]:
    """The columns again, as the browser sees them."""
    count = found["rows"] * len(found["columns"])
    planes = np.frombuffer(zlib.decompress(base64.b64decode(found["text"])), np.uint8).reshape(8, count)
    values = np.ascontiguousarray(planes.T).view("<f8").reshape(len(found["columns"]), -1)
    return {name: row.cumsum().astype(np.int64) for name, row in zip(found["columns"], values, strict=True)}
