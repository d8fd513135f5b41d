// The ledger of one or several ranks as stacked areas on canvases, one below the other on one scale of bytes.
//
// The server sends each panel's rows once, packed (charts/wire.py); what is drawn is picked from them per zoom:
// all rows of the window, or of each column of pixels those at its least, greatest and last total, so that every stack drawn was.
// Only a window with too few of them asks the server for more. A name from a run is set as textContent, never as HTML.

const ASK_AFTER_MS = 300;
const views = new WeakMap();

export default function (component) {
  const root = component.parentElement.querySelector(".ledger");
  let view = views.get(root);
  if (!view) views.set(root, (view = new Ledger(root)));
  view.component = component;
  view.show(component.data);
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
