"""What this machine and this Python environment let a run record: for `fsdp-profile doctor`.

Nothing here imports torch or starts a process; versions come from the installed packages' metadata.
"""

import importlib.util
import os
import re
import shutil
import socket
import sys
import sysconfig
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import psutil

from fsdp_profile.core.humanize import bytes_text
from fsdp_profile.core.machine import Fact, State

OLDEST_TORCH: Final = (2, 4)
NEWEST_TORCH: Final = (2, 15)
"""The newest torch in whose sources the private names that the hooks use were checked."""
FEW_FREE_BYTES: Final = 1 << 30
"""Free disk space below which to warn: a window with Kineto traces of a larger model takes some hundred MB a rank."""
AUTOSTART: Final = "fsdp_profile_autostart.pth"
CAPTURE_EXTRA: Final = "pip install 'fsdp-profile[capture]'"


def facts(folder: Path) -> list[Fact]:
    """All checks of what a run in `folder` can record, most important first."""
    devices = device_fact()
    return [torch_fact(), torch_build_fact(devices), devices, host_fact(), folder_fact(folder), loopback_fact(),
            dashboard_fact(), hta_fact(), autostart_fact()]  # fmt: skip


def torch_fact() -> Fact:
    """Whether torch is installed, in a version that the hooks were checked with."""
    version = _version("torch")
    if version is None:
        return Fact(name="torch", state=State.MISSING, found="not installed: show, compare, check, plan --params work",
                    action=CAPTURE_EXTRA)  # fmt: skip
    known = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if known < OLDEST_TORCH:
        return Fact(name="torch", state=State.MISSING, found=version, action="recording needs torch 2.4 or newer")
    if known > NEWEST_TORCH:
        newest = ".".join(map(str, NEWEST_TORCH))
        return Fact(name="torch", state=State.LIMITED, found=f"{version}: newer than the last one checked, {newest}",
                    action="see below what the trial could not record")  # fmt: skip
    return Fact(name="torch", state=State.OK, found=version)


def torch_build_fact(devices: Fact) -> Fact:
    """Whether torch was built for this machine's devices; '+cpu' in its version means that it was not."""
    version = _version("torch") or ""
    if "+cpu" in version and devices.state is State.OK:
        return Fact(name="torch's build", state=State.LIMITED, found="for CPU only, although there are devices",
                    action="install a build of torch for CUDA")  # fmt: skip
    build = version.partition("+")[2]
    return Fact(name="torch's build", state=State.OK, found=build or ("as on PyPI" if version else "not installed"))


def device_fact() -> Fact:
    """The devices that NVML sees, and its driver."""
    name = "devices (NVML)"
    if importlib.util.find_spec("pynvml") is None:
        return Fact(name=name, state=State.LIMITED, found="not known: no NVML bindings",
                    action="pip install nvidia-ml-py")  # fmt: skip
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as e:
        return Fact(name=name, state=State.LIMITED, found=f"none ({e}): ranks run on the CPU, with gloo")
    try:
        return Fact(name=name, state=State.OK, found=_devices_text(pynvml))
    except pynvml.NVMLError as e:
        return Fact(name=name, state=State.LIMITED, found=f"NVML: {e}", action="see whether nvidia-smi works")
    finally:
        pynvml.nvmlShutdown()


def _devices_text(nvml: Any) -> str:
    counted: dict[str, int] = {}
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        name = nvml.nvmlDeviceGetName(handle)
        text = f"{_text(name)} of {bytes_text(nvml.nvmlDeviceGetMemoryInfo(handle).total)}"
        counted[text] = counted.get(text, 0) + 1
    found = ", ".join(f"{count} x {text}" for text, count in counted.items()) or "none"
    return f"{found}; driver {_text(nvml.nvmlSystemGetDriverVersion())}"


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)  # bytes in old bindings


def host_fact() -> Fact:
    """Cores that this process may use, and host memory."""
    memory = psutil.virtual_memory()
    cores = len(os.sched_getaffinity(0))
    free = f"{bytes_text(memory.available)} free of {bytes_text(memory.total)}"
    return Fact(name="host", state=State.OK, found=f"{cores} core{'s' if cores != 1 else ''}, {free}")


def folder_fact(folder: Path) -> Fact:
    """Whether runs can be written below a folder and into the temporary one, and how much fits."""
    name = "place for runs"
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        return Fact(name=name, state=State.MISSING, found=f"{there} is not writable", action="record with run -o DIR")
    try:
        temporary = Path(tempfile.gettempdir())
    except FileNotFoundError:
        return Fact(name=name, state=State.MISSING, found="no temporary folder is writable", action="set TMPDIR")
    free = min(shutil.disk_usage(there).free, shutil.disk_usage(temporary).free)
    if free < FEW_FREE_BYTES:
        return Fact(name=name, state=State.LIMITED, found=f"{there}: only {bytes_text(free)} free",
                    action="record with run -o DIR on another disk, or --no-kineto")  # fmt: skip
    return Fact(name=name, state=State.OK, found=f"{there}: {bytes_text(free)} free")


def loopback_fact() -> Fact:
    """Whether ranks of one machine can find each other, and a browser the dashboard."""
    try:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()
    except OSError as e:
        return Fact(name="loopback", state=State.MISSING, found=f"127.0.0.1: {e.strerror or e}",
                    action="allow this process to listen on 127.0.0.1")  # fmt: skip
    return Fact(name="loopback", state=State.OK, found="127.0.0.1 can be listened on")


def dashboard_fact() -> Fact:
    """Whether `fsdp-profile dashboard` has what it needs."""
    return _extra("dashboard", ("streamlit", "plotly", "pandas"), "dashboard")


def hta_fact() -> Fact:
    """Whether `fsdp-profile hta` has what it needs."""
    return _extra("HTA", ("hta",), "hta")


def _extra(name: str, modules: tuple[str, ...], extra: str) -> Fact:
    lacking = [module for module in modules if importlib.util.find_spec(module) is None]
    if lacking:
        return Fact(name=name, state=State.LIMITED, found=f"not installed: {', '.join(lacking)}",
                    action=f"pip install 'fsdp-profile[{extra}]'")  # fmt: skip
    return Fact(name=name, state=State.OK, found="installed")


def autostart_fact() -> Fact:
    """Whether FSDP_PROFILE=1 records: the wheel's .pth file has to lie in site-packages."""
    places = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *sys.path}
    if any((Path(place) / AUTOSTART).is_file() for place in places if place.endswith(("-packages", "dist-packages"))):
        return Fact(name="FSDP_PROFILE=1", state=State.OK, found=f"{AUTOSTART} is in site-packages")
    return Fact(name="FSDP_PROFILE=1", state=State.LIMITED, found=f"does nothing: no {AUTOSTART} in site-packages",
                action="install the wheel, or use fsdp-profile run")  # fmt: skip


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
