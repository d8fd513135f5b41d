"""How `fsdp-profile dashboard` starts the server: one command line, one environment.

Only this machine can reach it, nothing is sent anywhere, and no question is asked at the start. Streamlit is
not imported here, so that a missing extra is one line.
"""

import importlib.util
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import fsdp_profile
from fsdp_profile.core import layout
from fsdp_profile.core.errors import InputError, MissingExtraError

ENV_RUNS: Final = "FSDP_PROFILE_RUNS"
"""Where the server looks for runs: paths joined by os.pathsep, each a run or a folder of runs."""

HOST: Final = "127.0.0.1"
_NEEDED: Final = ("streamlit", "plotly", "pandas")
_ACCENT: Final = "#4e6be8"

_OPTIONS: Final = {
    "server.address": HOST,
    "server.fileWatcherType": "none",
    "server.showEmailPrompt": "false",
    "server.runOnSave": "false",
    "server.enableStaticServing": "false",
    "browser.gatherUsageStats": "false",
    "browser.serverAddress": HOST,
    "global.disableWidgetStateDuplicationWarning": "true",  # the Runs page chooses for the sidebar
    "client.toolbarMode": "minimal",
    "client.showErrorDetails": "none",
    "client.showErrorLinks": "false",
    "theme.light.primaryColor": _ACCENT,
    "theme.dark.primaryColor": _ACCENT,
    "theme.paddingTop": "1rem",
    "theme.paddingBottom": "3rem",
}
_ALLOWED_HOSTS: Final = ("localhost", HOST)


def command(paths: Sequence[Path | str] = (), *, port: int | None = None, browser: bool = True) -> list[str]:
    """The command line of the server; give it the `environment` of the same paths.

    Without a port the first free one from 8501 on is taken. Without `browser` nothing is opened.

    Raises:
        MissingExtraError: streamlit, plotly or pandas is not installed.
        InputError: one of the paths is missing, holds no run, or cannot be passed on.
    """
    if any(importlib.util.find_spec(name) is None for name in _NEEDED):
        raise MissingExtraError("the dashboard", "dashboard")
    for path in paths:
        layout.find_runs(Path(path))
        if os.pathsep in str(Path(path).absolute()):
            raise InputError(f"{path}: '{os.pathsep}' separates paths; open the folder above it instead")
    options = {**_OPTIONS, "server.headless": "false" if browser else "true"}
    if port is not None:
        options["server.port"] = str(port)
    words = [sys.executable, "-m", "streamlit", "run", str(Path(__file__).with_name("app.py"))]
    for name, value in options.items():
        words += [f"--{name}", value]
    for host in _ALLOWED_HOSTS:
        words += ["--server.allowedHosts", host]
    return words


def is_free(port: int) -> bool:
    """Whether nobody listens on a port of this machine."""
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind((HOST, port))
        except OSError:
            return False
    return True


def environment(paths: Sequence[Path | str] = (), *, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of the server: `base` (this process's own), the runs to show, and the packages' place.

    Without paths the server shows ./runs and the sample runs that came with the project.
    """
    found = dict(os.environ if base is None else base)
    if paths:
        found[ENV_RUNS] = os.pathsep.join(str(Path(path).absolute()) for path in paths)
    roots = [str(Path(__file__).parents[1]), str(Path(fsdp_profile.__file__ or "").parents[1])]
    kept = [part for part in found.get("PYTHONPATH", "").split(os.pathsep) if part and part not in roots]
    found["PYTHONPATH"] = os.pathsep.join([*dict.fromkeys(roots), *kept])
    return found
