// The drawing: the tracks, and above them the busy workers of the whole run.

import { end, lastEnd, run, start, total } from "./data.js";
import { colour, layout, look, rows, size } from "./tracks.js";
import { drawChain } from "./marks.js";
import { AXIS } from "./timeline/layout.js";
import { COLOURS, Painter, SANS, resize } from "./timeline/painter.js";

export const canvas = document.getElementById("tracks");
export const overview = document.getElementById("overview");
const overviewPen = overview.getContext("2d", { alpha: false });
const overviewHeight = 48;
export const painter = new Painter(canvas);

/** Reads the colours in force; called again when light turns to dark. */
export function readTheme() {
  painter.readTheme([], colour.by === "blocked" ? "step" : "colour");
}

/** Adopts the window's size. */
export function measure() {
  const box = canvas.parentElement.getBoundingClientRect();
  size.height = Math.max(120, Math.floor(box.height));
  const least = look.view === "key" ? 24 : 20;
  const tall = size.height - AXIS;
  size.row = Math.min(110, Math.max(least, Math.floor(tall / Math.max(1, rows.count))));
  const scrolls = rows.count * size.row > tall;
  size.width = Math.max(200, Math.floor(box.width)) - (scrolls ? 12 : 0);
  painter.resize(size.width, size.height);
  resize(overview, size.width, overviewHeight);
}

export function draw() {
  painter.draw(layout(), rows, drawChain);
  drawOverview();
}

const busyParts = { width: 0, of: null };

/** The number of busy workers over the whole run, one value for each pixel. */
function busyOverTime(width) {
  if (busyParts.width === width) return busyParts.of;
  const of = new Float32Array(width);
  for (let i = 0; i < total; i++) {
    const x0 = (start[i] / lastEnd) * width;
    const x1 = (end[i] / lastEnd) * width;
    for (let x = Math.floor(x0); x < Math.min(width, x1); x++) {
      of[x] += Math.min(x1, x + 1) - Math.max(x0, x);
    }
  }
  Object.assign(busyParts, { width, of });
  return of;
}

function drawOverview() {
  const height = overviewHeight;
  const { gutter, plot: width } = layout();
  const { paint, ratio } = painter;
  const pen = overviewPen;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.fillStyle = paint.back;
  pen.fillRect(0, 0, size.width, height);
  pen.textBaseline = "middle";
  pen.font = `11px ${SANS}`;
  pen.fillStyle = paint.soft;
  pen.fillText("busy workers", 12, height / 2);
  const of = busyOverTime(width);
  const bars = (shade) => {
    pen.fillStyle = shade;
    of.forEach((value, x) => {
      const tall = (height - 10) * Math.min(1, value / run.workers);
      pen.fillRect(gutter + x, height - 4 - tall, 1, tall);
    });
  };
  bars(paint.fills[COLOURS + 8]);
  const x0 = gutter + Math.min((look.t0 / lastEnd) * width, width - 3);
  const x1 = Math.max(x0 + 3, gutter + (look.t1 / lastEnd) * width);
  pen.save();
  pen.beginPath();
  pen.rect(x0, 0, x1 - x0, height);
  pen.clip();
  bars(paint.accent);
  pen.restore();
  pen.strokeStyle = paint.ink;
  pen.lineWidth = 1;
  pen.strokeRect(Math.round(x0) + 0.5, 3.5, Math.max(2, Math.round(x1 - x0) - 1), height - 7);
}
