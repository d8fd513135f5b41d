"""Take the pictures of docs/images from the sample runs, in headless Chromium. Run by `make screenshots`.

The sample runs have no source lines: one with them is recorded first, on two CPU ranks.
"""

import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlencode

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from fsdp_dashboard import launch

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
RUNS = ("gpt-ddp-2ranks", "gpt-fsdp2-2ranks")
PAGES = ("overview", "compare", "memory", "source", "units", "collectives", "ranks", "traces", "share", "whatif")
RECORDED = "gpt-fsdp2-stacks"
OF_ONE_RUN = ("units", "collectives", "traces", "share")
MAX_BYTES = 250_000  # a larger picture is kept with 256 colours
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


def main(folder: Path, *, sizes: dict[str, tuple[int, int]], themes: tuple[str, ...]) -> None:
    """Every page in every size and theme, as <page>[_size_theme].png in the folder."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = int(s.getsockname()[1])
    work = tempfile.mkdtemp()
    shown = [*(ROOT / "sample_runs" / name for name in RUNS), _record(Path(work) / RECORDED)]
    server = subprocess.Popen(
        launch.command(shown, port=port, browser=False),
        env=launch.environment(shown),
        stdout=subprocess.DEVNULL,
        cwd=ROOT,  # the code is looked for here
    )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(f"{address}/_stcore/health")
        with sync_playwright() as playwright, tempfile.TemporaryDirectory() as profile:
            for size, (width, height) in sizes.items():
                for theme in themes:
                    context = playwright.chromium.launch_persistent_context(
                        f"{profile}/{size}{theme}",
                        executable_path=chromium,
                        args=FLAGS,
                        viewport={"width": width, "height": height},
                        color_scheme="dark" if theme == "dark" else "light",
                    )
                    page = context.new_page()
                    for name in PAGES:
                        suffix = "" if len(sizes) * len(themes) == 1 else f"_{size}_{theme}"
                        _shoot(page, address, name, folder / f"{name}{suffix}.png")
                    context.close()
    finally:
        server.terminate()
        server.wait(timeout=20)
        shutil.rmtree(work)


def _record(path: Path) -> Path:
    words = ["-m", "fsdp_profile", "run", "-n", "2", "--stacks", "--no-kineto", "--steps", "0:2", "-o", str(path)]
    subprocess.run([sys.executable, *words, "examples/train_fsdp2.py", "--steps", "2"], cwd=ROOT, check=True)
    return path


def _shoot(page: Page, address: str, name: str, path: Path) -> None:
    runs = (RECORDED,) if name == "source" else RUNS
    query = urlencode([("run", run) for run in runs] + ([("units_run", RUNS[1])] if name in OF_ONE_RUN else []))
    page.goto(f"{address}/{'' if name == 'overview' else name}?{query}")
    page.wait_for_selector(".js-plotly-plot, [data-testid='stDataFrame'], [data-testid='stTable']", timeout=60_000)
    page.wait_for_timeout(2500)
    # The page scrolls inside its main part: make the window as high as what is in it.
    height = page.evaluate("document.querySelector('[data-testid=\"stMainBlockContainer\"]').scrollHeight")
    size = page.viewport_size
    assert size is not None
    page.set_viewport_size({"width": size["width"], "height": int(height) + 20})
    page.wait_for_timeout(1500)
    page.screenshot(path=path)
    page.set_viewport_size(size)
    if path.stat().st_size > MAX_BYTES:
        with Image.open(path) as picture:
            fewer = picture.quantize(colors=256)
        fewer.save(path, optimize=True)


def _wait_for(address: str) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            urllib.request.urlopen(address, timeout=2).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise SystemExit("the server did not start within 60 s")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        target = Path(sys.argv[1])
        target.mkdir(parents=True, exist_ok=True)
        main(target, sizes={"wide": (1440, 900), "phone": (390, 844)}, themes=("light", "dark"))
    else:
        IMAGES.mkdir(exist_ok=True)
        main(IMAGES, sizes={"wide": (1200, 900)}, themes=("light",))
