// The live diagram in a page: its controls, its loop, the pointer and the selection.

import { h, setText, show } from "../dom.js";
import { count, counted } from "../format.js";
import { choice } from "../parts/basics.js";
import { AXIS, Layout, placeTip } from "../timeline/layout.js";
import { NOTE } from "../timeline/painter.js";
import { chainOf, chosenPanel, tipOf } from "./details.js";
import { LivePainter } from "./draw.js";
import { BOX, BOXES, lineOf, ordered, shapeOf } from "./layout.js";
import { Listing } from "./listing.js";
import { Tracks } from "./tracks.js";

const WINDOWS = [[5, "5 s"], [15, "15 s"], [60, "1 min"], [300, "5 min"]];
/** Seconds by which the drawing lags, so that events in flight have arrived. */
const LAG = 0.25;
const FRAME = 33;

export class Chart {
  constructor({ queue, live, signal, query, note }) {
    this.queue = queue;
    this.live = live;
    this.note = note;
    this.tracks = new Tracks();
    this.by = query.get("by") === "worker" ? "worker" : "key";
    this.seconds = WINDOWS.find(([value]) => String(value) === query.get("window"))?.[0] ?? 15;
    this.order = ["busy", "waiting", "name"].includes(query.get("order")) ? query.get("order") : "busy";
    this.rows = [];
    this.top = 0;
    this.tall = 0;
    this.frozen = null;
    this.offset = null;
    this.hover = -1;
    this.chosen = null;
    this.drawn = 0;
    this.sorted = 0;
    this.build();
    this.painter = new LivePainter(this.canvas);
    this.listing = new Listing(this);
    this.list.append(this.listing.element);
    this.listen(signal);
  }

  build() {
    this.canvas = h("canvas", {
      tabindex: "0", role: "img", "aria-describedby": "diagram-words",
      "aria-label": "Live diagram of keys or workers over time. Left and right move in time, up and down over the tracks, plus and minus change the span, space stops it. The table next to it has the same contents.",
    });
    this.scroller = h("div", { class: "scroller", tabindex: "-1", "aria-hidden": "true" }, h("div"));
    this.tip = h("div", { class: "tip", hidden: true, "aria-hidden": "true" });
    this.words = h("p", { id: "diagram-words", class: "unseen" });
    this.place = h("div", { class: "tracks" }, this.canvas, this.scroller, this.tip);
    this.nothing = h("div", { class: "note", hidden: true });
    this.detail = h("div", { class: "chosen-message", hidden: true, "aria-live": "polite" });
    this.list = h("div", { class: "unseen listing" });
    this.stopping = h("button", { type: "button", class: "small", "aria-pressed": "false", onclick: () => this.freeze(this.frozen === null) }, "Stop");
    this.asTable = h("button", { type: "button", class: "small", "aria-pressed": "false", onclick: () => this.showTable() }, "Table");
    const set = (name, after) => (value) => { this[name] = value; after?.(); this.note({ by: this.by === "key" ? "" : this.by, window: this.seconds === 15 ? "" : this.seconds, order: this.order === "busy" ? "" : this.order }); this.resort(true); };
    this.controls = [
      choice("Tracks", [["key", "Keys"], ["worker", "Workers"]], this.by, set("by", () => { this.top = 0; this.tall = 0; })),
      choice("Order", [["busy", "Busy"], ["waiting", "Waiting"], ["name", "Name"]], this.order, set("order")),
      choice("Span", WINDOWS, this.seconds, set("seconds")),
      this.stopping, this.asTable,
    ];
    const sign = (kind, text) => h("span", {}, h("i", { class: `swatch ${kind}`, "aria-hidden": "true" }), text);
    this.legend = h("div", { class: "legend", "aria-label": "Legend" }, sign("leased", "leased, a colour for each worker"), sign("failed", "attempt failed"),
      sign("backing_off", "backing off"), sign("held", "held"), sign("waiting", "messages wait"));
    this.missed = h("span", { class: "warn" });
    this.legend.append(h("span", { class: "gathered" }, NOTE), this.missed);
    this.element = h("div", {}, this.words, this.place, this.nothing, this.detail, this.list, this.legend);
  }

  listen(signal) {
    this.live.addEventListener("events", ({ detail }) => this.take(detail), { signal });
    addEventListener("interlock:theme", () => { this.painter.readTheme(); this.drawn = 0; }, { signal });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { this.painter.readTheme(); this.drawn = 0; }, { signal });
    addEventListener("interlock:escape", () => this.choose(null), { signal });
    this.canvas.addEventListener("pointermove", (event) => this.point(event), { signal });
    this.canvas.addEventListener("pointerleave", () => { this.hover = -1; this.tip.hidden = true; }, { signal });
    this.canvas.addEventListener("click", (event) => this.choose(this.under(event).id), { signal });
    this.canvas.addEventListener("keydown", (event) => this.key(event), { signal });
    this.canvas.addEventListener("wheel", (event) => this.wheel(event), { signal, passive: false });
    this.scroller.addEventListener("scroll", () => { this.top = this.scroller.scrollTop; this.drawn = 0; }, { signal });
    const still = matchMedia("(prefers-reduced-motion: reduce)");
    let frame = 0;
    const step = (at) => {
      frame = requestAnimationFrame(step);
      if (at - this.drawn < (still.matches ? 1000 : this.slow ? 120 : FRAME - 4)) return;
      this.drawn = at;
      const begin = performance.now();
      this.draw();
      // A machine that draws slowly draws less often, and stays responsive.
      this.slow = performance.now() - begin > 14;
    };
    frame = requestAnimationFrame(step);
    const listing = setInterval(() => { if (!document.hidden) this.listing.update(); }, 1000);
    signal.addEventListener("abort", () => { cancelAnimationFrame(frame); clearInterval(listing); });
  }

  /** Adds events. The engine's clock is at least at the newest event's time. */
  take(detail) {
    const before = this.tracks.last;
    if (detail.error) setText(this.missed, `Cannot read events: ${detail.error}`);
    this.tracks.add(detail);
    if (this.tracks.missed) setText(this.missed, `${counted(this.tracks.missed, "event")} missed: there were more than the engine keeps`);
    if (this.tracks.last === before || !detail.events.length) return;
    const offset = this.tracks.latest - Date.now() / 1000;
    if (this.offset === null || offset > this.offset || offset < this.offset - 5) this.offset = offset;
    else this.offset -= Math.min(0.002, this.offset - offset);
  }

  /** Adds the leases that existed at the beginning. */
  seed(found) {
    this.tracks.seed(found, this.now);
  }

  /** Adds the keys' messages that existed at the beginning. */
  depths(hot) {
    this.tracks.depths(hot);
  }

  get now() {
    return this.frozen ?? Date.now() / 1000 + (this.offset ?? this.live.offset) - LAG;
  }

  freeze(stop) {
    this.frozen = stop ? this.now : null;
    this.stopping.setAttribute("aria-pressed", String(stop));
    setText(this.stopping, stop ? "Go on" : "Stop");
    this.drawn = 0;
  }

  showTable() {
    const shown = this.list.classList.toggle("unseen");
    this.asTable.setAttribute("aria-pressed", String(!shown));
    this.place.hidden = !shown;
    this.resort(true);
    this.listing.update();
  }

  resort(now = false) {
    const at = performance.now();
    if (!now && (at - this.sorted < 1500 || this.frozen !== null || this.hover >= 0)) return;
    this.sorted = at;
    const from = this.now - this.seconds;
    const all = this.by === "key" ? this.tracks.keys : this.tracks.workers;
    const seen = [...all.values()].filter((row) => row.here.size || row.open.size || row.before || row.spans.some((span) => span.end >= from));
    this.rows = ordered(seen, this.order, from, this.now);
  }

  draw() {
    if (document.hidden || this.place.hidden) return;
    this.resort(this.rows.length === 0);
    this.nothing.hidden = this.rows.length > 0;
    if (!this.rows.length) setText(this.nothing, "Nothing has happened on this queue since this page was opened. Puts, leases and settlements are drawn here as they happen.");
    const layout = this.measure();
    if (!layout) return;
    this.layout = layout;
    this.chain = chainOf(this.tracks, this.chosen);
    this.painter.draw(layout, this.rows, { by: this.by, chosen: this.chosen, links: this.chain, hover: this.hover });
    if (this.chosen && performance.now() - (this.detailed ?? 0) > 500) this.drawDetail();
  }

  measure() {
    const width = this.place.clientWidth;
    if (!width) return null;
    const shape = shapeOf(this.by);
    const wanted = AXIS + this.rows.length * shape.row + 2;
    const most = Math.max(220, Math.min(620, innerHeight * 0.6));
    this.tall = Math.max(this.tall, Math.min(most, Math.max(120, wanted)));
    const scrolls = wanted > this.tall;
    const inner = width - (scrolls ? 12 : 0);
    if (this.width !== inner || this.height !== this.tall) {
      [this.width, this.height] = [inner, this.tall];
      this.painter.resize(inner, this.tall);
    }
    this.scroller.hidden = !scrolls;
    const full = `${wanted - AXIS}px`;
    if (this.scroller.firstChild.style.height !== full) this.scroller.firstChild.style.height = full;
    const layoutTo = (to) => new Layout({
      ...shape, width: inner, height: this.tall, right: lineOf(this.by, inner), from: to - this.seconds, to, top: this.top });
    // It moves by whole pixels, so that what is gathered in one of them stays together.
    const pixel = 1 / (layoutTo(this.now).scale * this.painter.ratio);
    const layout = layoutTo(Math.floor(this.now / pixel) * pixel);
    this.top = layout.top = Math.min(this.top, layout.lowest(this.rows.length));
    return layout;
  }

  /** The row and the message under the pointer. */
  under(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const layout = this.layout;
    const at = layout ? layout.rowAt(y) : -1;
    const row = this.rows[at];
    if (!row) return { at: -1, x, y, id: null };
    if (x > layout.end) return { at, row, x, y, id: row.line(BOXES)[Math.floor((x - layout.end - 5) / BOX)]?.id ?? null };
    const { exact, found } = layout.under(this.painter.rows, x, y);
    const span = exact ?? found.at(-1);
    return { at, row, x, y, id: span?.id ?? null, span };
  }

  point(event) {
    const found = this.under(event);
    this.hover = found.at;
    this.canvas.style.cursor = found.id ? "pointer" : "default";
    if (!found.row) { this.tip.hidden = true; return; }
    show(this.tip, tipOf(this.tracks, found, this.now, this.by));
    placeTip(this.tip, found.x, found.y, this.layout);
  }

  choose(id) {
    this.chosen = id;
    this.drawn = 0;
    this.drawDetail();
  }

  drawDetail() {
    this.detailed = performance.now();
    this.detail.hidden = !this.chosen;
    if (this.chosen) chosenPanel(this.detail, this.queue, this.tracks, this.chosen, this.now, (id) => this.choose(id));
  }

  wheel(event) {
    if (event.ctrlKey) return;
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY) && this.frozen !== null) {
      this.frozen += event.deltaX / this.layout.scale;
      event.preventDefault();
    } else if (!this.scroller.hidden) {
      const before = this.scroller.scrollTop;
      this.scroller.scrollTop += event.deltaY;
      if (this.scroller.scrollTop !== before) event.preventDefault();
    }
    this.drawn = 0;
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = WINDOWS.findIndex(([value]) => value === this.seconds);
    const span = (to) => this.controls[2].children[Math.min(WINDOWS.length - 1, Math.max(0, to))].click();
    const move = (part) => { if (this.frozen === null) this.freeze(true); this.frozen += part * this.seconds; };
    const act = {
      ArrowLeft: () => move(-0.1), ArrowRight: () => move(0.1), " ": () => this.freeze(this.frozen === null),
      ArrowUp: () => { this.scroller.scrollTop -= 48; }, ArrowDown: () => { this.scroller.scrollTop += 48; },
      "+": () => span(at - 1), "=": () => span(at - 1), "-": () => span(at + 1),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
    this.drawn = 0;
  }

  /** One sentence that sums up the diagram. */
  sentence() {
    const held = this.rows.filter((row) => (this.by === "key" ? [...row.here.values()].some((one) => one.span) : row.open.size)).length;
    const waiting = this.by === "key" ? this.rows.reduce((sum, row) => sum + row.depthNow, 0) : 0;
    return this.by === "key"
      ? `${counted(this.rows.length, "key")}, ${count(held)} of them held now; ${counted(waiting, "place")} in line taken.`
      : `${counted(this.rows.length, "worker")}, ${count(held)} of them with messages now.`;
  }
}
