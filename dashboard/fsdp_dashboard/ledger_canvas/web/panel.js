// One panel as it is used: zoomed, read moment by moment, clicked; with the mouse, by touch and by the keyboard.

class Panel extends Painted {
  constructor(ledger, told, base, peaks, window) {
    super(told, base, peaks);
    this.ledger = ledger;
    this.at = null; // the moment that is told
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

  moved() {
    this.leave();
    this.draw();
    this.ledger.changed();
  }

  refine(rows, detail) {
    this.detail = { rows, from: detail.from, to: detail.to, phases: detail.phases, blocks: detail.blocks };
    this.draw();
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
    const where = phase ? `${phase[3]}, ` : this.knowsPhases() ? "other, " : "";
    const unit = rows.column.unit[row];
    const name = unit < 0 ? "no active unit" : `active unit ${this.told.units[unit] ?? unit}`;
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
    for (const [name, colour, label] of [...this.ledger.data.categories].reverse()) {
      const size = rows.column[name] ? rows.column[name][row] : 0;
      if (size) found.push([`${label} ${bytes(size)}`, "", colour]);
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
