"""Examples in docstrings hold, and names that look alike are told apart."""

import doctest
from importlib import import_module
from pathlib import PurePath

import pytest

from fsdp_profile.ingest.kineto.names import collective_kind, rank_in_name


@pytest.mark.parametrize("module", ["names", "events", "stream"])
def test_docstring_examples(module):
    result = doctest.testmod(import_module(f"fsdp_profile.ingest.kineto.{module}"))
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize(
    ("path", "rank"),
    [
        ("rank0_trace.json", 0),
        ("trace_rank_12.json.gz", 12),
        ("prof_rank-3.json.gz", 3),
        ("r17-2031-1-1.1.pt.trace.json", 17),
        ("worker7_step_12.1694128201553.pt.trace.json.gz", 7),
        ("rank_00031/trace.json", 31),
        ("local_rank3.json", None),
        ("4ranks-2024.json", None),
        ("rank_not_found.json.gz", None),
        ("server3.json", None),
        ("networker5.json", None),
        ("vm_4242.1700000000.pt.trace.json", None),
        ("rank123456789012.json", None),
    ],
)
def test_rank_in_names(path, rank):
    assert rank_in_name(PurePath(path)) == rank


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("allreduce", "ALL_REDUCE"),
        ("_reduce_oop", "REDUCE"),
        ("_broadcast_oop", "BROADCAST"),
        ("reduce_scatter_tensor_coalesced", "REDUCE_SCATTER"),
        ("all_gather_into_tensor_coalesced", "ALL_GATHER"),
        ("all_to_allv", "ALL_TO_ALL"),
        ("send", "SEND_RECV"),
        ("recvAnySource", "SEND_RECV"),
        ("barrier", "BARRIER"),
        ("gather", "OTHER"),
        ("scatter", "OTHER"),
    ],
)
def test_collectives_as_torch_calls_them(name, kind):
    assert collective_kind(name) == kind
