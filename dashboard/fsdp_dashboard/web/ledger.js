// The ledger of one or several ranks as stacked areas on canvases, one below the other on one scale of bytes.
//
// The server sends each panel's rows once, packed (charts/wire.py); what is drawn is picked from them per zoom:
// all rows of the window, or of each column of pixels those at its least, greatest and last total, so that every stack drawn was.
// Only a window with too few of them asks the server for more. A name from a run is set as textContent, never as HTML.

const MAX_EVENT_STEPS = 60; // more steps in view are drawn as the composition of their peaks: events would be hatching
const DETAIL_BELOW = 400; // rows in view that do not stand for themselves: ask for finer ones
const ASK_AFTER_MS = 300;
const MARGIN = { left: 66, right: 10, top: 20, bottom: 24 };
const FILLS = {
  FORWARD: "rgba(78,107,232,0.10)", BACKWARD: "rgba(230,145,38,0.10)", OPTIMIZER: "rgba(122,100,176,0.14)",
  EVALUATION: "rgba(70,160,90,0.12)", CHECKPOINT: "rgba(70,160,160,0.14)",
};
const NEUTRAL = "#808a94";
const GRID = "rgba(128,138,148,0.25)";
const views = new WeakMap();

export default function (component) {
  const root = component.parentElement.querySelector(".ledger");
  let view = views.get(root);
  if (!view) views.set(root, (view = new Ledger(root)));
  view.component = component;
  view.show(component.data);
}

async function unpacked(packed) {
  // Columns of float64 differences, bytes of equal weight together, deflated.
  const squeezed = Uint8Array.from(atob(packed.text), (c) => c.charCodeAt(0));
  const stream = new Blob([squeezed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const { rows, columns } = packed;
  const count = rows * columns.length;
  const plain = new Uint8Array(count * 8);
  for (let b = 0; b < 8; b++) for (let i = 0; i < count; i++) plain[i * 8 + b] = bytes[b * count + i];
  const values = new Float64Array(plain.buffer);
  const found = { rows, column: {}, bin: packed.bin_events };
  columns.forEach((name, k) => {
    const column = values.subarray(k * rows, (k + 1) * rows);
    for (let i = 1; i < rows; i++) column[i] += column[i - 1];
    found.column[name] = column;
  });
  return found;
}

class Ledger {
  constructor(root) {
    this.root = root;
    this.panels = [];
    // The colours are the theme's: another theme is a transition of the text's colour.
    root.addEventListener("transitionend", (e) => e.target === root && this.redraw());
    new ResizeObserver(() => this.redraw()).observe(root);
  }

  async show(data) {
    this.wanted = data.id;
    if (this.id !== data.id) {
      if (!data.panels) return this.ask(true); // the server thinks that this browser has them still
      const unpacking = data.panels.map((panel) => Promise.all([unpacked(panel.packed), panel.peaks && unpacked(panel.peaks)]));
      const rows = await Promise.all(unpacking);
      if (this.wanted !== data.id) return;
      this.id = data.id;
      this.data = data;
      this.root.replaceChildren();
      this.panels = data.panels.map((panel, i) => new Panel(this, panel, rows[i][0], rows[i][1], data.windows[i]));
      const foot = add(this.root, "div", "foot");
      foot.textContent = data.x_title;
      if (this.panels.some((panel) => panel.wantsDetail())) this.changed(); // a link may show a few of many events
    }
    if (data.detail && data.detail.key !== this.detail) {
      this.detail = data.detail.key;
      const rows = await unpacked(data.detail.packed);
      const panel = this.panels[data.detail.panel];
      if (panel) panel.refine(rows, data.detail);
    }
    this.redraw();
  }

  redraw() {
    for (const panel of this.panels) panel.draw();
  }

  changed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(false), ASK_AFTER_MS);
  }

  ask(again) {
    const windows = this.panels.map((p) => (p.isReset() ? "" : `${Math.round(p.from)}:${Math.round(p.to)}`));
    const wants = this.panels.findIndex((panel) => panel.wantsDetail());
    this.component.setStateValue("view", { windows, wants, has: again ? null : this.id });
  }
}

class Panel {
  constructor(ledger, told, base, peaks, window) {
    Object.assign(this, { ledger, told, base, peaks, detail: null, at: null });
    this.set(...(window || told.opens)); // a link's window may lie anywhere
    const head = add(ledger.root, "div", "head");
    add(head, "b").textContent = told.title;
    this.about = add(head, "span", "about");
    for (const [sign, label, act] of [["+", "Zoom in", () => this.zoom(0.5)], ["−", "Zoom out", () => this.zoom(2)], ["Reset", "Reset the zoom", () => this.reset()]]) {
      const button = add(head, "button");
      button.textContent = sign;
      button.title = label;
      button.setAttribute("aria-label", `${label}: ${told.title}`);
      button.onclick = act;
    }
    this.plot = add(ledger.root, "div", "plot");
    this.plot.style.height = `${ledger.data.height_px}px`;
    this.plot.tabIndex = 0;
    this.plot.setAttribute("role", "img");
    this.plot.setAttribute("aria-label", `${told.alt} Arrows pan, plus and minus zoom, 0 resets, shift and arrows read the moments.`);
    this.canvas = add(this.plot, "canvas");
    this.over = add(this.plot, "canvas");
    this.labels = add(this.plot, "div", "labels");
    this.tip = add(this.plot, "div", "tip");
    this.tip.hidden = true;
    this.tip.setAttribute("aria-live", "polite");
    this.listen();
  }

  listen() {
    const plot = this.plot;
    let begun = null;
    plot.onpointerdown = (e) => {
      begun = e.offsetX;
      if (e.pointerType !== "touch") plot.setPointerCapture(e.pointerId);
    };
    plot.onpointermove = (e) => {
      const x = this.offset(e);
      this.point(x);
      if (begun !== null && Math.abs(x - begun) > 4) this.select(begun, x);
    };
    plot.onpointerup = (e) => {
      const x = this.offset(e);
      if (begun !== null && Math.abs(x - begun) > 4) this.go(...[this.time(begun), this.time(x)].sort((a, b) => a - b));
      else if (begun !== null) this.click(x);
      begun = null;
    };
    plot.onpointerleave = () => this.leave();
    plot.onpointercancel = () => ((begun = null), this.leave());
    plot.ondblclick = () => this.reset();
    plot.addEventListener("wheel", (e) => {
      if (!e.ctrlKey && !e.metaKey) return; // the page scrolls
      e.preventDefault();
      this.zoom(e.deltaY > 0 ? 1.25 : 0.8, this.time(this.offset(e)));
    }, { passive: false });
    plot.onblur = () => this.leave();
    plot.onkeydown = (e) => {
      const step = (this.to - this.from) * 0.15;
      const keys = {
        ArrowLeft: () => (e.shiftKey ? this.read(-1) : this.go(this.from - step, this.to - step)),
        ArrowRight: () => (e.shiftKey ? this.read(1) : this.go(this.from + step, this.to + step)),
        "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), _: () => this.zoom(2),
        0: () => this.reset(), Escape: () => this.leave(), Enter: () => this.at !== null && this.click(this.x(this.at)),
      };
      if (!keys[e.key] || e.ctrlKey || e.metaKey || e.altKey) return;
      e.preventDefault();
      keys[e.key]();
    };
  }

  offset(e) {
    return e.clientX - this.plot.getBoundingClientRect().left;
  }

  // -- the window

  isReset() {
    return this.from === this.told.opens[0] && this.to === this.told.opens[1];
  }

  reset() {
    this.from = this.told.opens[0];
    this.to = this.told.opens[1];
    this.moved();
  }

  zoom(factor, around = (this.from + this.to) / 2) {
    this.go(around - (around - this.from) * factor, around + (this.to - around) * factor);
  }

  go(from, to) {
    this.set(from, to);
    this.moved();
  }

  set(from, to) {
    const { begin, end } = this.told;
    const width = Math.min(Math.max(to - from, 1000), end - begin); // a microsecond at least
    this.from = Math.min(Math.max(from, begin), end - width);
    this.to = this.from + width;
  }

  moved() {
    this.leave();
    this.draw();
    this.ledger.changed();
  }

  wantsDetail() {
    const rows = this.source();
    if (this.asBars()) return false;
    if (!this.knowsPhases() && this.stepsInView().length <= MAX_EVENT_STEPS) return true;
    if (rows.bin === 1) return false;
    return this.bounds(rows)[1] - this.bounds(rows)[0] < DETAIL_BELOW;
  }

  refine(rows, detail) {
    this.detail = { rows, from: detail.from, to: detail.to, phases: detail.phases, blocks: detail.blocks };
    this.draw();
  }

  // -- rows

  source() {
    const finer = this.finer();
    return finer ? finer.rows : this.base;
  }

  phases() {
    return (this.finer() || this.told).phases || [];
  }

  knowsPhases() {
    return Boolean((this.finer() || this.told).phases);
  }

  finer() {
    const d = this.detail;
    return d && d.from <= this.from && d.to >= this.to ? d : null;
  }

  bounds(rows) {
    const t = rows.column.t;
    return [Math.max(after(t, this.from) - 1, 0), Math.max(after(t, this.to), 1)];
  }

  picked(rows) {
    const [first, stop] = this.bounds(rows);
    const total = rows.column.total;
    const columns = Math.max(Math.round(this.width), 1);
    if (stop - first <= 3 * columns) return Array.from({ length: stop - first }, (_, i) => first + i);
    // Of each column of pixels the least, the greatest and the last: a value is held to the next column with an event.
    const found = [first];
    const t = rows.column.t;
    for (let i = first; i < stop; ) {
      const column = Math.floor(((t[i] - this.from) / (this.to - this.from)) * columns);
      const edge = this.from + ((column + 1) / columns) * (this.to - this.from);
      let least = i, most = i, last = i;
      do {
        if (total[i] < total[least]) least = i;
        if (total[i] > total[most]) most = i;
        last = i++;
      } while (i < stop && t[i] < edge);
      for (const row of [Math.min(least, most), Math.max(least, most), last]) if (row > found[found.length - 1]) found.push(row);
    }
    return found;
  }

  stepsInView() {
    return this.told.steps.filter(([, a, b]) => b > this.from && a < this.to);
  }

  asBars() {
    return Boolean(this.peaks) && this.stepsInView().length > MAX_EVENT_STEPS;
  }

  // -- drawing

  x(t) {
    return MARGIN.left + ((t - this.from) / (this.to - this.from)) * this.width;
  }

  time(x) {
    return this.from + ((x - MARGIN.left) / this.width) * (this.to - this.from);
  }

  y(bytes) {
    return MARGIN.top + this.height * (1 - bytes / this.ledger.data.axis_bytes);
  }

  context(canvas) {
    const ratio = window.devicePixelRatio || 1;
    const box = this.plot.getBoundingClientRect();
    canvas.width = Math.round(box.width * ratio);
    canvas.height = Math.round(box.height * ratio);
    this.width = Math.max(box.width - MARGIN.left - MARGIN.right, 10);
    this.height = box.height - MARGIN.top - MARGIN.bottom;
    const c = canvas.getContext("2d");
    c.scale(ratio, ratio);
    return c;
  }

  draw() {
    if (!this.plot.isConnected || !this.plot.clientWidth) return;
    const begun = performance.now();
    const c = this.context(this.canvas);
    this.labels.replaceChildren();
    const style = getComputedStyle(this.ledger.root);
    this.text = style.color;
    c.font = `11px ${style.fontFamily}`;
    this.grid(c);
    c.save();
    c.beginPath();
    c.rect(MARGIN.left, MARGIN.top, this.width, this.height);
    c.clip();
    let drawn;
    if (this.asBars()) drawn = this.bars(c);
    else {
      this.bands(c);
      drawn = this.areas(c);
      this.levels(c);
    }
    this.reference(c);
    c.restore();
    this.peak(c);
    this.about.textContent = this.told.about + (this.asBars() ? ": the peak of each step; zoom in for its events" : "");
    this.plot.dataset.rows = drawn;
    this.plot.dataset.mode = this.asBars() ? "steps" : "events";
    this.plot.dataset.bin = this.asBars() ? "" : this.source().bin;
    this.plot.dataset.from = Math.round(this.from);
    this.plot.dataset.to = Math.round(this.to);
    this.plot.dataset.drawMs = (performance.now() - begun).toFixed(1);
    this.plot.dataset.paints = Number(this.plot.dataset.paints || 0) + 1;
  }

  grid(c) {
    const { unit, axis_bytes: top, time_unit: time } = this.ledger.data;
    c.fillStyle = this.text;
    c.strokeStyle = GRID;
    c.lineWidth = 1;
    c.textBaseline = "middle";
    c.textAlign = "right";
    for (const tick of ticks(0, top / unit.bytes, 5)) {
      const y = Math.round(this.y(tick * unit.bytes)) + 0.5;
      c.beginPath();
      c.moveTo(MARGIN.left, y);
      c.lineTo(MARGIN.left + this.width, y);
      c.stroke();
      c.fillText(`${plain(tick)} ${unit.name}`, MARGIN.left - 5, y);
    }
    c.textAlign = "center";
    c.textBaseline = "top";
    for (const tick of ticks(this.from / time.ns, this.to / time.ns, Math.max(this.width / 90, 4))) {
      const x = this.x(tick * time.ns);
      c.beginPath();
      c.moveTo(x, MARGIN.top + this.height);
      c.lineTo(x, MARGIN.top + this.height + 4);
      c.stroke();
      c.fillText(`${plain(tick)}`, x, MARGIN.top + this.height + 7);
    }
  }

  bands(c) {
    for (const [phase, a, b] of this.phases()) {
      if (b <= this.from || a >= this.to || !FILLS[phase]) continue;
      const x0 = Math.max(this.x(a), MARGIN.left), x1 = Math.min(this.x(b), MARGIN.left + this.width);
      c.fillStyle = FILLS[phase];
      c.fillRect(x0, MARGIN.top, x1 - x0, this.height);
      if (x1 - x0 > c.measureText(phase).width + 8) this.label("phase", phase, (x0 + x1) / 2, MARGIN.top + 1, "center");
    }
    const steps = this.stepsInView();
    for (const [step, a, b] of steps) {
      const x0 = Math.max(this.x(a), MARGIN.left), x1 = Math.min(this.x(b), MARGIN.left + this.width);
      c.strokeStyle = NEUTRAL;
      c.setLineDash([2, 3]);
      c.beginPath();
      c.moveTo(Math.round(this.x(b)) + 0.5, MARGIN.top);
      c.lineTo(Math.round(this.x(b)) + 0.5, MARGIN.top + this.height);
      c.stroke();
      c.setLineDash([]);
      const name = step < 0 ? (step === -1 ? "set-up" : "after") : steps.length > 12 ? `${step}` : `step ${step}`;
      if (x1 - x0 > c.measureText(name).width + 6) this.label("step", name, (x0 + x1) / 2, 3, "center");
    }
  }

  areas(c) {
    const rows = this.source();
    const picked = this.picked(rows);
    const t = rows.column.t;
    const x = picked.map((i) => this.x(t[i]));
    x.push(Math.min(this.x(Math.min(this.to, this.told.end)), MARGIN.left + this.width));
    let base = new Float64Array(picked.length);
    for (const [name, colour] of this.ledger.data.categories) {
      const column = rows.column[name];
      if (!column) continue;
      const upper = base.map((value, i) => value + column[picked[i]]);
      c.fillStyle = colour;
      c.beginPath();
      this.edge(c, x, upper);
      for (let i = upper.length - 1; i >= 0; i--) {
        c.lineTo(x[i + 1], this.y(base[i]));
        c.lineTo(x[i], this.y(base[i]));
      }
      c.fill();
      base = upper;
    }
    c.strokeStyle = NEUTRAL;
    c.lineWidth = 1;
    c.beginPath();
    this.edge(c, x, base);
    c.stroke();
    return picked.length;
  }

  edge(c, x, values) {
    values.forEach((value, i) => {
      const y = this.y(value);
      c.lineTo(x[i], y);
      c.lineTo(x[i + 1], y);
    });
  }

  levels(c) {
    const rows = this.source();
    for (const [name, colour, isSampled] of this.ledger.data.levels) {
      c.strokeStyle = c.fillStyle = colour;
      c.lineWidth = 1.5;
      c.beginPath();
      if (isSampled) {
        const samples = this.told.device || [];
        c.setLineDash([2, 3]);
        for (const [t, size] of samples) c.lineTo(this.x(t), this.y(size));
        c.stroke();
        c.setLineDash([]);
        const seen = samples.filter(([t]) => t >= this.from && t <= this.to);
        if (seen.length < this.width / 12) for (const [t, size] of seen) c.fillRect(this.x(t) - 2.5, this.y(size) - 2.5, 5, 5);
      } else if (rows.column[name]) {
        const picked = this.picked(rows);
        const x = picked.map((i) => this.x(rows.column.t[i]));
        x.push(MARGIN.left + this.width);
        this.edge(c, x, picked.map((i) => rows.column[name][i]));
        c.stroke();
      }
    }
  }

  bars(c) {
    const { column, rows } = this.peaks;
    const gap = this.width / this.stepsInView().length > 6 ? 1 : 0;
    let drawn = 0;
    for (let i = 0; i < rows; i++) {
      const span = this.spanOf(column.step[i]);
      if (!span || span[1] <= this.from || span[0] >= this.to) continue;
      drawn++;
      const x0 = this.x(span[0]), x1 = Math.max(this.x(span[1]) - gap, x0 + 0.5);
      let base = 0;
      for (const [name, colour] of this.ledger.data.categories) {
        const size = column[name] ? column[name][i] : 0;
        c.fillStyle = colour;
        c.fillRect(x0, this.y(base + size), x1 - x0, this.y(base) - this.y(base + size));
        base += size;
      }
    }
    return drawn;
  }

  spanOf(step) {
    if (!this.spans) this.spans = new Map(this.told.steps.map(([number, a, b]) => [number, [a, b]]));
    return this.spans.get(step);
  }

  reference(c) {
    const { highest_bytes: highest, highest_text: text } = this.ledger.data;
    if (!text) return;
    const y = Math.round(this.y(highest)) + 0.5;
    c.strokeStyle = NEUTRAL;
    c.setLineDash([6, 4]);
    c.beginPath();
    c.moveTo(MARGIN.left, y);
    c.lineTo(MARGIN.left + this.width, y);
    c.stroke();
    c.setLineDash([]);
    if (this.told.names_highest) this.label("reference", text, MARGIN.left + 4, y + 2, "left");
  }

  peak(c) {
    const { t, bytes, text, clear_bytes: clear } = this.told.peak;
    if (t < this.from || t > this.to) return;
    const x = this.x(t), y = this.y(bytes), top = Math.max(this.y(clear) - 18, MARGIN.top + 14);
    const isRight = x > MARGIN.left + this.width / 2;
    c.strokeStyle = NEUTRAL;
    c.lineWidth = 1;
    c.beginPath();
    c.moveTo(x, y);
    c.lineTo(x + (isRight ? -18 : 18), top + 7);
    c.stroke();
    c.fillStyle = NEUTRAL;
    c.strokeStyle = "white";
    c.beginPath();
    for (const [dx, dy] of [[0, -5], [5, 0], [0, 5], [-5, 0]]) c.lineTo(x + dx, y + dy);
    c.closePath();
    c.fill();
    c.stroke();
    this.label("peak", text, x + (isRight ? -20 : 20), top, isRight ? "right" : "left");
  }

  label(kind, text, x, y, align) {
    const span = add(this.labels, "span", kind);
    span.textContent = text;
    span.style.top = `${y}px`;
    span.style.left = `${x}px`;
    span.style.transform = { left: "none", center: "translateX(-50%)", right: "translateX(-100%)" }[align];
  }

  // -- moments

  read(by) {
    const moments = this.asBars() ? this.middles() : this.source().column.t;
    const [first, stop] = this.asBars() ? [0, moments.length] : this.bounds(this.source());
    // Moments of several events count once: as they were after the last of them.
    let row = by > 0 ? first : stop - 1;
    if (this.at !== null) row = by > 0 ? after(moments, this.at) : before(moments, this.at) - 1;
    row = Math.min(Math.max(row, first), stop - 1);
    if (row >= 0) this.tell(Math.max(moments[row], this.from));
  }

  middles() {
    const spans = Array.from(this.peaks.column.step, (step) => this.spanOf(step)).filter(Boolean);
    return spans.map(([a, b]) => (a + b) / 2).filter((t) => t >= this.from && t <= this.to);
  }

  tell(t) {
    this.point(this.x(t), t);
  }

  point(x, t = this.time(x)) {
    if (x < MARGIN.left - 1 || x > MARGIN.left + this.width + 1) return this.leave();
    const told = this.asBars() ? this.toldOfStep(t) : this.toldOfMoment(t);
    if (!told) return this.leave();
    this.at = told.at;
    const c = this.context(this.over);
    const line = Math.round(Math.max(this.x(told.at), MARGIN.left)) + 0.5;
    c.strokeStyle = NEUTRAL;
    c.beginPath();
    c.moveTo(line, MARGIN.top);
    c.lineTo(line, MARGIN.top + this.height);
    c.stroke();
    this.tip.replaceChildren();
    for (const [text, kind, colour] of told.lines) {
      const div = add(this.tip, "div", kind);
      if (colour) add(div, "i").style.background = colour;
      div.append(text);
    }
    this.tip.hidden = false;
    const room = this.plot.clientWidth - this.tip.offsetWidth - 4;
    const side = x + 14 + this.tip.offsetWidth < this.plot.clientWidth ? x + 14 : x - 14 - this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(Math.min(side, room), 0)}px`;
    this.tip.style.top = `${MARGIN.top}px`;
  }

  toldOfMoment(pointed) {
    const rows = this.source();
    const row = after(rows.column.t, pointed) - 1;
    const time = this.ledger.data.time_unit;
    // Where events are left out, what is told is told of the moment that is there, all of it.
    const t = row >= 0 && rows.bin > 1 ? Math.max(rows.column.t[row], this.from) : pointed;
    const digits = Math.min(Math.max(Math.ceil(Math.log10((1000 * time.ns) / (this.to - this.from))) + 1, 3), 9);
    const lines = [[`${(t / time.ns).toFixed(digits)} ${time.text} ${this.told.of_what}`, "faint"]];
    if (row < 0) return { at: t, lines: [...lines, ["before the first event", ""]] };
    const at = rows.column.t[row];
    for (const [name, , isSampled] of [...this.ledger.data.levels, ...this.ledger.data.levels_above].reverse()) {
      const sample = isSampled && this.told.device ? this.told.device[after2(this.told.device, t) - 1] : null;
      const size = isSampled ? sample && sample[1] : rows.column[name] && rows.column[name][row];
      if (size !== null && size !== undefined) lines.push([`${name} ${bytes(size)}`, ""]);
    }
    lines.push([`allocated ${bytes(rows.column.total[row])}`, "strong"]);
    const phase = this.phases().find(([, a, b]) => a <= t && t < b);
    const where = phase ? `${phase[0]}, ` : this.knowsPhases() ? "OTHER, " : "";
    const unit = rows.column.unit[row];
    const name = unit < 0 ? "no unit at work" : `unit ${this.told.units[unit] ?? unit}`;
    lines.push([`${where}${name}`, ""]);
    lines.push(...this.composition(rows, row));
    const live = (this.finer() || this.told).blocks.filter(([a, b]) => a <= t && t < b).slice(0, 3);
    if (live.length) lines.push(["biggest allocations then:", "faint"]);
    for (const [, , text] of live) lines.push([text, ""]);
    if (rows.bin > 1) lines.push(["not every event is here; zoom in for all", "faint"]);
    return { at: Math.max(at, this.from), lines };
  }

  toldOfStep(t) {
    const { column, rows } = this.peaks;
    for (let i = 0; i < rows; i++) {
      const span = this.spanOf(column.step[i]);
      if (!span || span[0] > t || span[1] <= t) continue;
      const lines = [[`peak of step ${column.step[i]}: ${bytes(column.total[i])}`, "strong"], ...this.composition(this.peaks, i)];
      return { at: (span[0] + span[1]) / 2, lines: [...lines, ["click to open the step", "faint"]] };
    }
    return null;
  }

  composition(rows, row) {
    const found = [];
    for (const [name, colour] of [...this.ledger.data.categories].reverse()) {
      const size = rows.column[name] ? rows.column[name][row] : 0;
      if (size) found.push([`${name} ${bytes(size)}`, "", colour]);
    }
    return found;
  }

  click(x) {
    const t = this.time(x);
    const step = this.told.steps.find(([number, a, b]) => number >= 0 && a <= t && t < b);
    if (step) this.ledger.component.setTriggerValue("step", step[0]);
  }

  select(a, b) {
    const c = this.over.getContext("2d");
    c.fillStyle = "rgba(128,138,148,0.25)";
    c.fillRect(Math.min(a, b), MARGIN.top, Math.abs(a - b), this.height);
  }

  leave() {
    this.at = null;
    this.tip.hidden = true;
    this.over.getContext("2d").clearRect(0, 0, this.over.width, this.over.height);
  }
}

function add(parent, tag, kind = "") {
  const found = document.createElement(tag);
  if (kind) found.className = kind;
  parent.append(found);
  return found;
}

/** Index of the first value above v, of values in order. */
function after(values, v) {
  let a = 0, b = values.length;
  while (a < b) {
    const middle = (a + b) >> 1;
    if (values[middle] <= v) a = middle + 1;
    else b = middle;
  }
  return a;
}

function before(values, v) {
  let a = 0, b = values.length;
  while (a < b) {
    const middle = (a + b) >> 1;
    if (values[middle] < v) a = middle + 1;
    else b = middle;
  }
  return a;
}

function after2(pairs, v) {
  return after(pairs.map(([t]) => t), v);
}

function ticks(from, to, wanted) {
  const rough = (to - from) / Math.max(wanted, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const found = [];
  for (let k = Math.ceil(from / step); k * step <= to; k++) found.push(k * step);
  return found;
}

function plain(value) {
  return Number(value.toPrecision(9)).toString();
}

/** As humanize.bytes_text. */
function bytes(size) {
  for (const [name, unit] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (size >= unit) return `${(size / unit).toFixed(2)} ${name}`;
  }
  return `${size} B`;
}
