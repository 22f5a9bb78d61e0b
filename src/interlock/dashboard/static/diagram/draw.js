// The drawing on the canvas: tracks with leased messages, the number that waits, and what blocks
// the chosen message.

import { visible } from "../dom.js";
import { shorten } from "../format.js";
import { colours } from "../theme.js";
import { AXIS, BOX, BOXES } from "./layout.js";

const MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace";
const SANS = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif";
const NAMES = ["ink", "soft", "back", "band", "line", "edge", "accent", "wait", "held", "backing_off", "bad", "on-accent",
  ...Array.from({ length: 9 }, (_, n) => `colour-${n}`)];

export class Painter {
  constructor(canvas) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d", { alpha: false });
    this.readTheme();
  }

  readTheme() {
    this.paint = colours(NAMES);
    this.hatches = { held: this.hatch(this.paint.held), backing_off: this.hatch(this.paint.backing_off) };
  }

  /** Stripes, for keys held without a worker: distinguished by more than colour. */
  hatch(colour) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const pen = tile.getContext("2d");
    pen.strokeStyle = colour;
    pen.lineWidth = 2;
    pen.beginPath();
    for (const at of [-4, 4, 12]) { pen.moveTo(at - 4, 8); pen.lineTo(at + 4, 0); }
    pen.stroke();
    return this.pen.createPattern(tile, "repeat");
  }

  /** Sets the size in CSS pixels. */
  resize(width, height) {
    const ratio = Math.min(3, window.devicePixelRatio || 1);
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.ratio = ratio;
  }

  /** Draws rows with a layout; `chosen` is the id of a message, `links` the messages that block it, `hover` a row's number. */
  draw(layout, rows, { chosen = null, links = [], hover = -1 } = {}) {
    const { pen, paint } = this;
    this.layout = layout;
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.fillStyle = paint.back;
    pen.fillRect(0, 0, layout.width, layout.height);
    const [first, last] = layout.inSight(rows.length);
    for (let at = first; at <= last; at++) {
      if (at % 2 && at !== hover) continue;
      pen.fillStyle = paint.band;
      pen.fillRect(0, layout.y(at), layout.width, layout.row);
    }
    this.axisLines();
    for (let at = first; at <= last; at++) this.track(rows[at], at, chosen);
    this.nowLine();
    if (chosen) this.links(rows, links, chosen);
    this.names(rows, first, last);
    this.axis();
  }

  axisLines() {
    const { pen, paint, layout } = this;
    pen.fillStyle = paint.line;
    for (const { x } of layout.marks()) pen.fillRect(Math.round(x), AXIS, 1, layout.height - AXIS);
  }

  track(row, at, chosen) {
    const { pen, layout } = this;
    const top = layout.y(at);
    pen.save();
    pen.beginPath();
    pen.rect(layout.gutter, Math.max(AXIS, top), layout.plot, layout.row);
    pen.clip();
    if (layout.by === "key") this.depth(row, top);
    const begin = layout.firstSeen(row.spans);
    const left = layout.time(layout.gutter);
    const reached = new Float32Array(16).fill(-1);
    for (let n = 0; n < begin; n++) if (row.spans[n].end === Infinity) this.span(row, n, top, chosen, reached);
    for (let n = begin; n < row.spans.length; n++) if (row.spans[n].end >= left) this.span(row, n, top, chosen, reached);
    pen.restore();
    if (layout.by === "key") this.line(row, top, chosen);
  }

  /** One block. Blocks narrower than a pixel are drawn once for each pixel, so that thousands cost little. */
  span(row, n, top, chosen, reached) {
    const { pen, paint, layout } = this;
    const span = row.spans[n];
    const lane = row.lanes[n];
    const x0 = Math.max(layout.gutter - 2, layout.x(span.start));
    const x1 = Math.min(layout.end, layout.x(span.end));
    if (x1 <= reached[lane] + 0.5 && span.id !== chosen) return;
    const [y, tall] = this.laneBox(row, lane, top);
    const wide = Math.max(1.2, x1 - x0 - (x1 - x0 > 4 ? 1 : 0));
    reached[lane] = x0 + wide;
    if (span.kind === "leased") {
      pen.fillStyle = paint[`colour-${span.colour}`];
      pen.fillRect(x0, y, wide, tall);
      if (span.outcome === "failed" || span.outcome === "dead" || span.outcome === "lost" || span.outcome === "held") {
        pen.fillStyle = paint.bad;
        pen.fillRect(x0 + Math.max(0, wide - 2), y - 2, 2, tall + 4);
      }
      if (wide > 28 && tall >= 11) this.label(layout.by === "key" ? shortWorker(span.worker) || span.id : (span.keys[0] ?? span.shared[0] ?? span.id), x0, wide, y + tall / 2, paint.back);
    } else {
      pen.fillStyle = this.hatches[span.kind];
      pen.fillRect(x0, y, wide, tall);
      pen.strokeStyle = paint[span.kind];
      pen.lineWidth = 1;
      if (wide > 3) pen.strokeRect(x0 + 0.5, y + 0.5, wide - 1, tall - 1);
    }
    if (span.id === chosen) {
      pen.strokeStyle = paint.ink;
      pen.lineWidth = 2;
      pen.strokeRect(x0 - 1, y - 1, Math.max(4, wide + 2), tall + 2);
    }
  }

  /** The position of a row's lane: its upper edge and its height. */
  laneBox(row, lane, top) {
    const { layout } = this;
    const room = layout.row - (layout.by === "key" ? 10 : 8);
    const tall = room / row.wide;
    return [top + 4 + tall * lane, Math.max(1, tall - (row.wide > 1 && tall > 3 ? 1 : 0))];
  }

  label(text, x, wide, y, colour) {
    const { pen } = this;
    pen.font = `10.5px ${MONO}`;
    pen.textBaseline = "middle";
    pen.textAlign = "left";
    const room = Math.floor((wide - 8) / 6.4);
    // A label cut so short is ambiguous, so it is left out.
    if (room < Math.min(9, String(text).length)) return;
    pen.fillStyle = colour;
    pen.fillText(shorten(visible(text), room), x + 4, y + 0.5);
  }

  /** The number that waited, as a strip at the foot of a track: thicker for more, in steps of ten. */
  depth(row, top) {
    const { pen, paint, layout } = this;
    const y = top + layout.row - 2;
    const points = row.depth;
    pen.fillStyle = paint.wait;
    const strip = (from, to, count) => {
      if (count <= 0) return;
      const tall = Math.min(4, 1 + Math.log10(count));
      const x0 = Math.max(layout.gutter, layout.x(from));
      pen.fillRect(x0, y - tall, Math.max(0.6, layout.x(to) - x0), tall);
    };
    if (!points.length) return void strip(-Infinity, layout.now, row.before);
    strip(-Infinity, points[0][0], row.before);
    for (let n = 0; n < points.length; n++) strip(points[n][0], points[n + 1]?.[0] ?? layout.now, points[n][1] + row.before);
  }

  /** The waiting messages, next to the track: a box for each, the first in line nearest, and the number of further ones. */
  line(row, top, chosen) {
    const count = row.depthNow;
    if (!count) return;
    const { pen, paint, layout } = this;
    const boxes = Math.min(BOXES, Math.floor((layout.line - 40) / BOX));
    const shown = boxes > 0 ? row.line(boxes) : [];
    const y = top + 6;
    const tall = layout.row - 13;
    shown.forEach((message, n) => {
      const x = layout.end + 5 + n * BOX;
      pen.strokeStyle = message.id === chosen ? paint.ink : paint.wait;
      pen.lineWidth = message.id === chosen ? 2 : 1;
      pen.strokeRect(x + 0.5, y + 0.5, BOX - 3, tall);
    });
    const left = count - shown.length;
    if (left <= 0) return;
    pen.font = `11px ${SANS}`;
    pen.textBaseline = "middle";
    pen.textAlign = "left";
    pen.fillStyle = paint.wait;
    pen.fillText(`${shown.length ? "+" : ""}${left > 9999 ? `${Math.round(left / 1000)}k` : left}`, layout.end + 6 + shown.length * BOX, y + tall / 2 + 1);
  }

  nowLine() {
    const { pen, paint, layout } = this;
    pen.fillStyle = paint.accent;
    pen.fillRect(layout.end, AXIS - 4, 1.5, layout.height);
  }

  /** From the holder of a key to the chosen message, which waits for it. */
  links(rows, links, chosen) {
    const { pen, paint, layout } = this;
    const at = new Map(rows.map((row, n) => [row.name, n]));
    const middle = (n) => layout.y(n) + layout.row / 2 - 2;
    pen.strokeStyle = pen.fillStyle = paint.ink;
    pen.lineWidth = 1.6;
    for (const { message, keys } of links) {
      const stands = keys.map((key) => at.get(key)).filter((n) => n !== undefined);
      if (stands.length < 2) continue;
      const x = message.state === "waiting" ? layout.end + 8 : Math.min(layout.end - 4, Math.max(layout.gutter + 8, layout.x(message.since) + 8));
      pen.setLineDash(message.id === chosen ? [] : [3, 3]);
      pen.beginPath();
      pen.moveTo(x, middle(Math.min(...stands)));
      pen.lineTo(x, middle(Math.max(...stands)));
      pen.stroke();
      for (const n of stands) {
        pen.beginPath();
        pen.arc(x, middle(n), 3, 0, 7);
        pen.fill();
      }
    }
    pen.setLineDash([]);
  }

  names(rows, first, last) {
    const { pen, paint, layout } = this;
    pen.fillStyle = paint.back;
    pen.fillRect(0, 0, layout.gutter, layout.height);
    pen.textBaseline = "middle";
    for (let at = first; at <= last; at++) {
      const row = rows[at];
      const y = layout.y(at) + layout.row / 2;
      const figure = layout.by === "key" ? "" : String(row.open.size || "");
      pen.font = `11px ${SANS}`;
      pen.textAlign = "right";
      pen.fillStyle = paint.soft;
      pen.fillText(figure, layout.gutter - 9, y);
      const taken = figure ? pen.measureText(figure).width + 10 : 0;
      pen.font = `11.5px ${MONO}`;
      pen.textAlign = "left";
      pen.fillStyle = paint.ink;
      pen.fillText(shorten(visible(row.name.replace(/\s+/g, " ")) || "no key", Math.max(3, Math.floor((layout.gutter - taken - 20) / 7))), 10, y);
    }
    pen.fillStyle = paint.line;
    pen.fillRect(layout.gutter - 1, 0, 1, layout.height);
  }

  axis() {
    const { pen, paint, layout } = this;
    pen.fillStyle = paint.back;
    pen.fillRect(0, 0, layout.width, AXIS);
    pen.fillStyle = paint.line;
    pen.fillRect(0, AXIS - 1, layout.width, 1);
    pen.font = `11px ${SANS}`;
    pen.textBaseline = "middle";
    pen.fillStyle = paint.soft;
    pen.textAlign = "center";
    for (const { x, text } of layout.marks()) {
      const half = pen.measureText(text).width / 2;
      if (x - half > layout.gutter && x + half < layout.end) pen.fillText(text, x, AXIS / 2);
    }
    pen.textAlign = "left";
    pen.fillText(layout.by === "key" ? "key" : "worker", 10, AXIS / 2);
    if (layout.line < 30) return;
    pen.fillStyle = paint.wait;
    pen.fillText("waiting", layout.end + 5, AXIS / 2);
  }
}

/** Host and process, without the mark behind them. */
const shortWorker = (name) => name.split("/").slice(0, 2).join("/");
