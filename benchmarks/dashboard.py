"""How the dashboard feels: a sample run beside a made-up one of 10 million events, in headless Chromium.

Medians of several rounds, the two runs in turn, on one machine in one go: time to first content, switch of page, zoom
to painted (rows picked in the browser, and finer ones asked from the server), and what each page sends after the
scripts of Streamlit itself. Asserts that the server never loads torch, that the overview of the long run opens none
of its events once it was looked at, and that no page sends more than 2 MB or asks anybody but this machine.
"""

import argparse
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, Page, expect, sync_playwright

from fsdp_dashboard.serving import served

ROOT: Final = Path(__file__).resolve().parents[1]
SAMPLE: Final = ROOT / "sample_runs" / "gpt-fsdp2-2ranks"
PAGES: Final = ("", "memory", "memory?step=all", "source", "units", "collectives", "ranks", "compare")
"""Those that draw a run; the walk in tests/dashboard/ledger_canvas/test_long_run.py opens all."""
MAX_SENT_BYTES: Final = 2_000_000
WAIT_MS: Final = 300_000
FLAGS: Final = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
PLOT: Final = (
    "[...document.querySelectorAll('*')]"
    ".flatMap(e => e.shadowRoot ? [...e.shadowRoot.querySelectorAll('.plot')] : [])[0]"
)
ZOOM: Final = f"""async () => {{
  const plot = {PLOT}, begun = performance.now(), paints = plot.dataset.paints;
  plot.dispatchEvent(new KeyboardEvent('keydown', {{key: '+'}}));
  while (plot.dataset.paints === paints) await new Promise(requestAnimationFrame);
  await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - begun;
}}"""
DEEPER: Final = f"""async () => {{
  const plot = {PLOT}, begun = performance.now(), bin = plot.dataset.bin;
  while (plot.dataset.bin === bin) await new Promise(requestAnimationFrame);
  return performance.now() - begun;
}}"""


class Traffic:
    """What a page receives but for the scripts, styles and fonts of Streamlit itself, which the browser keeps."""

    def __init__(self, page: Page) -> None:
        self.num_bytes = 0
        self.problems: list[str] = []
        page.on("websocket", lambda ws: ws.on("framereceived", self._frame))
        page.on("requestfinished", self._finished)
        page.on("request", self._request)
        page.on("pageerror", lambda error: self.problems.append(str(error)))

    def _frame(self, payload: Any) -> None:
        self.num_bytes += len(payload)

    def _finished(self, request: Any) -> None:
        if "/static/" not in request.url and request.url.startswith("http"):
            self.num_bytes += int(request.sizes()["responseBodySize"])

    def _request(self, request: Any) -> None:
        if not re.match(r"(https?|wss?)://127\.0\.0\.1[:/]|data:|blob:", request.url):
            self.problems.append(f"request to {request.url}")


def settled(page: Page) -> None:
    """Nothing runs any more, and what the page is about is there."""
    expect(page.get_by_test_id("stHeading").first).to_be_visible(timeout=WAIT_MS)
    expect(page.locator("[data-test-script-state=notRunning]")).to_have_count(1, timeout=WAIT_MS)


def plotted(page: Page) -> None:
    """The memory page's ledger is painted."""
    expect(page.locator(".plot[data-paints]").first).to_be_visible(timeout=WAIT_MS)


def timed(act: Callable[[], None]) -> float:
    """Milliseconds of wall time."""
    begin = time.perf_counter()
    act()
    return (time.perf_counter() - begin) * 1e3


def first_content(browser: Browser, address: str) -> float:
    """From the request to the overview's verdict, scripts from the cache of no earlier page."""
    page = browser.new_page()

    def act() -> None:
        page.goto(address)
        expect(page.get_by_text("peaks at").first).to_be_visible(timeout=WAIT_MS)

    try:
        return timed(act)
    finally:
        settled(page)
        page.close()


def page_switch(page: Page) -> float:
    """From the click on Memory to its paint, coming from Units."""
    page.get_by_test_id("stSidebarNavLink").filter(has_text="Units").click()
    expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible(timeout=WAIT_MS)
    settled(page)
    link = page.get_by_test_id("stSidebarNavLink").filter(has_text="Memory")

    def act() -> None:
        link.click()
        plotted(page)

    return timed(act)


def zooms(page: Page, address: str) -> tuple[list[float], float | None]:
    """Zooms of the whole recording, rows picked in the browser; then one whose rows the server sends."""
    page.goto(f"{address}/memory?step=all")
    plotted(page)
    settled(page)
    times = [float(page.evaluate(ZOOM)) for _ in range(6)]
    if page.evaluate(f"{PLOT}.dataset.bin") == "1":
        return times, None
    for _ in range(12):
        page.evaluate(ZOOM)
        if page.evaluate(f"Number({PLOT}.dataset.rows)") < 400:
            return times, float(page.evaluate(DEEPER))
    return times, None


def sent(browser: Browser, address: str) -> dict[str, int]:
    """Bytes of every page."""
    found = {}
    for name in PAGES:
        page = browser.new_page()
        traffic = Traffic(page)
        page.goto(f"{address}/{name}")
        settled(page)
        page.wait_for_timeout(1_500)
        assert not traffic.problems, traffic.problems
        assert traffic.num_bytes <= MAX_SENT_BYTES, (name, traffic.num_bytes)
        found[name or "overview"] = traffic.num_bytes
        page.close()
    return found


def is_loaded(pid: int, library: str) -> bool:
    """Whether a process has a library in its memory."""
    return library in Path(f"/proc/{pid}/maps").read_text()


def bytes_read(pid: int) -> int:
    """Bytes that a process has read so far, from files and sockets."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("rchar:"))


def measure(browser: Browser, run: Path, rounds: int) -> dict[str, str]:
    """One column of the table."""
    with served([run], cwd=ROOT) as (address, pid):
        cold = first_content(browser, address)
        sizes = sent(browser, address)
        warm = [first_content(browser, address) for _ in range(rounds)]
        page = browser.new_page()
        page.goto(address)
        settled(page)
        switches = [page_switch(page) for _ in range(rounds)]
        found = [zooms(page, address) for _ in range(rounds)]
        assert not is_loaded(pid, "libtorch"), "the server loaded torch"
    with served([run], cwd=ROOT) as (address, pid):  # a new server, after the run was looked at once
        before = bytes_read(pid)
        again = first_content(browser, address)
        read = bytes_read(pid) - before
    events = max(path.stat().st_size for path in run.glob("rank_*/memory_samples.parquet"))
    if events > 50e6:
        assert read < events, f"the overview read {read:,} bytes"
    deeper = [ms for _, ms in found if ms is not None]
    return {
        "first content, first look": f"{cold:,.0f} ms",
        "first content, new server": f"{again:,.0f} ms ({read / 1e6:,.0f} MB read, imports included)",
        "first content, later": f"{statistics.median(warm):,.0f} ms",
        "switch to Memory": f"{statistics.median(switches):,.0f} ms",
        "zoom to painted": f"{statistics.median([ms for times, _ in found for ms in times]):,.0f} ms",
        "zoom, rows asked": f"{statistics.median(deeper):,.0f} ms" if deeper else "never asked",
        **{f"sent: {name}": f"{size / 1e6:.2f} MB" for name, size in sizes.items()},
    }


def main() -> None:
    """Measure both and print them side by side."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    work = Path(tempfile.mkdtemp())
    try:
        maker = [sys.executable, str(Path(__file__).with_name("make_big_run.py")), str(work / "made-up")]
        subprocess.run([*maker, "--events", str(args.events), "--steps", str(args.steps)], check=True)
        with sync_playwright() as playwright:
            chromium = shutil.which("chromium") or shutil.which("chromium-browser")
            browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            columns = [measure(browser, run, args.rounds) for run in (SAMPLE, work / "made-up")]
            browser.close()
        print(f"{'':28}{SAMPLE.name:32}{args.events:,} events in {args.steps} steps")
        for name, value in columns[0].items():
            print(f"{name:28}{value:32}{columns[1][name]}")
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
