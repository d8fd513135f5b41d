"""Every page of a run in a real browser: numbers as in `show --json`, little sent, nothing asked of others.

The same walk over the sample runs, over some ten thousand events and over 10 million.
"""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
from browsing import CHROMIUM, FLAGS, is_error, is_outside
from playwright.sync_api import expect, sync_playwright

from fsdp_dashboard.charts.labels import byte_scale
from fsdp_dashboard.serving import served
from fsdp_profile.analysis.run import load_run
from fsdp_profile.analysis.summary import run_summary
from fsdp_profile.core.categories import Category
from fsdp_profile.core.humanize import bytes_text, ns_text, unit_text

SAMPLES = Path(__file__).parents[3] / "sample_runs"
MAX_SENT_BYTES = 2_000_000
WAIT_MS = 300_000

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: neither /usr/bin/chromium nor on PATH")


def make_big_run(path, **how):
    source = Path(__file__).parents[3] / "benchmarks" / "make_big_run.py"
    spec = importlib.util.spec_from_file_location("make_big_run", source)
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_big_run"] = module  # where its dataclasses look for their module
    spec.loader.exec_module(module)
    assert module.write_run(path, **how) >= how["num_events"]
    return load_run(path)


class Walk:
    """A window on a server; every page that is opened is measured and watched."""

    def __init__(self, page, address, *, query=""):
        self.page, self.address, self.query, self.sent, self.problems = page, address, query, 0, []
        page.on("websocket", lambda ws: ws.on("framereceived", self._count))
        page.on("requestfinished", self._finished)
        page.on("request", lambda r: self.problems.append(r.url) if is_outside(r.url) else None)
        page.on("pageerror", lambda e: self.problems.append(str(e)))
        page.on("console", lambda m: self.problems.append(m.text) if is_error(m) else None)

    def _count(self, payload):
        self.sent += len(payload)

    def _finished(self, request):
        if request.url.startswith("http") and "/static/" not in request.url:
            self.sent += request.sizes()["responseBodySize"]

    def open(self, path):
        self.sent = 0
        self.page.goto(f"{self.address}/{path}{self.query}")
        expect(self.page.get_by_test_id("stHeading").first).to_be_visible(timeout=WAIT_MS)
        expect(self.page.locator("[data-test-script-state=notRunning]")).to_have_count(1, timeout=WAIT_MS)
        expect(self.page.get_by_test_id("stException")).to_have_count(0)
        return self.page.get_by_test_id("stMain")

    def all_is_well(self):
        assert self.problems == []
        assert 0 < self.sent <= MAX_SENT_BYTES


@pytest.mark.parametrize("name", ["gpt-fsdp2-2ranks", pytest.param("gpt-ddp-2ranks", marks=pytest.mark.slow)])
def test_every_page_of_a_sample_run(name):
    with served([SAMPLES]) as (address, _), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        look_at_every_page(Walk(page, address, query=f"?run={name}"), run_summary(load_run(SAMPLES / name)))
        browser.close()


@pytest.mark.parametrize(
    ("num_events", "num_steps"),
    [
        pytest.param(60_000, 70, id="short", marks=pytest.mark.slow),
        pytest.param(10_000_000, 400, id="long", marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
    ],
)
def test_every_page_of_a_made_up_run(tmp_path, num_events, num_steps):
    run = make_big_run(tmp_path / "made-up", num_events=num_events, num_steps=num_steps)
    told = run_summary(run)
    with served([run.path]) as (address, pid), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        walk = Walk(browser.new_page(viewport={"width": 1440, "height": 900}), address)
        look_at_every_page(walk, told)
        zoom_the_whole_recording(walk, told, num_events)
        browser.close()
        assert "libtorch" not in Path(f"/proc/{pid}/maps").read_text()


def look_at_every_page(walk, told):
    rank = max(told["ranks"], key=lambda rank: rank["peak"]["allocated_bytes"])
    peak = bytes_text(rank["peak"]["allocated_bytes"])
    main = walk.open("")
    expect(main).to_contain_text(f"Peak {peak} allocated")
    if rank["reserved_peak_bytes"] is not None:
        expect(main).to_contain_text(bytes_text(rank["reserved_peak_bytes"]))
    unit = byte_scale(rank["peak"]["allocated_bytes"])
    table = main.get_by_test_id("stDataFrame").locator("table").filter(has_text="category").first
    for code, value in rank["peak"]["by_category"].items():
        expect(table).to_contain_text(f"{Category[code].label}{round(value / unit.unit_bytes, 3):.10g}")
    expect(main).to_contain_text(ns_text(rank["median_step_ns"]))
    expect(main).to_contain_text(told["findings"][0]["claim"].partition(":")[0].partition(".")[0])
    walk.all_is_well()

    walk.open("memory")
    expect(walk.page.locator(".labels .peak")).to_have_text(f"peak {peak}", timeout=WAIT_MS)
    expect(walk.page.locator(".foot")).to_have_text(f"ms in step {rank['peak']['step']}")
    walk.all_is_well()

    walk.open("units")
    for unit in told["units"][:2]:
        tick = walk.page.locator(".y2tick text").get_by_text(unit_text(unit["name"]), exact=True)
        expect(tick).to_be_visible(timeout=WAIT_MS)
    walk.all_is_well()

    main = walk.open("collectives")
    num_steps, total = rank["num_steps"], told["collectives"]
    share = f"{ns_text(total['exposed_ns'] // num_steps)} of {ns_text(total['total_ns'] // num_steps)}"
    expect(main).to_contain_text(f"{share} of collective time per step was not hidden behind compute")
    walk.all_is_well()

    walk.open("ranks")
    expect(walk.page.locator(".annotation-text").filter(has_text=peak).first).to_be_visible(timeout=WAIT_MS)
    walk.all_is_well()
    for path in ("runs", "source", "compare", "traces", "share", "whatif"):
        walk.open(path)
        walk.all_is_well()


def zoom_the_whole_recording(walk, told, num_events):
    """The peak of each step, then events picked in the browser, then (of a long run) those asked from the server."""
    walk.open("memory?step=all")
    plot = walk.page.locator(".plot")
    peak = bytes_text(told["ranks"][0]["peak"]["allocated_bytes"])
    expect(walk.page.locator(".labels .peak")).to_have_text(f"peak {peak}", timeout=WAIT_MS)
    walk.all_is_well()
    expect(plot).to_have_attribute("data-mode", "steps")
    assert int(plot.get_attribute("data-rows")) == told["ranks"][0]["num_steps"]
    plot.focus()
    while plot.get_attribute("data-mode") == "steps":
        walk.page.keyboard.press("+")
    bins = [int(plot.get_attribute("data-bin"))]
    assert (bins[0] > 1) == (num_events > 80_000)
    while bins[-1] > 1:
        walk.page.keyboard.press("+")
        if int(plot.get_attribute("data-rows")) < 400:
            expect(plot).not_to_have_attribute("data-bin", str(bins[-1]), timeout=20_000)
            bins.append(int(plot.get_attribute("data-bin")))
    # Three rows a column of pixels at most: the least, the greatest and the last.
    assert int(plot.get_attribute("data-rows")) <= 3 * plot.evaluate("e => e.clientWidth") + 1
    walk.page.keyboard.press("Shift+ArrowRight")
    expect(walk.page.locator(".tip")).to_contain_text(re.compile(r"allocated \d+\.\d\d GiB"))
    walk.all_is_well()
