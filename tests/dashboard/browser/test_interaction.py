import re

import pytest
from browsing import CHROMIUM
from dashboard.browser.waiting import drawn, ledger_drawn
from playwright.sync_api import expect

from fsdp_profile.analysis.findings.questions import answers
from fsdp_profile.analysis.memory import ledger
from fsdp_profile.core.humanize import bytes_text, ns_text, ratio_text

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: neither /usr/bin/chromium nor on PATH")


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
    expect(hover).to_contain_text(re.compile(r"all-reduce, unit bucket \d"))
    expect(hover).to_contain_text(re.compile(r"rank 1, backward"))
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
    expect(hover).to_contain_text(re.compile(r"allocated \d+\.\d\d MiB\s*backward, active unit layers\.2"))
    expect(hover).to_contain_text(re.compile(r"activations \d+\.\d\d MiB"))
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
    expect(main).to_contain_text(f"the largest part is {largest.label}, {bytes_text(size_bytes)} ({share})")
    held = sum(one.size_bytes for one in found.unsharded)
    expect(main).to_contain_text(f"{bytes_text(held)} of gathered parameters")
    expect(main).to_contain_text(f"optimizer state take {bytes_text(found.sharding.saved_states_bytes)} less on each")
    gathering = found.gathering
    exposed = f"{ns_text(gathering.exposed_ns)} of {ns_text(gathering.total_ns)}"
    expect(main).to_contain_text(
        f"{exposed} (10.0 %) was not hidden behind compute, over 3 steps of rank {gathering.rank}"
    )
    expect(main).to_contain_text("all ranks reached each of the 45 matched collectives together")
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
