"""A server as a child of this process, for as long as something looks at it: tests, pictures, benchmarks."""

import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from fsdp_dashboard import launch

_START_S: Final = 120
_STOP_S: Final = 20


@contextmanager
def served(paths: Sequence[Path], *, cwd: Path | None = None) -> Iterator[tuple[str, int]]:
    """The address of a server that shows these runs, and its process; it ends with the block.

    Args:
        paths: runs, bundles or folders of them.
        cwd: where the server runs: source files of the runs are looked for there.

    Raises:
        RuntimeError: it did not start; what it said.
    """
    with socket.socket() as s:
        s.bind((launch.HOST, 0))
        port = int(s.getsockname()[1])
    address = f"http://{launch.HOST}:{port}"
    with tempfile.TemporaryFile() as said:  # a pipe that nobody reads would stop it when full
        process = subprocess.Popen(
            launch.command(paths, port=port, browser=False),
            env=launch.environment(paths),
            stdout=said,
            stderr=subprocess.STDOUT,
            cwd=cwd,
        )
        try:
            _wait_for(f"{address}/_stcore/health", process, said)
            yield address, process.pid
        finally:
            process.terminate()
            process.wait(timeout=_STOP_S)


def _wait_for(address: str, process: "subprocess.Popen[bytes]", said: IO[bytes]) -> None:
    until = time.monotonic() + _START_S
    while time.monotonic() < until:
        if process.poll() is not None:
            said.seek(0)
            raise RuntimeError(f"the server did not start: {said.read().decode(errors='replace')}")
        try:
            urllib.request.urlopen(address, timeout=2).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"the server did not start within {_START_S} s")
