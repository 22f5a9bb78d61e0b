// The live diagram's rows for the timeline's painter, and its marks over them: keys held without a worker, failed
// attempts, the number of waiting messages, and the messages that block the chosen one.

import { AXIS } from "../timeline/layout.js";
import { Painter, SANS } from "../timeline/painter.js";
import { BOX, BOXES, clock, firstSeen } from "./layout.js";

/** Outcomes of a lease that are marked. */
const FAILURES = new Set(["failed", "dead", "lost", "held"]);

/** The rows of the diagram, as the painter takes them; items are spans. */
class LiveRows {
  mark = clock;
  isLit = false;

  constructor(rows, by, now, hover) {
    Object.assign(this, { rows, by, now, hover, title: by, beyond: by === "key" ? "waiting" : "", count: rows.length });
  }

  name(at) { return this.rows[at].name || "no key"; }
  figure(at) { return this.by === "key" ? "" : String(this.rows[at].open.size || ""); }
  isChosen() { return false; }
  label(span) { return this.by === "key" ? shortWorker(span.worker) || span.id : span.keys[0] ?? span.shared[0] ?? span.id; }

  spans(at, from, to, give) {
    const { spans, lanes, wide } = this.rows[at];
    const begin = firstSeen(spans, from);
    for (let n = 0; n < spans.length; n++) {
      const span = spans[n];
      if (span.start > to) break;
      if (n < begin ? span.end !== Infinity : span.end < from) continue;
      give(span.start, Math.min(span.end, this.now), span.kind === "leased" ? span.colour : -1, lanes[n], wide, span);
    }
  }
}

export class LivePainter {
  constructor(canvas) {
    this.painter = new Painter(canvas);
    this.readTheme();
  }

  readTheme() {
    this.painter.readTheme(["held", "backing_off", "bad"]);
    const { paint } = this.painter;
    this.hatches = { held: this.hatch(paint.held), backing_off: this.hatch(paint.backing_off) };
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
    return this.painter.pen.createPattern(tile, "repeat");
  }

  resize(width, height) { this.painter.resize(width, height); }

  get ratio() { return this.painter.ratio; }

  /** Draws rows with a layout; `chosen` is the id of a message, `links` the messages that block it, `hover` a row's number. */
  draw(layout, rows, { by, chosen = null, links = [], hover = -1 }) {
    const live = this.rows = new LiveRows(rows, by, layout.to, hover);
    this.layout = layout;
    this.painter.draw(layout, live, (first, last) => {
      for (let at = first; at <= last; at++) this.track(live, at, chosen);
      this.nowLine();
      if (chosen) this.links(rows, links, chosen);
    });
  }

  track(live, at, chosen) {
    const { layout, painter: { pen } } = this;
    const row = live.rows[at];
    const top = layout.y(at);
    pen.save();
    pen.beginPath();
    pen.rect(layout.gutter, Math.max(AXIS, top), layout.plot, layout.row);
    pen.clip();
    if (live.by === "key") this.depth(row, top);
    let marked = -1;
    live.spans(at, layout.from, layout.to, (start, end, shade, lane, wide, span) => {
      const failed = FAILURES.has(span.outcome) && shade >= 0;
      if (shade >= 0 && !failed && span.id !== chosen) return;
      const [x0, x1] = [Math.max(layout.gutter - 2, layout.x(start)), layout.x(end)];
      const { y, tall } = layout.box(at, lane, wide);
      if (shade < 0) this.hatched(span.kind, x0, y, Math.max(1.2, x1 - x0 - (x1 - x0 > 4 ? 1 : 0)), tall);
      // Thousands of failures on one pixel are one mark.
      if (failed && Math.round(x1) !== marked) {
        marked = Math.round(x1);
        pen.fillStyle = this.painter.paint.bad;
        pen.fillRect(Math.max(x0, x1 - 3), y - 2, 2, tall + 4);
      }
      if (span.id === chosen) this.outline(x0 - 1, y - 1, Math.max(4, x1 - x0 + 2), tall + 2);
    });
    pen.restore();
    if (live.by === "key") this.line(row, top, chosen);
  }

  hatched(kind, x, y, wide, tall) {
    const { pen, paint } = this.painter;
    pen.fillStyle = this.hatches[kind];
    pen.fillRect(x, y, wide, tall);
    pen.strokeStyle = paint[kind];
    pen.lineWidth = 1;
    if (wide > 3) pen.strokeRect(x + 0.5, y + 0.5, wide - 1, tall - 1);
  }

  outline(x, y, wide, tall) {
    const { pen, paint } = this.painter;
    pen.strokeStyle = paint.ink;
    pen.lineWidth = 2;
    pen.strokeRect(x, y, wide, tall);
  }

  /** The number that waited, as a strip at the foot of a track: thicker for more, in steps of ten. */
  depth(row, top) {
    const { layout, painter: { pen, paint } } = this;
    const y = top + layout.row - 2;
    const points = row.depth;
    pen.fillStyle = paint.wait;
    const strip = (from, to, count) => {
      if (count <= 0) return;
      const tall = Math.min(4, 1 + Math.log10(count));
      const x0 = Math.max(layout.gutter, layout.x(from));
      pen.fillRect(x0, y - tall, Math.max(0.6, layout.x(to) - x0), tall);
    };
    if (!points.length) return void strip(-Infinity, layout.to, row.before);
    strip(-Infinity, points[0][0], row.before);
    for (let n = 0; n < points.length; n++) strip(points[n][0], points[n + 1]?.[0] ?? layout.to, points[n][1] + row.before);
  }

  /** The waiting messages, next to the track: a box for each, the first in line nearest, and the number of further ones. */
  line(row, top, chosen) {
    const count = row.depthNow;
    if (!count) return;
    const { layout, painter: { pen, paint } } = this;
    const boxes = Math.min(BOXES, Math.floor((layout.width - layout.end - 40) / BOX));
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
    const { layout, painter: { pen, paint } } = this;
    pen.fillStyle = paint.accent;
    pen.fillRect(layout.end, AXIS - 4, 1.5, layout.height);
  }

  /** From the holder of a key to the chosen message, which waits for it. */
  links(rows, links, chosen) {
    const { layout, painter: { pen, paint } } = this;
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
}

/** Host and process, without the mark behind them. */
const shortWorker = (name) => name.split("/").slice(0, 2).join("/");
