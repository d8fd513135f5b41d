"use strict";
// Draws each ledger on a canvas. Names from the run are only ever set as text. Of the rows in view, every pixel column
// shows those at its least, greatest and last total, each with all categories as they were then: no state that never was.
(() => {
  const meta = JSON.parse(document.getElementById("meta").textContent);

  const bytesText = (n) => {
    for (const [unit, scale] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
      if (Math.abs(n) >= scale) return (n / scale).toFixed(2) + " " + unit;
    }
    return n + " B";
  };
  const timeText = (ns) => {
    if (Math.abs(ns) < 1e6) return (ns / 1e3).toFixed(1) + " us";
    if (Math.abs(ns) < 1e9) return (ns / 1e6).toFixed(2) + " ms";
    return (ns / 1e9).toFixed(3) + " s";
  };

  const unpack = async (id) => {
    const text = document.getElementById(id).textContent;
    const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Float64Array(await new Response(stream).arrayBuffer());
  };

  const chart = async (figure, info) => {
    const canvas = figure.querySelector("canvas"), readout = figure.querySelector(".readout");
    const flat = await unpack(info.data), rows = info.rows, names = info.categories;
    const column = (k) => {
      const values = flat.subarray(k * rows, (k + 1) * rows);
      for (let i = 1; i < rows; i++) values[i] += values[i - 1];
      return values;
    };
    const t = column(0), live = names.map((_, k) => column(k + 1)), total = new Float64Array(rows);
    for (const values of live) for (let i = 0; i < rows; i++) total[i] += values[i];
    const first = t[0], last = Math.max(info.end_ns, t[rows - 1]);
    let from = first, to = last, drag = null, box = null;

    const before = (x) => { // the last row at or before x
      let a = 0, b = rows;
      while (a < b) { const m = (a + b) >> 1; if (t[m] <= x) a = m + 1; else b = m; }
      return Math.max(a - 1, 0);
    };
    const picked = (width) => {
      const a = before(from), b = before(to), found = [];
      if (b - a <= 3 * width) { for (let i = a; i <= b; i++) found.push(i); return found; }
      let i = a;
      for (let px = 0; px < width; px++) {
        const edge = from + (to - from) * (px + 1) / width;
        let low = -1, high = -1;
        const begun = i;
        for (; i <= b && (t[i] < edge || px === width - 1); i++) {
          if (low < 0 || total[i] < total[low]) low = i;
          if (high < 0 || total[i] > total[high]) high = i;
        }
        if (low < 0) continue;
        // The last one too: it is what is held to the next column that has an event.
        for (const row of new Set([Math.min(low, high), Math.max(low, high), Math.max(i - 1, begun)])) found.push(row);
      }
      if (found[0] !== a) found.unshift(a);
      return found;
    };

    const draw = () => {
      const ratio = window.devicePixelRatio || 1, css = canvas.getBoundingClientRect();
      if (!css.width) return;
      canvas.width = Math.round(css.width * ratio); canvas.height = Math.round(css.height * ratio);
      const c = canvas.getContext("2d"), style = getComputedStyle(document.body);
      c.scale(ratio, ratio);
      const W = css.width, H = css.height, L = 76, R = 8, T = 18, B = 24;
      box = { L, R, W };
      const x = (ns) => L + (ns - from) / (to - from) * (W - L - R);
      const y = (bytes) => H - B - bytes / info.top_bytes * (H - T - B);
      c.fillStyle = style.backgroundColor; c.fillRect(0, 0, W, H);
      c.font = "12px system-ui, sans-serif";
      for (const p of info.phases) {
        if (p[1] < from || p[0] > to || !meta.phases[p[2]]) continue;
        c.fillStyle = meta.phases[p[2]];
        c.fillRect(Math.max(x(p[0]), L), T, Math.min(x(p[1]), W - R) - Math.max(x(p[0]), L), H - T - B);
      }
      const show = picked(Math.max(Math.floor(W - L - R), 1));
      c.save(); c.beginPath(); c.rect(L, T, W - L - R, H - T - B); c.clip();
      const base = new Float64Array(show.length);
      for (let k = 0; k < names.length; k++) {
        const values = live[k], lower = base.slice();
        let any = false;
        for (let n = 0; n < show.length; n++) { base[n] += values[show[n]]; any = any || values[show[n]] > 0; }
        if (!any) continue;
        c.beginPath(); c.moveTo(x(Math.max(t[show[0]], from)), y(base[0]));
        for (let n = 1; n < show.length; n++) { const px = x(t[show[n]]); c.lineTo(px, y(base[n - 1])); c.lineTo(px, y(base[n])); }
        c.lineTo(x(to), y(base[show.length - 1])); c.lineTo(x(to), y(lower[show.length - 1]));
        for (let n = show.length - 1; n > 0; n--) { const px = x(t[show[n]]); c.lineTo(px, y(lower[n])); c.lineTo(px, y(lower[n - 1])); }
        c.lineTo(x(Math.max(t[show[0]], from)), y(lower[0]));
        c.closePath(); c.fillStyle = meta.colours[names[k]]; c.fill();
      }
      c.restore();
      c.fillStyle = style.color; c.strokeStyle = style.color; c.textAlign = "right";
      for (let i = 0; i <= 4; i++) {
        const v = info.top_bytes * i / 4;
        c.globalAlpha = 0.18; c.beginPath(); c.moveTo(L, y(v)); c.lineTo(W - R, y(v)); c.stroke(); c.globalAlpha = 1;
        c.fillText(bytesText(Math.round(v)), L - 6, y(v) + 4);
      }
      c.textAlign = "center";
      const ticks = W < 600 ? 2 : 4;
      for (let i = 0; i <= ticks; i++) c.fillText(timeText(from + (to - from) * i / ticks), Math.min(Math.max(L + (W - L - R) * i / ticks, L + 20), W - 34), H - 7);
      c.textAlign = "left";
      let free = L;
      for (const s of info.steps) {
        if (s[1] < from || s[0] > to) continue;
        const at = Math.max(x(s[0]), L), text = s[2] < 0 ? "" : "step " + s[2];
        if (s[0] >= from) { c.globalAlpha = 0.4; c.beginPath(); c.moveTo(at, T); c.lineTo(at, H - B); c.stroke(); c.globalAlpha = 1; }
        if (text && at >= free && Math.min(x(s[1]), W) - at > 20) { c.fillText(text, at + 3, 12); free = at + c.measureText(text).width + 8; }
      }
      if (info.peak_ns >= from && info.peak_ns <= to) {
        c.setLineDash([3, 3]); c.beginPath(); c.moveTo(x(info.peak_ns), T); c.lineTo(x(info.peak_ns), H - B); c.stroke(); c.setLineDash([]);
      }
      if (drag) { c.globalAlpha = 0.2; c.fillRect(Math.min(drag[0], drag[1]), T, Math.abs(drag[1] - drag[0]), H - T - B); c.globalAlpha = 1; }
      let highest = 0;
      for (const i of show) highest = Math.max(highest, total[i]);
      Object.assign(canvas.dataset, { from: String(from), to: String(to), drawn: String(show.length), highest: String(highest) });
    };

    const zoom = (a, b) => {
      const least = Math.max((last - first) / 1e7, 1000);
      a = Math.max(a, first); b = Math.min(b, last);
      if (b - a < least) { const m = (a + b) / 2; a = Math.max(m - least / 2, first); b = Math.min(a + least, last); }
      from = a; to = b; draw();
    };
    const at = (px) => from + (px - box.L) / (box.W - box.L - box.R) * (to - from);
    const tell = (ns) => {
      const i = before(ns), parts = names.map((_, k) => [info.labels[k], live[k][i]]).filter((p) => p[1] > 0).sort((p, q) => q[1] - p[1]);
      readout.textContent = "at " + timeText(t[i]) + ": " + bytesText(total[i]) + " = " + parts.map((p) => p[0] + " " + bytesText(p[1])).join(" + ");
    };
    canvas.addEventListener("pointerdown", (e) => { if (e.button === 0) { drag = [e.offsetX, e.offsetX]; canvas.setPointerCapture(e.pointerId); } });
    canvas.addEventListener("pointermove", (e) => { tell(at(e.offsetX)); if (drag) { drag[1] = e.offsetX; draw(); } });
    canvas.addEventListener("pointerup", () => {
      const d = drag; drag = null;
      if (d && Math.abs(d[1] - d[0]) > 4) zoom(at(Math.min(...d)), at(Math.max(...d))); else draw();
    });
    canvas.addEventListener("dblclick", () => zoom(first, last));
    canvas.addEventListener("wheel", (e) => {
      if (!e.ctrlKey && !e.metaKey) return; // a page scrolls over its charts
      e.preventDefault();
      const c = at(e.offsetX), f = Math.exp(e.deltaY * 0.002);
      zoom(c - (c - from) * f, c + (to - c) * f);
    }, { passive: false });
    canvas.addEventListener("keydown", (e) => {
      const w = to - from, m = (from + to) / 2;
      const act = { "+": () => zoom(m - w / 4, m + w / 4), "=": () => zoom(m - w / 4, m + w / 4), "-": () => zoom(m - w, m + w), "0": () => zoom(first, last),
        ArrowLeft: () => { const s = Math.min(w / 4, from - first); zoom(from - s, to - s); }, ArrowRight: () => { const s = Math.min(w / 4, last - to); zoom(from + s, to + s); } }[e.key];
      if (act) { e.preventDefault(); act(); }
    });
    for (const button of figure.querySelectorAll("button")) {
      button.addEventListener("click", () => {
        const w = to - from, m = (from + to) / 2;
        ({ whole: () => zoom(first, last), step: () => zoom(info.peak_step[0], info.peak_step[1]), peak: () => zoom(info.peak_ns - (last - first) / 400, info.peak_ns + (last - first) / 400),
          "in": () => zoom(m - w / 4, m + w / 4), out: () => zoom(m - w, m + w) })[button.dataset.zoom]();
      });
    }
    new ResizeObserver(draw).observe(canvas);
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    window.addEventListener("beforeprint", draw); window.addEventListener("afterprint", draw);
    zoom(info.peak_step[0], info.peak_step[1]);
    tell(info.peak_ns);
    figure.dataset.ready = "1";
  };

  for (const info of meta.charts) {
    const figure = document.getElementById(info.figure);
    chart(figure, info).catch((e) => { figure.querySelector(".readout").textContent = "The chart needs a newer browser (" + e.message + ")."; });
  }
})();
