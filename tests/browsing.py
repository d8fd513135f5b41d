"""A real browser for tests: how it starts, and what must never be seen in a page."""

import re
import shutil
from pathlib import Path

from playwright.sync_api import ConsoleMessage, expect

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


def is_outside(url: str) -> bool:
    """Whether a request leaves this machine."""
    return not re.match(r"(https?|wss?)://127\.0\.0\.1[:/]|data:|blob:", url)


def is_error(message: ConsoleMessage) -> bool:
    """Whether a page's console tells of an error of ours."""
    return message.type == "error" and not _PROBE.search(message.location.get("url", ""))
