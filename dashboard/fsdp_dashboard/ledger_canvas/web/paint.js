// One panel on its canvases: grid, phases, stacked areas, levels, the peak.

const MARGIN = { left: 66, right: 10, top: 20, bottom: 24 };
const FILLS = {
  FORWARD: "rgba(78,107,232,0.10)", BACKWARD: "rgba(230,145,38,0.10)", OPTIMIZER: "rgba(122,100,176,0.14)",
  EVALUATION: "rgba(70,160,90,0.12)", CHECKPOINT: "rgba(70,160,160,0.14)",
};
const NEUTRAL = "#808a94";
const GRID = "rgba(128,138,148,0.25)";

class Painted extends Rows {
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
    for (const [phase, a, b, label] of this.phases()) {
      if (b <= this.from || a >= this.to || !FILLS[phase]) continue;
      const x0 = Math.max(this.x(a), MARGIN.left), x1 = Math.min(this.x(b), MARGIN.left + this.width);
      c.fillStyle = FILLS[phase];
      c.fillRect(x0, MARGIN.top, x1 - x0, this.height);
      if (x1 - x0 > c.measureText(label).width + 8) this.label("phase", label, (x0 + x1) / 2, MARGIN.top + 1, "center");
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
}
