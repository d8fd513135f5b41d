"""Samples of the device (NVML) and of the host process (resident memory), by a thread of its own.

The thread only reads counters of the driver and of /proc; it never calls torch. It is not registered with `threading`:
a script that joins all threads must not wait for ours.
"""

import _thread
import os
import threading
from pathlib import Path
from typing import Any

from fsdp_profile.capture.recorder import now
from fsdp_profile.core.capture_log import DEVICE_SAMPLES, as_columns

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STATM = Path("/proc/self/statm")

Sample = tuple[int, int | None, int | None, int | None, float | None, int | None]
"""A row of capture_log.DEVICE_SAMPLES."""


class DeviceSampler:
    """Collects samples until stopped. `why_no_nvml` says why device columns are null."""

    def __init__(self, *, interval_s: float) -> None:
        self._interval_s = interval_s
        self._samples: list[Sample] = []
        self._stop = threading.Event()
        self._ended: threading.Event | None = None
        """Of the thread; None before it is started."""
        self._nvml: Any = None
        self._handle: Any = None
        self.why_no_nvml: str | None = None
        self.rss_bytes = 0
        """Resident memory of this process at the last sample; 0 where it is not known."""
        self._open_nvml()

    def start(self) -> None:
        """Take samples until `stop`."""
        self.sample()
        self._ended = threading.Event()
        _thread.start_new_thread(self._run, (self._ended,))

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._ended is not None:
            self._ended.wait(timeout=1.0)

    def use_device(self, uuid: str) -> None:
        """The device of this rank, by its UUID, once the process has chosen one."""
        if self._nvml is None or self._handle is not None:
            return
        try:
            self._handle = self._nvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")
        except self._nvml.NVMLError as e:
            self.why_no_nvml = f"NVML does not know device {uuid}: {e}"

    def sample(self) -> None:
        """One sample now."""
        used = mine = total = None
        utilization = None
        if self._handle is not None:
            try:
                memory = self._nvml.nvmlDeviceGetMemoryInfo(self._handle)
                used, total = int(memory.used), int(memory.total)
                utilization = self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu / 100
                for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle):
                    if process.pid == os.getpid() and process.usedGpuMemory is not None:
                        mine = int(process.usedGpuMemory)
            except self._nvml.NVMLError as e:
                self.why_no_nvml = f"NVML: {e}"
                self._handle = None
        rss = host_rss_bytes()
        self.rss_bytes = rss or 0
        self._samples.append((now(), used, mine, total, utilization, rss))

    def drain(self) -> dict[str, list[Any]]:
        """Samples since the last call, as columns."""
        taken, self._samples = self._samples, []
        return as_columns(DEVICE_SAMPLES, taken)

    def _run(self, ended: threading.Event) -> None:
        try:
            while not self._stop.wait(self._interval_s):
                self.sample()
        finally:
            ended.set()

    def _open_nvml(self) -> None:
        try:
            import pynvml
        except ImportError:
            self.why_no_nvml = "nvidia-ml-py is not installed"
            return
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            self.why_no_nvml = "no NVIDIA driver"
            return
        self._nvml = pynvml


def host_rss_bytes() -> int | None:
    """Resident memory of this process; None where /proc is not there."""
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return None
