"""Where the tests of ingest find recorded files."""

import os
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]


def find_traces() -> Path | None:
    """The folder of traces recorded by others: FSDP_PROFILE_TRACES, or traces kept beside the checkout."""
    given = os.environ.get("FSDP_PROFILE_TRACES")
    folder = Path(given) if given else CHECKOUT.parent / "shared" / "traces"
    return folder if folder.is_dir() else None


@pytest.fixture(scope="session")
def traces() -> Path:
    """That folder; tests that ask for it are skipped where there is none."""
    folder = find_traces()
    if folder is None:
        pytest.skip("no recorded traces: set FSDP_PROFILE_TRACES to their folder")
    return folder


@pytest.fixture(scope="session")
def snapshot_cases() -> Path:
    """Small synthetic snapshots, each with one property that readers get wrong."""
    return CHECKOUT / "tests" / "data" / "snapshots"


@pytest.fixture(scope="session")
def kineto_cases() -> Path:
    """Small synthetic traces, each with one property that readers get wrong."""
    return CHECKOUT / "tests" / "data" / "kineto"
