import pytest
from browsing import CHROMIUM, FLAGS, is_error, is_outside
from playwright.sync_api import sync_playwright

from fsdp_dashboard.serving import served

SIZES = {"wide": (1440, 900), "phone": (390, 844)}


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
