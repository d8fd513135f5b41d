// The rows of one panel: which of them the window shows, and whether finer ones are wanted.

const MAX_EVENT_STEPS = 60; // more steps in view are drawn as the composition of their peaks: events would be hatching
const DETAIL_BELOW = 400; // rows in view that do not stand for themselves: ask for finer ones

class Rows {
  constructor(told, base, peaks) {
    Object.assign(this, { told, base, peaks, detail: null });
  }

  set(from, to) {
    const { begin, end } = this.told;
    const width = Math.min(Math.max(to - from, 1000), end - begin); // a microsecond at least
    this.from = Math.min(Math.max(from, begin), end - width);
    this.to = this.from + width;
  }

  wantsDetail() {
    const rows = this.source();
    if (this.asBars()) return false;
    if (!this.knowsPhases() && this.stepsInView().length <= MAX_EVENT_STEPS) return true;
    if (rows.bin === 1) return false;
    return this.bounds(rows)[1] - this.bounds(rows)[0] < DETAIL_BELOW;
  }

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
}
