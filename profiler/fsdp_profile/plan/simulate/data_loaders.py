"""Data loaders of a simulated script load in its own process: a worker's process would send it fake tensors."""

import functools
from typing import Any

from torch.utils.data import DataLoader

_FOR_WORKERS = ("prefetch_factor", "persistent_workers", "multiprocessing_context", "worker_init_fn", "timeout")
_NUM_WORKERS_AT = 5
"""Place of num_workers, the data set being 0 (torch 2.4 .. 2.15)."""


def install() -> None:
    """Every DataLoader made from here on has no workers."""
    original = DataLoader.__init__

    @functools.wraps(original)
    def init(loader: Any, *args: Any, **kwargs: Any) -> None:
        for name in _FOR_WORKERS:
            kwargs.pop(name, None)
        given = list(args)
        if len(given) > _NUM_WORKERS_AT:
            given[_NUM_WORKERS_AT] = 0
        else:
            kwargs["num_workers"] = 0
        original(loader, *given, **kwargs)

    DataLoader.__init__ = init  # type: ignore[method-assign, assignment]
