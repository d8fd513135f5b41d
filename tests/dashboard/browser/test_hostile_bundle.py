import re
import shutil
import zipfile

import pytest
from browsing import CHROMIUM
from builder import RunBuilder
from dashboard.browser.waiting import drawn
from playwright.sync_api import expect

from fsdp_profile.core.categories import Category
from fsdp_profile.core.manifest import Model, RankRecord
from fsdp_profile.core.schema import CollectiveKind, Ending, SpanKind
from fsdp_profile.export.bundle import bundle_bytes
from fsdp_profile.ingest.tags import MAX_TAG_CHARS, write_tags

MIB = 1 << 20
HOSTILE = "<img src=x onerror=alert(1)> $x$ **b**"
LINKS = "[x](javascript:alert(2)) ![i](http://203.0.113.9/i.png) <a href='http://203.0.113.9'>a</a> http://203.0.113.9"
TEXT = f"{HOSTILE} {LINKS} $\\frac{{x}}{{y}}$ %{{y}} :smile: <script>alert(3)</script>"
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: neither /usr/bin/chromium nor on PATH")


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
