"""The real server in a real browser: every page, wide and narrow; nothing leaves this machine."""

import re
import shutil
import zipfile
from pathlib import Path

import pytest
from browsing import CHROMIUM, FLAGS, is_error, is_outside
from builder import RunBuilder
from playwright.sync_api import expect, sync_playwright

from fsdp_dashboard.serving import served
from fsdp_profile.analysis.collectives.exposure import collective_summary
from fsdp_profile.analysis.compare.peaks import compare
from fsdp_profile.analysis.findings.questions import answers
from fsdp_profile.analysis.memory import ledger
from fsdp_profile.analysis.ranks.overview import rank_summaries
from fsdp_profile.analysis.run import load_run
from fsdp_profile.core.categories import Category
from fsdp_profile.core.humanize import bytes_text, ns_text, ratio_text
from fsdp_profile.core.manifest import Model, RankRecord
from fsdp_profile.core.schema import CollectiveKind, Ending, SpanKind
from fsdp_profile.export.bundle import bundle_bytes
from fsdp_profile.ingest.tags import MAX_TAG_CHARS, write_tags

SIZES = {"wide": (1440, 900), "phone": (390, 844)}
MINUS = "\N{MINUS SIGN}"
MIB = 1 << 20
HOSTILE = "<img src=x onerror=alert(1)> $x$ **b**"
LINKS = "[x](javascript:alert(2)) ![i](http://203.0.113.9/i.png) <a href='http://203.0.113.9'>a</a> http://203.0.113.9"
TEXT = f"{HOSTILE} {LINKS} $\\frac{{x}}{{y}}$ %{{y}} :smile: <script>alert(3)</script>"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: neither /usr/bin/chromium nor on PATH")


@pytest.fixture(scope="module")
def runs(tmp_path_factory, write_runs):
    return write_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def server(runs):
    """The address of a server that shows the two runs."""
    with served([runs[0].path.parent]) as (address, _):
        yield address


@pytest.fixture(scope="module")
def windows():
    """One window per size, kept over the tests: the second page finds the scripts in the cache."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield {
            name: browser.new_context(viewport={"width": width, "height": height})
            for name, (width, height) in SIZES.items()
        }
        browser.close()


@pytest.fixture
def visit(windows, server):
    """visit("phone", "/memory?step=all") opens a page; afterwards nothing may have left or gone wrong."""
    pages, problems = [], []

    def open_(size, path="/"):
        page = windows[size].new_page()
        pages.append(page)
        page.on("request", lambda r: problems.append(f"request to {r.url}") if is_outside(r.url) else None)
        page.on("pageerror", lambda e: problems.append(f"page error {e}"))
        page.on("console", lambda m: problems.append(f"console {m.text} {m.location}") if is_error(m) else None)
        page.on("dialog", lambda d: problems.append(f"dialog {d.message}"))
        page.goto(server + path)
        return page

    yield open_
    for page in pages:
        page.close()
    assert problems == []


def drawn(page, count=1):
    """Wait for the figures; nothing may be wider than the screen."""
    expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible(timeout=20_000)
    expect(page.locator(".js-plotly-plot")).to_have_count(count)
    is_narrow(page)


def ledger_drawn(page, count=1):
    """Wait for the memory page's own drawing, with this many panels."""
    expect(page.locator(".plot[data-paints]")).to_have_count(count)
    settled(page)
    is_narrow(page)


def has_label(page, text):
    """A figure has this text over a bar or a point."""
    expect(page.locator(".annotation-text").filter(has_text=text)).not_to_have_count(0)


def settled(page):
    """Until the script has run through, what it draws anew stands beside what it drew before."""
    expect(page.locator("[data-test-script-state=notRunning]")).to_have_count(1)


def is_narrow(page):
    """Nothing went wrong, and nothing is wider than the screen."""
    expect(page.get_by_test_id("stException")).to_have_count(0)
    wide = "[...document.querySelectorAll('[data-testid=stMain], html')].filter(e => e.scrollWidth > e.clientWidth)"
    page.wait_for_function(f"{wide}.length === 0")


@pytest.mark.parametrize("size", SIZES)
def test_overview_says_what_sharding_saved(visit, runs, size):
    page = visit(size)
    drawn(page, count=2)
    ddp, fsdp = (c.peak.allocated_bytes for c in compare(runs).runs)
    main = page.get_by_test_id("stMain")
    expect(main).to_contain_text(f"FSDP2 needs {bytes_text(fsdp)} at its peak, DDP {bytes_text(ddp)}")
    expect(main).to_contain_text(f"sharding saves {ratio_text((ddp - fsdp) / ddp)}")
    has_label(page, f"DDP {bytes_text(ddp)}")
    has_label(page, f"FSDP2 {bytes_text(fsdp)}")
    total = page.get_by_test_id("stDataFrame").first.locator("table tr").last
    expect(total).to_contain_text(f"\N{MINUS SIGN}{bytes_text(ddp - fsdp)}")


@pytest.mark.parametrize("size", SIZES)
def test_compare_joins_the_peaks_of_two_runs(visit, runs, size):
    page = visit(size, "/compare")
    drawn(page, count=2)
    labels = page.locator(".js-plotly-plot").nth(1).locator(".bartext")
    base, mine = compare(runs).runs
    changes = [f"{'+' if delta > 0 else MINUS}{bytes_text(abs(delta))}" for _, delta in mine.waterfall]
    ends = [bytes_text(run.peak.allocated_bytes) for run in (base, mine)]
    expect(labels).to_have_text([ends[0], *changes, ends[1]])


@pytest.mark.parametrize("size", SIZES)
def test_memory_marks_the_peak_of_each_run(visit, runs, size):
    page = visit(size, "/memory")
    ledger_drawn(page, count=len(runs))
    peaks = [f"peak {bytes_text(ledger.peak(run, rank=1).allocated_bytes)}" for run in runs]
    expect(page.locator(".labels .peak")).to_have_text(peaks)


@pytest.mark.parametrize("size", SIZES)
def test_units_draw_the_spans_under_the_memory(visit, size):
    page = visit(size, "/units")
    drawn(page)
    legend = page.get_by_test_id("stHtml").first
    for word in ("unsharded", "forward", "backward", "gather", "reduce", "reshard", "OPTIMIZER_STATE"):
        expect(legend).to_contain_text(word)
    ticks = page.locator(".ytick text, .y2tick text")
    for unit in ("(root)", "layers.0", "layers.3"):
        expect(ticks.get_by_text(unit, exact=True)).to_have_count(1)


@pytest.mark.parametrize("size", SIZES)
def test_ranks_show_each_ranks_peak(visit, runs, size):
    page = visit(size, "/ranks")
    drawn(page, count=6)
    for run in runs:
        for rank in rank_summaries(run):
            has_label(page, bytes_text(rank.peak.allocated_bytes))


@pytest.mark.parametrize("size", SIZES)
def test_collectives_draw_the_calls_of_a_step(visit, runs, size):
    page = visit(size, "/collectives")
    drawn(page, count=3)
    legend = page.get_by_test_id("stHtml").first
    for word in ("ALL_GATHER", "REDUCE_SCATTER", "exposed", "overlapped"):
        expect(legend).to_contain_text(word)
    ticks = page.locator(".js-plotly-plot").first.locator(".ytick text")
    expect(ticks).to_have_text(["ALL_GATHER", "REDUCE_SCATTER"])
    found = collective_summary(runs[1], rank=1)
    steps = f"{ns_text(found.exposed_ns // 3)} of {ns_text(found.total_ns // 3)}"
    expect(page.get_by_test_id("stMain")).to_contain_text(f"{steps} of collective time per step had no compute")


@pytest.mark.parametrize("size", SIZES)
def test_share_offers_a_file_and_shows_what_is_taken_out(visit, size, tmp_path):
    page = visit(size, "/share?run=fsdp2")
    button = page.get_by_test_id("stDownloadButton").locator("button")
    expect(button).to_have_text(re.compile(r"Download run\.fsdpz$"))
    expect(page.get_by_test_id("stDataFrame")).to_be_visible()
    is_narrow(page)
    with page.expect_download() as download:
        button.click()
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    assert load_run(path).manifest.name == "fsdp2-2ranks"


@pytest.mark.parametrize("size", SIZES)
def test_collectives_say_where_the_time_went(visit, size):
    page = visit(size, "/collectives?run=fsdp2")
    drawn(page, count=3)
    main = page.get_by_test_id("stMain")
    expect(main).to_contain_text("MiB from rank 1 if each collective is a ring (estimate)")
    expect(main).to_contain_text("host-bound: not recorded, it ran on CPU")
    expect(page.locator(".js-plotly-plot").nth(2).locator(".point path")).to_have_count(9)


@pytest.mark.parametrize("size", SIZES)
def test_a_run_out_of_memory_opens_with_it(visit, runs, on_device, size):
    run = on_device(runs[0].path.parent / "oom").set(complete=False)
    run.row("ooms", t_ns=6, event=1, asked_bytes=64 << 20, device_free_bytes=3 << 20, stream=0).build()
    try:
        page = visit(size, "/?run=oom")
        drawn(page, count=4)
        expect(page.get_by_test_id("stAlert").first).to_contain_text("Out of memory. Rank 0 asked for 64.00 MiB")
        expect(page.get_by_test_id("stMain")).to_contain_text("50.00 MiB (measured): other processes use this device")
        page = visit(size, "/memory?run=oom")
        drawn(page)
        ledger_drawn(page)
        expect(page.get_by_test_id("stHtml").nth(1)).to_contain_text("outside: this process")
        has_label(page, "90.00 MiB")
    finally:
        shutil.rmtree(run.path)


@pytest.mark.parametrize("size", SIZES)
def test_findings_open_and_say_what_to_do(visit, size):
    page = visit(size, "/?run=fsdp2")
    drawn(page, count=2)
    first = page.get_by_test_id("stExpander").first
    expect(first).to_contain_text("explains")
    first.locator("summary").click()
    expect(first).to_contain_text("explained in docs/findings.md")
    expect(page.get_by_test_id("stMain")).to_contain_text("Is the model wrapped in units?")
    is_narrow(page)


@pytest.mark.parametrize("size", SIZES)
def test_source_draws_the_lines_and_the_code(visit, runs, size):
    here = Path(__file__).resolve().relative_to(Path.cwd())
    run = RunBuilder("lines", path=runs[0].path.parent / "lines").alloc(at=1, size=3 << 20, site=f"{here}:1 <b>")
    run.alloc(at=2, size=1 << 20, site="gone.py:7 f").build()
    try:
        page = visit(size, "/source?run=lines")
        drawn(page)
        labels = page.locator(".annotation-text")
        expect(labels).to_have_text([f"3.00 MiB · {here}:1 <b>", "1.00 MiB · gone.py:7 f"])
        expect(page.get_by_test_id("stCode")).to_contain_text('3.00 MiB   1 | """The real server in a real browser')
        page = visit(size, "/source?run=lines&line=gone.py%3A7+f")
        drawn(page)
        expect(page.get_by_test_id("stAlert")).to_contain_text("gone.py: source file is not here")
    finally:
        shutil.rmtree(run.path)


@pytest.mark.parametrize("size", SIZES)
def test_traces_say_what_is_there_and_what_hta_needs(visit, size):
    page = visit(size, "/traces")
    main = page.get_by_test_id("stMain")
    expect(main).to_contain_text("Kineto traces of fsdp2: not recorded")
    expect(main).to_contain_text("HTA reads device streams, and this run was recorded on CPU")
    is_narrow(page)


def test_hovering_a_call_tells_what_was_recorded_of_it(visit):
    page = visit("wide", "/collectives?run=ddp")
    drawn(page, count=3)
    hover = page.locator(".hoverlayer").first
    for _ in range(20):  # the page may still move under the mouse
        bar = page.locator(".js-plotly-plot").first.locator(".point path").first.bounding_box()
        page.mouse.move(bar["x"] + bar["width"] / 2, bar["y"] + bar["height"] / 2, steps=3)
        page.wait_for_timeout(250)
        if hover.text_content():
            break
    expect(hover).to_contain_text(re.compile(r"ALL_REDUCE, unit bucket \d"))
    expect(hover).to_contain_text(re.compile(r"rank 1, BACKWARD"))
    expect(hover).to_contain_text(re.compile(r"bytes \d+\.\d\d KiB"))
    expect(hover).to_contain_text("waited 0.0 us, transfer 800.0 us")


def test_a_choice_is_in_the_url_and_the_url_is_a_choice(visit, runs):
    page = visit("wide", "/memory?run=fsdp2")
    ledger_drawn(page)
    page.get_by_test_id("stSelectbox").filter(has_text="Step").locator("input").click()
    page.get_by_role("option", name="0", exact=True).click()
    page.wait_for_url("**/memory?*step=0*")
    assert "run=fsdp2" in page.url
    peak = f"peak {bytes_text(ledger.peak(runs[1], rank=1, step=0).allocated_bytes)}"
    expect(page.locator(".labels .peak")).to_have_text(peak)
    again = visit("wide", page.url.removeprefix(page.evaluate("location.origin")))
    ledger_drawn(again)
    expect(again.locator(".labels .peak")).to_have_text([peak])


def test_collectives_of_all_ranks_have_a_link(visit):
    page = visit("wide", "/memory?run=fsdp2&step=0")
    ledger_drawn(page)
    page.get_by_test_id("stSidebarNavLink").filter(has_text="Collectives").click()
    drawn(page, count=3)
    page.get_by_test_id("stSelectbox").filter(has_text="Rank").locator("input").click()
    page.get_by_role("option", name="all", exact=True).click()
    page.wait_for_url("**/collectives?*rank=all*")
    again = visit("wide", page.url.removeprefix(page.evaluate("location.origin")))
    drawn(again, count=3)
    expect(again.get_by_test_id("stMain")).to_contain_text(", all ranks")


def test_pages_are_reached_by_a_click_and_keep_the_runs(visit):
    page = visit("wide", "/?run=fsdp2")
    drawn(page, count=2)
    there = (
        ("Memory", "Memory", None),
        ("Units", "Units", 1),
        ("Collectives", "Collectives", 3),
        ("Ranks", "Ranks", 3),
        ("Overview", "Where", 2),
    )
    for name, heading, count in there:
        page.get_by_test_id("stSidebarNavLink").filter(has_text=name).click()
        expect(page.get_by_test_id("stHeading").first).to_contain_text(heading)
        if count is None:
            ledger_drawn(page)
        else:
            drawn(page, count)
        assert "run=fsdp2" in page.url


def test_hovering_names_phase_unit_and_bytes(visit):
    page = visit("wide", "/memory?run=fsdp2")
    ledger_drawn(page)
    box = page.locator(".plot").bounding_box()
    at_ms, margins_px = 22.5, (66, 10)
    inside = (box["width"] - sum(margins_px)) * at_ms / 40
    page.mouse.move(box["x"] + margins_px[0] + inside, box["y"] + box["height"] * 0.5)
    hover = page.locator(".tip")
    expect(hover).to_contain_text(re.compile(r"\d+\.\d+ ms in step 1"))
    expect(hover).to_contain_text(re.compile(r"allocated \d+\.\d\d MiB\s*BACKWARD, unit layers\.2"))
    expect(hover).to_contain_text(re.compile(r"ACTIVATION \d+\.\d\d MiB"))
    expect(hover).to_contain_text("biggest allocations then:")


def test_the_ledger_is_zoomed_and_read_by_the_keyboard_and_the_window_has_a_link(visit):
    page = visit("wide", "/memory?run=fsdp2&step=0")
    ledger_drawn(page)
    plot = page.locator(".plot")
    assert plot.get_attribute("role") == "img"
    assert "peak" in plot.get_attribute("aria-label")
    plot.focus()
    page.keyboard.press("+")
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    from_ns, to_ns = (int(plot.get_attribute(f"data-{end}")) for end in ("from", "to"))
    assert to_ns - from_ns == 10_000_000
    assert from_ns == 16_500_000
    page.keyboard.press("Shift+ArrowRight")
    expect(page.locator(".tip")).to_contain_text(re.compile(r"allocated \d+\.\d\d MiB"))
    read = [page.locator(".tip").inner_text()]
    for _ in range(4):
        page.keyboard.press("Shift+ArrowRight")
        read.append(page.locator(".tip").inner_text())
    assert len(set(read)) == 5  # from moment to moment
    page.wait_for_url("**/memory?*window=16500000%3A26500000*")
    again = visit("wide", page.url.removeprefix(page.evaluate("location.origin")))
    ledger_drawn(again)
    expect(again.locator(".plot")).to_have_attribute("data-from", "16500000")
    page.keyboard.press("0")
    expect(plot).to_have_attribute("data-to", "40000000")
    page.wait_for_function("!location.search.includes('window')")
    ledger_drawn(visit("wide", "/memory?run=fsdp2&step=0&window=99999999:999999999"))


def test_a_click_in_the_whole_recording_opens_the_step(visit, runs):
    page = visit("wide", "/memory?run=fsdp2&step=all")
    ledger_drawn(page)
    box = page.locator(".plot").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.95, box["y"] + box["height"] * 0.5)
    page.wait_for_url("**/memory?*step=2*")
    expect(page.locator(".foot")).to_have_text("ms in step 2")
    peak = f"peak {bytes_text(ledger.peak(runs[1], rank=1, step=2).allocated_bytes)}"
    expect(page.locator(".labels .peak")).to_have_text(peak)


def test_the_ledger_follows_the_theme(visit):
    page = visit("wide", "/memory?run=fsdp2")
    ledger_drawn(page)
    paints = int(page.locator(".plot").get_attribute("data-paints"))
    colour = "e => getComputedStyle(e).color"
    before = page.locator(".ledger").evaluate(colour)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(
        "n => Number([...document.querySelectorAll('*')].flatMap(e => e.shadowRoot ? "
        "[...e.shadowRoot.querySelectorAll('.plot')] : [])[0].dataset.paints) > n",
        arg=paints,
    )
    assert page.locator(".ledger").evaluate(colour) != before


def test_the_overview_answers_a_newcomers_questions(visit, runs):
    page = visit("wide", "/?run=ddp&run=fsdp2&units_run=fsdp2")
    drawn(page, count=2)
    main = page.get_by_test_id("stMain")
    found = answers(runs[1])
    largest, size_bytes = next(iter(found.peak.by_category.items()))
    share = ratio_text(size_bytes / found.peak.allocated_bytes)
    expect(main).to_contain_text(f"the largest part is {largest}, {bytes_text(size_bytes)} ({share})")
    held = sum(one.size_bytes for one in found.unsharded)
    expect(main).to_contain_text(f"{bytes_text(held)} of gathered parameters")
    expect(main).to_contain_text(f"states take {bytes_text(found.sharding.saved_states_bytes)} less on each")
    gathering = found.gathering
    exposed = f"{ns_text(gathering.exposed_ns)} of {ns_text(gathering.total_ns)}"
    expect(main).to_contain_text(f"{exposed} (10.0 %) had no compute beside it, over 3 steps of rank {gathering.rank}")
    expect(main).to_contain_text("all ranks came at once to all 45 matched collectives")
    page.get_by_test_id("stPageLink").filter(has_text="Units").first.locator("a").click()
    expect(page.get_by_test_id("stHeading").first).to_contain_text("Units")
    drawn(page)
    expect(page.get_by_test_id("stSelectbox").filter(has_text="Run").locator("input")).to_have_value("fsdp2")


def test_a_ticked_row_is_the_run_that_every_page_shows(visit):
    page = visit("wide", "/runs?run=ddp&sort=name")
    grid = page.get_by_test_id("stDataFrame")
    expect(grid).to_be_visible(timeout=20_000)
    expect(grid.locator("table tbody tr")).to_have_count(2)
    box = grid.locator("canvas").first.bounding_box()
    page.mouse.click(box["x"] + 16, box["y"] + 35 * 2 + 17)  # the second row's tick
    page.get_by_role("button", name="Show the ticked run").click()
    expect(page.get_by_test_id("stMain")).to_contain_text("Every page shows fsdp2")
    page.wait_for_url("**/runs?*run=fsdp2*")
    page.get_by_test_id("stPageLink").filter(has_text="Ranks").locator("a").click()
    expect(page.get_by_test_id("stHeading").first).to_contain_text("Ranks")
    drawn(page, count=3)
    assert "run=fsdp2" in page.url and "run=ddp" not in page.url


def test_a_copied_link_shows_the_same_in_another_browser(visit, windows):
    page = visit("wide", "/runs")
    page.get_by_label("Filter").fill("fsdp2")
    page.get_by_label("Filter").press("Enter")
    page.wait_for_url("**/runs*words=fsdp2*")
    page.get_by_test_id("stSidebarNavLink").filter(has_text="What if").click()
    drawn(page)
    page.get_by_test_id("stSelectbox").filter(has_text="Device").locator("input").click()
    page.get_by_role("option", name="none", exact=True).click()
    page.wait_for_url("**/whatif?*device=none*")
    page.get_by_test_id("stCheckbox").filter(has_text="Activation checkpointing").locator("label").click()
    page.wait_for_url("**/whatif?*ac=true*")
    main = page.get_by_test_id("stMain")
    expect(main.locator(".annotation-text").filter(has_text="fits")).to_have_count(0)
    expect(main.locator(".annotation-text").first).to_contain_text("ddp x 8 195.79 GiB")
    drawn(page)
    expect(main.locator(".annotation-text")).to_have_count(6)
    shown = main.locator(".annotation-text").all_text_contents()
    windows["fresh"] = windows["wide"].browser.new_context()
    again = visit("fresh", page.url.removeprefix(page.evaluate("location.origin")))
    drawn(again)
    expect(again.get_by_test_id("stMain").locator(".annotation-text")).to_have_text(shown)
    assert "device=none" in again.url and "theme" not in again.url


def test_pages_follow_the_systems_theme_and_the_keyboard(visit):
    page = visit("wide", "/units?run=fsdp2")
    drawn(page)
    colour = "getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor"
    light = page.evaluate(colour)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"{colour} !== '{light}'")
    drawn(page)
    assert (
        page.locator(".js-plotly-plot").first.evaluate(
            "e => e.closest('[aria-label]')?.ariaLabel ?? e.closest('[role=img]')?.ariaLabel"
        )
        == "What each unit did in one step, under the allocated bytes by category"
    )
    seen, ringed = [], 0
    for _ in range(24):
        page.keyboard.press("Tab")
        name, ring = page.evaluate(
            "(() => { const e = document.activeElement, s = getComputedStyle(e); return ["
            "e.innerText || e.ariaLabel || e.tagName, s.outlineStyle !== 'none' || s.boxShadow !== 'none'] })()"
        )
        seen.append(name)
        ringed += ring
    order = [next(i for i, name in enumerate(seen) if word in name) for word in ("Overview", "Runs", "Memory", "Units")]
    assert order == sorted(order)
    assert any("Rank" in name for name in seen) and ringed > 18


def test_a_hostile_bundle_does_nothing_on_any_page(visit, runs):
    """Names, texts and source lines that would be HTML, Markdown, TeX, links, plotly tags; a zip with parent paths."""
    folder = runs[0].path.parent
    run = hostile(folder / HOSTILE)
    write_tags(run.path, (TEXT[:MAX_TAG_CHARS],))
    bundle, evil = folder / "hostile.fsdpz", folder / "evil.fsdpz"
    bundle.write_bytes(bundle_bytes(run))
    with zipfile.ZipFile(evil, "w") as archive:
        archive.writestr("../../escaped.txt", "x")
    try:
        page = visit("wide", "/?run=hostile.fsdpz&run=evil.fsdpz&run=ddp&units_run=hostile.fsdpz")
        drawn(page, count=2)
        expect(page.get_by_test_id("stAlert").first).to_contain_text("evil.fsdpz")
        expect(page.get_by_test_id("stMain").get_by_text("onerror=alert(1)").first).to_be_visible()
        harmless(page)
        for name in (
            "Runs",
            "Compare",
            "Memory",
            "Source",
            "Units",
            "Collectives",
            "Ranks",
            "Traces",
            "Share",
            "What if",
        ):
            page.get_by_test_id("stSidebarNavLink").filter(has_text=re.compile(rf"^\W*\w*\W*{name}$")).click()
            expect(page.get_by_test_id("stHeading").first).to_be_visible()
            expect(page.get_by_test_id("stStatusWidget")).to_have_count(0)
            harmless(page)
        assert not list(folder.parent.parent.rglob("escaped.txt"))
    finally:
        shutil.rmtree(run.path)
        bundle.unlink()
        evil.unlink()


def hostile(path):
    """Everything in a run that is text, hostile."""
    run = RunBuilder(TEXT, path=path).step(0, 0, 100).unit(TEXT).unit(TEXT * 40)
    run.set(
        strategy_detail=TEXT, script=TEXT, script_args=[TEXT], command=[TEXT], warnings=[TEXT],
        device_name=TEXT, backend=TEXT, versions={"torch": TEXT}, created=TEXT,
        model=Model(name=TEXT, numel=4, dtypes={TEXT: 4}), sources={TEXT: TEXT, "Kineto traces": TEXT},
        not_recorded=dict.fromkeys((TEXT, "reserved_peak_bytes", "exposed_ns"), TEXT), complete=False,
        ranks=[RankRecord(rank=r, host=TEXT, device=TEXT, ending=Ending.SIGNAL, message=TEXT) for r in (0, 1)],
    )  # fmt: skip
    for rank in (0, 1):
        run.rank(rank).kernel(1, 30, name=TEXT)
        for unit, kind in ((0, SpanKind.FORWARD), (1, SpanKind.BACKWARD), (0, SpanKind.ALL_GATHER)):
            run.span(unit, kind, 1 + unit, 40 + unit, size=8)
        run.alloc(at=2, size=MIB, unit=0, name=TEXT, operator=TEXT, site=f"{TEXT}.py:1 {TEXT}", module=TEXT)
        run.alloc(at=3, size=MIB, unit=1, category=Category.UNSHARDED_PARAM, site="a.py:2 f")
        run.collective(CollectiveKind.ALL_GATHER, 4 + rank, 20, unit=0, size_bytes=8, group=TEXT,
                       group_description=TEXT, dtype=TEXT, transport=TEXT, sequence=1)  # fmt: skip
    return run.build()


def harmless(page):
    """Nothing of it became an element, and no link leads out or runs anything."""
    expect(page.get_by_test_id("stException")).to_have_count(0)
    # A locator looks into the drawings of our own as well, which lie in a shadow root.
    found = page.locator(
        'img[src=x], iframe, a[href^=javascript], a[href*="203.0.113"], img[src*="203.0.113"], [onerror], [onload], '
        ".katex, svg a"
    )
    assert found.evaluate_all("all => all.map(e => e.outerHTML)") == []
