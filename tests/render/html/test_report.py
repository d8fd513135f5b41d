"""The HTML report: what it says, that it cannot do harm, and that it works in a browser with no network."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from builder import RunBuilder
from recording import ROOT

from fsdp_profile.analysis.memory.ledger import Timeline, peak
from fsdp_profile.analysis.run import load_run
from fsdp_profile.commands import main
from fsdp_profile.core.categories import CATEGORIES, Category
from fsdp_profile.core.humanize import bytes_text
from fsdp_profile.render.html import report
from fsdp_profile.render.html.ledger import MAX_CHARS, pack
from fsdp_profile.render.html.report import html_report

DDP, FSDP2 = (ROOT / "sample_runs" / name for name in ("gpt-ddp-2ranks", "gpt-fsdp2-2ranks"))
CHROMIUM = next((p for p in ("/usr/bin/chromium", shutil.which("chromium")) if p and Path(p).exists()), None)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
HOSTILE = "</script><script>window.hurt=1</script><img src=x onerror=window.hurt=1>\u202e'\"&"
MIB = 1 << 20

browser_only = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: neither /usr/bin/chromium nor on PATH")


def text_of(page: str) -> str:
    """What a reader sees, roughly."""
    body = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.S)
    body = re.sub(r"</?(b|code)>", "", body)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


def test_one_run_has_its_verdict_and_its_sections():
    text = text_of(html_report([load_run(FSDP2)]))
    assert (
        "Peak 10.98 MiB allocated on rank 0, in backward of step 1, active unit layers.2: mostly optimizer state "
        "(32.1 %), parameters (16.1 %), activations (13.7 %); 0.0 % is unknown." in text
    )
    for title in (
        "Memory at the peak", "Memory over time, rank 0", "Findings", "Why is FSDP not smaller?", "5 units",
        "Collectives", "Time by step", "Late ranks", "Peaks", "Processes", "Not recorded", "What recording cost",
    ):  # fmt: skip
        assert title in text, title
    assert "layers.3 197,120 385.00 KiB 770.00 KiB 2 8 8" in text
    assert "unknown 0 B 0.0 %" in text


def test_two_runs_say_what_changed():
    text = text_of(html_report([load_run(DDP), load_run(FSDP2)]))
    assert "FSDP2 needs 10.98 MiB at its peak where DDP needs 18.37 MiB: 40.3 % less (7.40 MiB saved per rank)." in text
    assert "optimizer state 7.05 MiB 3.52 MiB -3.52 MiB" in text
    assert "total 18.37 MiB 10.98 MiB -7.40 MiB" in text


def test_the_page_is_the_same_for_the_same_run():
    assert html_report([load_run(FSDP2)]) == html_report([load_run(FSDP2)])


def test_a_run_without_memory_still_has_a_page():
    text = text_of(html_report([RunBuilder().step(0, 0, 10).build()]))
    assert "The peak is not recorded: no allocator events of a training step." in text
    assert "Processes" in text


def test_a_run_that_ran_out_of_memory_opens_with_that():
    b = RunBuilder().set(complete=False).unit("layers.0").alloc(at=1, size=6 * MIB, unit=0)
    b.row("ooms", t_ns=2, event=0, asked_bytes=4 * MIB, device_free_bytes=MIB, stream=0)
    assert (
        "Out of memory. Rank 0 asked for 4.00 MiB, in forward of step 0, with 6.00 MiB allocated. How much was free is "
        "not recorded: the CPU allocator does not report it." in text_of(html_report([b.build()]))
    )


def test_the_policy_allows_the_one_script_and_nothing_else():
    page = html_report([load_run(FSDP2)])
    [policy] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    assert re.fullmatch(
        r"default-src 'none'; script-src 'sha256-[\w+/=]{44}'; style-src 'sha256-[\w+/=]{44}'; base-uri 'none'; "
        r"form-action 'none'",
        policy,
    )
    tags = re.sub(r"(<script[^>]*>).*?</script>", r"\1", page, flags=re.S)
    assert re.findall(r"<[^>]*\s(?:style|on\w+)=", tags) == []
    assert "http://" not in page and "https://" not in page


def hostile_run(path: Path):
    b = RunBuilder(HOSTILE, path=path).set(warnings=[HOSTILE], script=HOSTILE, strategy_detail=HOSTILE)
    return b.unit(HOSTILE).alloc(at=1, size=MIB, unit=0, name=HOSTILE, operator=HOSTILE).build()


def test_names_of_a_run_are_text(tmp_path):
    page = html_report([hostile_run(tmp_path / "run")])
    assert page.count("<script") == 3 and "<img" not in page and "\u202e" not in page
    assert "&lt;img src=x onerror=window.hurt=1&gt;\\u202e" in page


def test_ten_million_events_fit_a_page():
    ledger = big_ledger(10_000_000)
    packed = pack(ledger, step=np.arange(5_000_000, 5_003_000))
    assert (packed.num_events, len(packed.text) <= MAX_CHARS) == (10_000_000, True)
    assert packed.num_rows > 40_000


def big_ledger(num_events: int) -> Timeline:
    """Steps of 3,000 events: activations up and down, units gathered in turn, temporaries of any size between."""
    rng = np.random.default_rng(0)
    at = np.arange(num_events) % 3000
    by_category = {category: np.zeros(num_events, np.int64) for category in CATEGORIES}
    by_category[Category.PARAM] += 3000 * MIB
    by_category[Category.ACTIVATION] = np.minimum(at, 3000 - at) * MIB
    by_category[Category.UNSHARDED_PARAM] = (at // 50 % 2) * 400 * MIB
    by_category[Category.TEMPORARY] = rng.integers(0, 256, num_events) * (at % 2) * 4096
    total = sum(by_category.values())
    t_ns = np.cumsum(rng.integers(4_000, 12_000, num_events))
    return Timeline(t_ns=t_ns, allocated_bytes=total, by_category=by_category, event=np.arange(num_events))


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser):
    """Open a file with the network off; afterwards nothing may have been asked for or gone wrong."""
    problems: list[str] = []
    contexts = []

    def open_(path: Path, **options: object):
        context = browser.new_context(offline=True, **{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda r: problems.append(r.url) if not r.url.startswith(("file:", "blob:")) else None)
        page.on("pageerror", lambda e: problems.append(f"page error {e}"))
        page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
        page.goto(path.as_uri())
        return page

    yield open_
    for context in contexts:
        context.close()
    assert problems == []


def ready(page, count: int = 1):
    from playwright.sync_api import expect

    expect(page.locator("figure[data-ready]")).to_have_count(count, timeout=20_000)
    return [page.locator("canvas").nth(i) for i in range(count)]


@browser_only
def test_two_runs_in_a_browser_without_network(visit, tmp_path):
    path = tmp_path / "report.html"
    assert main(["export", str(DDP), str(FSDP2), "-o", str(path)]) == 0
    page = visit(path)
    first, second = ready(page, 2)
    peaks = [peak(load_run(folder), rank=0).allocated_bytes for folder in (DDP, FSDP2)]
    assert [int(float(c.get_attribute("data-highest"))) for c in (first, second)] == peaks
    assert (
        page.locator("#compare .verdict")
        .inner_text()
        .startswith(
            f"FSDP2 needs {bytes_text(peaks[1])} at its peak where DDP needs {bytes_text(peaks[0])}: 40.3 % less"
        )
    )
    readout = page.locator("#figure-1 .readout")
    assert f": {bytes_text(peaks[1])} = optimizer state 3.52 MiB + parameters 1.76 MiB" in readout.inner_text()
    zooms_by_mouse_keys_and_buttons(page, second)
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0


def window_of(canvas) -> tuple[float, float]:
    return float(canvas.get_attribute("data-from")), float(canvas.get_attribute("data-to"))


def zooms_by_mouse_keys_and_buttons(page, canvas) -> None:
    canvas.scroll_into_view_if_needed()
    page.locator("#figure-1 button", has_text="Whole run").click()
    whole = window_of(canvas)
    box = canvas.bounding_box()
    left, width = box["x"] + 76, box["width"] - 84
    page.mouse.move(left + width * 0.25, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(left + width * 0.75, box["y"] + 100, steps=4)
    page.mouse.up()
    span = whole[1] - whole[0]
    assert window_of(canvas) == pytest.approx((whole[0] + 0.25 * span, whole[0] + 0.75 * span), rel=0.01)
    canvas.focus()
    page.keyboard.press("+")
    assert window_of(canvas) == pytest.approx((whole[0] + 0.375 * span, whole[0] + 0.625 * span), rel=0.01)
    page.keyboard.press("ArrowLeft")
    assert window_of(canvas)[0] == pytest.approx(whole[0] + 0.3125 * span, rel=0.01)
    canvas.dblclick()
    assert window_of(canvas) == whole


@browser_only
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_a_phone(visit, tmp_path, scheme):
    path = tmp_path / "report.html"
    path.write_text(html_report([load_run(DDP), load_run(FSDP2)]))
    page = visit(path, viewport={"width": 390, "height": 844}, color_scheme=scheme)
    ready(page, 2)
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0


@browser_only
def test_a_hostile_run_does_nothing_in_a_browser(visit, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(html_report([hostile_run(tmp_path / "run")]))
    page = visit(path)
    ready(page)
    assert page.evaluate("window.hurt") is None
    assert "<img src=x onerror=window.hurt=1>" in page.locator("h1").inner_text()


@browser_only
def test_ten_million_events_zoom(visit, tmp_path, monkeypatch):
    ledger = big_ledger(10_000_000)
    whole = [int(ledger.allocated_bytes[a:b].max()) for a, b in ((0, 10_000_000), (5_000_000, 5_003_000))]
    step = np.arange(5_000_000, 5_003_000)
    packed = pack(ledger, step=step)
    monkeypatch.setattr("fsdp_profile.render.html.sections.pack", lambda _, **__: packed)
    path = tmp_path / "report.html"
    path.write_text(html_report([RunBuilder().unit("").alloc(at=1, size=whole[0]).build()]))
    assert path.stat().st_size < 2_000_000
    page = visit(path)
    [canvas] = ready(page)
    page.locator("button", has_text="Whole run").click()
    assert int(float(canvas.get_attribute("data-highest"))) == whole[0]
    assert 1_000 < int(canvas.get_attribute("data-drawn")) <= 3 * 1280
    start, end = (int(ledger.t_ns[i] - ledger.t_ns[0]) for i in (5_000_000, 5_002_999))
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    for _ in range(40):  # to the step that is kept event by event
        x0, x1 = window_of(canvas)
        if x1 - x0 < 4 * (end - start):
            break
        middle = box["x"] + 76 + ((start + end) / 2 - x0) / (x1 - x0) * (box["width"] - 84)
        page.mouse.move(middle, box["y"] + 100)
        page.keyboard.down("Control")
        page.mouse.wheel(0, -400)
        page.keyboard.up("Control")
        page.wait_for_timeout(30)
    x0, x1 = window_of(canvas)
    assert x0 <= (start + end) / 2 <= x1
    assert x1 - x0 < 4 * (end - start)
    inside = (ledger.t_ns - ledger.t_ns[0] >= x0) & (ledger.t_ns - ledger.t_ns[0] <= x1)
    assert int(float(canvas.get_attribute("data-highest"))) <= int(ledger.allocated_bytes[inside].max())
    assert int(float(canvas.get_attribute("data-highest"))) >= whole[1] * 0.99


def test_the_assets_are_in_the_package():
    assert report._asset("report.js").startswith('"use strict";')
    assert "http" not in report._asset("report.js") + report._asset("report.css")
