"""Wait until a page in the browser is drawn."""

from playwright.sync_api import expect


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
