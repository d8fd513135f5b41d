"""Take the pictures of docs/images, which docs/tour.md shows, in headless Chromium. Run by `make screenshots`.

Every page at a desk's and a phone's size, light and dark, as WebP files. `--pages memory ranks` takes those of some
pages again; `-o FOLDER` puts them elsewhere. The sample runs have no source lines: a run with them is recorded first,
on two CPU ranks, where the Source page is wanted. The 1,024 ranks are generated, as in the tests.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlencode

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from fsdp_dashboard.serving import served

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
SAMPLES = ROOT / "sample_runs"
RECORDED, GENERATED = "gpt-fsdp2-stacks", "1024-ranks"
BOTH = [("run", "gpt-ddp-2ranks"), ("run", "gpt-fsdp2-2ranks")]
ONE = [*BOTH, ("units_run", "gpt-fsdp2-2ranks")]
# Page -> what its link asks for.
PAGES = {
    "overview": BOTH,
    "runs": [*BOTH, ("words", "gpt"), ("sort", "most saved")],
    "compare": BOTH,
    "memory": BOTH,
    "source": [("run", RECORDED)],
    "units": [*ONE, ("units_by", "exposed time")],
    "collectives": ONE,
    "ranks": [("run", "gpt-hsdp-4ranks")],
    "traces": ONE,
    "share": ONE,
    "whatif": BOTH,
}
# Page -> a further picture of it: its name, and what its link asks for.
MORE = {
    "memory": ("recording", [*BOTH, ("step", "all")]),
    "ranks": ("ranks1024", [("run", GENERATED), ("measure", "made others wait")]),
}
SIZES = {"wide": (1440, 1150), "phone": (390, 1000)}
THEMES = ("light", "dark")
WIDTH_PX = 1080  # of a picture of the desk's size; a phone's stays as it is
MAX_BYTES = 150_000
DRAWN = ".js-plotly-plot, .plot[data-paints], [data-testid='stDataFrame'], [data-testid='stTable']"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


def main(words: Sequence[str] | None = None) -> None:
    """Start the server and take the pictures that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", nargs="+", default=list(PAGES), choices=list(PAGES), help="take these only")
    parser.add_argument("-o", "--output", type=Path, default=IMAGES, help="folder (default: docs/images)")
    args = parser.parse_args(words)
    args.output.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp())
    try:
        runs = [*sorted(path for path in SAMPLES.iterdir() if path.is_dir())]
        runs += [_record(work / RECORDED)] if "source" in args.pages else []
        runs += [_generate(work / GENERATED)] if "ranks" in args.pages else []
        take(runs, args.pages, args.output)
    finally:
        shutil.rmtree(work)


def take(runs: list[Path], pages: Sequence[str], folder: Path) -> None:
    """<page>_<size>_<theme>.webp of every page."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    shots = [(page, page, PAGES[page]) for page in pages]
    shots += [(page, *MORE[page]) for page in pages if page in MORE]
    # The code that a run names is looked for where the server runs.
    with served(runs, cwd=ROOT) as (address, _), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        for size, (width, height) in SIZES.items():
            for theme in THEMES:
                context = browser.new_context(
                    viewport={"width": width, "height": height},
                    color_scheme="dark" if theme == "dark" else "light",
                )
                window = context.new_page()
                for page, name, query in shots:
                    _shoot(window, f"{address}/{'' if page == 'overview' else page}?{urlencode(query)}")
                    _save(window.screenshot(), folder / f"{name}_{size}_{theme}.webp")
                context.close()
        browser.close()


def _record(path: Path) -> Path:
    words = ["-m", "fsdp_profile", "run", "-n", "2", "--stacks", "--no-kineto", "--steps", "0:2", "-o", str(path)]
    subprocess.run([sys.executable, *words, "examples/train_fsdp2.py", "--steps", "2"], cwd=ROOT, check=True)
    return path


def _generate(path: Path) -> Path:
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "dashboard" / "views" / "ranks")]
    from test_many_ranks import many_ranks

    return Path(many_ranks(path).path)


def _shoot(page: Page, address: str) -> None:
    page.goto(address)
    page.wait_for_selector(DRAWN, timeout=60_000)
    page.wait_for_selector("[data-testid='stStatusWidget']", state="detached", timeout=60_000)
    page.wait_for_timeout(1500)


def _save(shot: bytes, path: Path) -> None:
    """As WebP, in as good a quality as fits."""
    raw = path.with_suffix(".png")
    raw.write_bytes(shot)
    with Image.open(raw) as picture:
        image = picture.convert("RGB")
    raw.unlink()
    if image.width > WIDTH_PX:
        image = image.resize((WIDTH_PX, round(image.height * WIDTH_PX / image.width)), Image.Resampling.LANCZOS)
    for quality in (88, 75, 60, 40):
        image.save(path, quality=quality, method=6)
        if path.stat().st_size <= MAX_BYTES:
            return
    raise SystemExit(f"{path}: larger than {MAX_BYTES:,} bytes at the lowest quality")


if __name__ == "__main__":
    main()
