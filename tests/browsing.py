"""A server of the dashboard and a real browser for tests: how both start, and what must never be seen in a page."""

import re
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import ConsoleMessage, expect

from fsdp_dashboard import launch

CHROMIUM = next((p for p in ("/usr/bin/chromium", shutil.which("chromium")) if p and Path(p).exists()), None)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
expect.set_options(timeout=30_000)  # machines of CI are busy: what is waited for comes, late
# Opened below the root, streamlit's page looks for the server beside the page's path too; it is not there.
_PROBE = re.compile(
    r"/(runs|compare|memory|source|units|collectives|ranks|traces|share|whatif)/_stcore/(health|host-config)$"
)


@contextmanager
def served(path: Path) -> Iterator[tuple[str, int]]:
    """The address of a server that shows a run or a folder of runs, and its process."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    process = subprocess.Popen(
        launch.command([path], port=port, browser=False),
        env=launch.environment([path]),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(f"{address}/_stcore/health", process)
        yield address, process.pid
    finally:
        process.terminate()
        process.communicate(timeout=20)


def _wait_for(address: str, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        assert process.poll() is None, process.communicate()[0].decode()
        try:
            urllib.request.urlopen(address, timeout=2).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError("the server did not start within 60 s")


def is_outside(url: str) -> bool:
    """Whether a request leaves this machine."""
    return not re.match(r"(https?|wss?)://127\.0\.0\.1[:/]|data:|blob:", url)


def is_error(message: ConsoleMessage) -> bool:
    """Whether a page's console tells of an error of ours."""
    return message.type == "error" and not _PROBE.search(message.location.get("url", ""))
