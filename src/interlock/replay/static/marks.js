// Over the tracks: the chosen message, its waits and their causes.

import { end, freeAt, held, holds, keyRank, put, start, waited } from "./data.js";
import { look, picked, placeOf, rowOf, rows, size, views } from "./tracks.js";
import { painter } from "./draw.js";
import { AXIS } from "./timeline/layout.js";

/** Number of visible links of a chain from which they are drawn as hairlines without heads. */
const manyLinks = 160;

/** The chosen message, its waits and their causes, back to the root. */
export function drawChain() {
  if (picked.message < 0) return;
  const { pen, paint, layout: at } = painter;
  pen.save();
  pen.beginPath();
  pen.rect(at.gutter, AXIS, at.plot, at.tall);
  pen.clip();
  const links = linksInSight();
  const many = links.length > manyLinks;
  const line = new Path2D();
  const heads = new Path2D();
  for (const { x0, y0, x1, y1, turn } of links) {
    line.moveTo(x0, y0);
    const bend = Math.min(60, Math.abs(x1 - x0) / 2);
    line.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
    if (turn !== null) {
      line.moveTo(x0, turn);
      line.lineTo(x0, y0);
    }
    const way = Math.abs(x1 - x0) > 8 || y0 === y1 ? 0 : Math.sign(y1 - y0);
    heads.moveTo(x1 - (way ? 3.5 : 5.5), y1 - (way ? 6 * way : 3.5));
    heads.lineTo(x1, y1);
    heads.lineTo(x1 + (way ? 3.5 : -5.5), y1 + (way ? -6 * way : 3.5));
    heads.closePath();
  }
  if (!many) {
    pen.strokeStyle = paint.back;
    pen.lineWidth = 4;
    pen.stroke(line);
  }
  pen.strokeStyle = pen.fillStyle = paint.ink;
  pen.lineWidth = many ? 0.7 : 1.6;
  pen.globalAlpha = many ? 0.45 : 1;
  pen.stroke(line);
  pen.globalAlpha = 1;
  if (!many) pen.fill(heads);
  if (!many) for (const i of picked.chain) outline(i, 1);
  outline(picked.message, 2);
  drawWait(picked.message, at.y(rowOf(picked.message, picked.links[0] ?? picked.at)) + size.row - 3);
  pen.restore();
}

/**
 * The lines of the chain that touch the drawing, from the end of one message to the start of the
 * next. By key a message that links two keys stands on both rows: `turn` is the row of the other.
 */
function linksInSight() {
  const at = painter.layout;
  const middle = (row) => at.y(row) + size.row / 2;
  const links = [];
  picked.links.forEach((key, n) => {
    const [i, before] = [picked.chain[n], picked.chain[n + 1]];
    if (end[before] > look.t1 || start[i] < look.t0) return;
    const further = picked.links[n + 1];
    const turns = look.view === "key" && further !== undefined && further !== key;
    const link = {
      x0: at.x(end[before]), y0: middle(rowOf(before, key)), x1: at.x(start[i]), y1: middle(rowOf(i, key)),
      turn: turns ? middle(rowOf(before, further)) : null,
    };
    if (Math.abs(link.x1 - link.x0) + Math.abs(link.y1 - link.y0) >= 2 || turns) links.push(link);
  });
  return links;
}

/** A frame around a message on each of its rows in sight, never narrower than four pixels. */
function outline(i, width) {
  const { pen, paint, layout: at } = painter;
  const x0 = at.x(start[i]);
  const wide = Math.max(4, at.x(end[i]) - x0);
  if (x0 + wide < at.gutter || x0 > size.width) return;
  const on = look.view === "worker" || held[i] === held[i + 1] ? [rowOf(i)]
    : Array.from(holds.subarray(held[i], held[i + 1]), (hold) => keyRank[hold >> 1]);
  const [first, last] = at.inSight(rows.count);
  pen.strokeStyle = paint.ink;
  pen.lineWidth = width;
  for (const row of on) {
    if (row < first || row > last) continue;
    const tracks = views[look.view];
    const place = placeOf(tracks, row, i);
    const { y, tall } = at.box(row, tracks.place[place], tracks.places[place]);
    pen.strokeRect(x0 - width / 2, y - width / 2, wide + width, tall + width);
  }
}

/** From its put: solid while its keys held it up, dotted while it waited for a worker. */
function drawWait(i, y) {
  if (!waited(i)) return;
  const { pen, paint, layout: at } = painter;
  const from = Math.max(at.x(put[i]), at.gutter);
  pen.strokeStyle = paint.wait;
  pen.lineWidth = 3;
  pen.beginPath();
  pen.moveTo(from, y);
  pen.lineTo(Math.max(from, at.x(freeAt(i))), y);
  pen.stroke();
  pen.setLineDash([2, 3]);
  pen.beginPath();
  pen.moveTo(Math.max(from, at.x(freeAt(i))), y);
  pen.lineTo(Math.max(from, at.x(start[i])), y);
  pen.stroke();
  pen.setLineDash([]);
  if (at.x(put[i]) >= at.gutter) {
    pen.fillStyle = paint.wait;
    pen.fillRect(from - 1, y - 8, 2.5, 9.5);
  }
}
