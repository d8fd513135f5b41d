"""Facts about a rank's process, libraries and device, none of which initializes the device."""

import contextlib
import os
import platform
import sys
from pathlib import Path
from typing import Any

from fsdp_profile import __version__
from fsdp_profile.capture.recorder import now

_BACKEND = [""]
"""The process group's backend: at exit the group is gone."""


def has_device(torch: Any) -> bool:
    """Whether this torch could use a device here, without initializing the driver, which would break a later fork."""
    if torch.version.cuda is not None:
        return Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists()
    return getattr(torch.version, "hip", None) is not None and Path("/dev/kfd").exists()


def process_facts(rank: int, world_size: int | None = None) -> dict[str, Any]:
    """The process: rank, host, pid, arguments, Python; the size of the job from the environment unless it is known."""
    return {
        "rank": rank,
        "local_rank": int(os.environ.get("LOCAL_RANK", rank)),
        "world_size": world_size or int(os.environ.get("WORLD_SIZE", 1)),
        "host": platform.node(),
        "pid": os.getpid(),
        "start_ns": now(),
        "argv": list(getattr(sys, "orig_argv", sys.argv)),
        "python": platform.python_version(),
        "fsdp-profile": __version__,
    }


def library_facts() -> dict[str, Any]:
    """Versions and devices; does not initialize a device."""
    torch = sys.modules.get("torch")
    if torch is None:
        return {"torch": None}
    facts: dict[str, Any] = {
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "device_type": "cpu",
        "device_name": platform.processor() or platform.machine(),
        "device_total_bytes": None,
        "backend": "",
    }
    with contextlib.suppress(Exception):
        facts["backend"] = _BACKEND[0]
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            properties = torch.cuda.get_device_properties(torch.cuda.current_device())
            facts["device_type"] = "cuda"
            facts["device_name"] = properties.name
            facts["device_total_bytes"] = int(properties.total_memory)
            facts["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return facts


def note_backend(name: str) -> None:
    """Remember the process group's backend: at exit the group is gone."""
    _BACKEND[0] = name
