"""The real server in a real browser: every page, wide and narrow; nothing leaves this machine."""

import re
import shutil
from pathlib import Path

import pytest
from browsing import CHROMIUM
from builder import RunBuilder
from dashboard.browser.conftest import SIZES
from dashboard.browser.waiting import drawn, has_label, is_narrow, ledger_drawn
from playwright.sync_api import expect

from fsdp_profile.analysis.collectives.exposure import collective_summary
from fsdp_profile.analysis.compare.peaks import compare
from fsdp_profile.analysis.memory import ledger
from fsdp_profile.analysis.ranks.overview import rank_summaries
from fsdp_profile.analysis.run import load_run
from fsdp_profile.core.humanize import bytes_text, ns_text, ratio_text

MINUS = "\N{MINUS SIGN}"
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: neither /usr/bin/chromium nor on PATH")


@pytest.mark.parametrize("size", SIZES)
def test_overview_says_what_sharding_saved(visit, runs, size):
    page = visit(size)
    drawn(page, count=2)
    ddp, fsdp = (c.peak.allocated_bytes for c in compare(runs).runs)
    main = page.get_by_test_id("stMain")
    expect(main).to_contain_text(f"FSDP2 needs {bytes_text(fsdp)} at its peak where DDP needs {bytes_text(ddp)}")
    expect(main).to_contain_text(f"{ratio_text((ddp - fsdp) / ddp)} less ({bytes_text(ddp - fsdp)} saved per rank)")
    has_label(page, f"DDP {bytes_text(ddp)}")
    has_label(page, f"FSDP2 {bytes_text(fsdp)}")
    total = page.get_by_test_id("stDataFrame").first.locator("table tr").last
    expect(total).to_contain_text(f"-{(ddp - fsdp) / (1 << 20):.3f}")


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
    for word in ("unsharded", "forward", "backward", "gather", "reduce", "reshard", "optimizer state"):
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
    for word in ("all-gather", "reduce-scatter", "exposed", "overlapped"):
        expect(legend).to_contain_text(word)
    ticks = page.locator(".js-plotly-plot").first.locator(".ytick text")
    expect(ticks).to_have_text(["all-gather", "reduce-scatter"])
    found = collective_summary(runs[1], rank=1)
    steps = f"{ns_text(found.exposed_ns // 3)} of {ns_text(found.total_ns // 3)}"
    expect(page.get_by_test_id("stMain")).to_contain_text(f"{steps} of collective time per step was not hidden behind")


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
    expect(main).to_contain_text("MiB per step if each collective runs as a ring (estimate)")
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
        expect(page.get_by_test_id("stHtml").nth(1)).to_contain_text("outside PyTorch, this process")
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
        expect(labels).to_have_text(["3.00 MiB · …dashboard/browser/test_pages.py:1 <b>", "1.00 MiB · gone.py:7 f"])
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
