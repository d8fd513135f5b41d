"""Real recordings on gloo, and the same scripts without us."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
SCRIPTS = Path(__file__).parent / "capture" / "scripts"

RECORDINGS = {
    "ddp": ("train_ddp.py", 2, ()),
    "ddp_bucket_view": ("train_ddp.py", 2, ("--bucket-view",)),
    "fsdp1": ("train_fsdp1.py", 2, ()),
    "fsdp2": ("train_fsdp2.py", 2, ()),
    "hsdp": ("train_hsdp.py", 4, ()),
}
NUM_STEPS = 3

TRAFFIC_RECORDINGS = {
    "ddp_4": ("train_ddp.py", 4, ()),
    "fsdp1_4": ("train_fsdp1.py", 4, ()),
    "fsdp2_4": ("train_fsdp2.py", 4, ()),
    "fsdp2_no_reshard": ("train_fsdp2.py", 2, ("--no-reshard",)),
    "fsdp2_no_reshard_4": ("train_fsdp2.py", 4, ("--no-reshard",)),
    "hsdp_2": ("train_hsdp.py", 2, ("--replicas", "2")),
}
"""More of the same, only for what depends on the number of ranks."""


def fsdp_profile(*arguments: str, **options: object) -> "subprocess.CompletedProcess[str]":
    """Run the command line as a user would."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **options.pop("env", {})}  # type: ignore[dict-item]
    return subprocess.run(
        [sys.executable, "-m", "fsdp_profile", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        env=environment,
        **options,  # type: ignore[call-overload]
    )


def torchrun(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """The same script without us."""
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
