"""Which rows of a `units` table are sharded, and which are named after a module."""

from typing import Any

import numpy as np
import pyarrow as pa

from fsdp_profile.core.units import is_bucket
from fsdp_profile.ingest.tables import numbers, strings

Bools = np.ndarray[Any, np.dtype[np.bool_]]


def is_sharded(units: pa.Table) -> Bools:
    """For each unit whether its parameters are divided over ranks."""
    found: Bools = numbers(units, "shard_size") > 1
    return found


def is_module(units: pa.Table) -> Bools:
    """For each unit whether it is named after a module; a bucket of gradients is not."""
    return np.array([not is_bucket(str(kind)) for kind in strings(units, "kind")], np.bool_)
