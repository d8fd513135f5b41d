"""Blocks that a CUDA library allocated for itself."""

from pathlib import Path

import numpy as np
import pytest
from ingest.rank.test_attribution import tables_of

from fsdp_profile.core.categories import Category
from fsdp_profile.core.schema import NOT_FREED, Basis
from fsdp_profile.ingest.rank.attribution import CUBLAS_WORKSPACE_BYTES, _is_workspace, make_clock
from fsdp_profile.ingest.rank.capture_log import read_capture_log
from fsdp_profile.ingest.snapshot.frames import WORKSPACE_OPERATOR, describe_frame

DEFAULT, HOPPER = CUBLAS_WORKSPACE_BYTES


def test_a_stack_of_cublas_makes_a_workspace(tmp_path: Path) -> None:
    frame = {"name": "at::cuda::getCurrentCUDABlasHandle()", "filename": "??", "line": 0}
    assert describe_frame(frame) == (WORKSPACE_OPERATOR, "")
    found = tables_of(tmp_path, blocks=[(1, 8, 110, None)], operator=WORKSPACE_OPERATOR)["allocations"]
    assert found.column("category").to_pylist() == [Category.WORKSPACE]
    assert found.column("basis").to_pylist() == [Basis.LIFETIME]


@pytest.mark.parametrize(
    ("size_bytes", "start_ns", "end_ns", "expected"),
    [
        (DEFAULT, 110, None, True),  # forward of the first step
        (HOPPER, 210, None, True),  # its backward
        (HOPPER - 512, 110, None, False),
        (DEFAULT, 110, 210, False),  # freed: an activation
        (DEFAULT, 510, None, False),  # the last step: not known to outlive it
        (DEFAULT, 10, None, False),  # set-up
        (DEFAULT, 330, None, False),  # optimizer: state
    ],
)
def test_on_cuda_a_block_of_their_size_that_outlives_its_step_is_one(
    tmp_path: Path, size_bytes: int, start_ns: int, end_ns: int | None, expected: bool
) -> None:
    tables_of(tmp_path, blocks=[(1, size_bytes, start_ns, end_ns)])
    log = read_capture_log(tmp_path / "capture.jsonl")
    blocks = _Blocks(size_bytes, start_ns, NOT_FREED if end_ns is None else end_ns)
    rows = np.array([0])
    assert _is_workspace(log, blocks, rows, make_clock(log)).tolist() == [False]  # on CPU there is no cuBLAS
    log.cuda.append({})
    assert _is_workspace(log, blocks, rows, make_clock(log)).tolist() == [expected]


class _Blocks:
    def __init__(self, size_bytes: int, start_ns: int, end_ns: int) -> None:
        self.size_bytes, self.start_ns, self.end_ns = (np.array([v], np.int64) for v in (size_bytes, start_ns, end_ns))
        self.operator = np.array([0])
