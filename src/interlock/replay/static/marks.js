// The overlay of the tracks: the chain of the chosen message, names, the axis, the overview.

/** Number of visible links of a chain from which they are drawn as hairlines without heads. */
const manyLinks = 160;

/** The chosen message, its waits and their causes, back to the root. */
function drawChain() {
  if (picked.message < 0) return;
  pen.save();
  pen.beginPath();
  pen.rect(size.gutter, size.axis, plotWidth(), plotHeight());
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
  drawWait(picked.message, yOf(rowOf(picked.message, picked.links[0] ?? picked.at)) + size.row - 3);
  pen.restore();
}

/**
 * The lines of the chain that touch the drawing, from the end of one message to the start of the
 * next. By key a message that links two keys stands on both rows: `turn` is the row of the other.
 */
function linksInSight() {
  const middle = (row) => yOf(row) + size.row / 2;
  const links = [];
  picked.links.forEach((key, n) => {
    const [i, before] = [picked.chain[n], picked.chain[n + 1]];
    if (end[before] > look.t1 || start[i] < look.t0) return;
    const further = picked.links[n + 1];
    const turns = look.view === "key" && further !== undefined && further !== key;
    const link = {
      x0: xOf(end[before]), y0: middle(rowOf(before, key)), x1: xOf(start[i]), y1: middle(rowOf(i, key)),
      turn: turns ? middle(rowOf(before, further)) : null,
    };
    if (Math.abs(link.x1 - link.x0) + Math.abs(link.y1 - link.y0) >= 2 || turns) links.push(link);
  });
  return links;
}

/** A frame around a message on each of its rows in sight, never narrower than four pixels. */
function outline(i, width) {
  const x0 = xOf(start[i]);
  const wide = Math.max(4, xOf(end[i]) - x0);
  if (x0 + wide < size.gutter || x0 > size.width) return;
  const rows = look.view === "worker" || held[i] === held[i + 1] ? [rowOf(i)]
    : Array.from(holds.subarray(held[i], held[i + 1]), (hold) => keyRank[hold >> 1]);
  pen.strokeStyle = paint.ink;
  pen.lineWidth = width;
  for (const row of rows) {
    if (yOf(row) > size.height || yOf(row) + size.row < size.axis) continue;
    const { y, tall } = boxOn(row, i);
    pen.strokeRect(x0 - width / 2, y - width / 2, wide + width, tall + width);
  }
}

/** A message's position on its row: the whole height, or its place among those it overlaps. */
function boxOn(row, i) {
  const tracks = views[look.view];
  let at = firstAfter(tracks, row, start[i]);
  while (tracks.item[at] !== i) at++;
  const tall = (size.row - 4) / tracks.places[at];
  return { y: yOf(row) + size.row - 2 - tall * (tracks.place[at] + 1), tall };
}

/** From its put: solid while its keys held it up, dotted while it waited for a worker. */
function drawWait(i, y) {
  if (!waited(i)) return;
  const from = Math.max(xOf(put[i]), size.gutter);
  pen.strokeStyle = paint.wait;
  pen.lineWidth = 3;
  pen.beginPath();
  pen.moveTo(from, y);
  pen.lineTo(Math.max(from, xOf(freeAt(i))), y);
  pen.stroke();
  pen.setLineDash([2, 3]);
  pen.beginPath();
  pen.moveTo(Math.max(from, xOf(freeAt(i))), y);
  pen.lineTo(Math.max(from, xOf(start[i])), y);
  pen.stroke();
  pen.setLineDash([]);
  if (xOf(put[i]) >= size.gutter) {
    pen.fillStyle = paint.wait;
    pen.fillRect(from - 1, y - 8, 2.5, 9.5);
  }
}

function drawNames(firstRow, lastRow) {
  pen.fillStyle = paint.back;
  pen.fillRect(0, 0, size.gutter, size.height);
  pen.textBaseline = "middle";
  const busy = look.view === "worker"
    ? (row) => percent(workerBusy[row] / lastEnd)
    : (row) => number.format(row < keyTotal ? keyCount[keyOrder[row]] : unkeyed);
  for (let row = firstRow; row <= lastRow; row++) {
    const y = yOf(row) + size.row / 2;
    const chosen = look.view === "key" && row < keyTotal && keyOrder[row] === picked.key;
    if (chosen) {
      pen.fillStyle = paint.accent;
      pen.fillRect(0, yOf(row) + 3, 4, size.row - 6);
    }
    pen.font = `11px ${sans}`;
    pen.textAlign = "right";
    pen.fillStyle = paint.soft;
    pen.fillText(busy(row), size.gutter - 10, y);
    const taken = pen.measureText(busy(row)).width + 26;
    pen.font = look.view === "worker" ? `12px ${sans}` : `${chosen ? "bold " : ""}11px ${monospace}`;
    pen.textAlign = "left";
    pen.fillStyle = paint.ink;
    const room = Math.floor((size.gutter - taken - 12) / pen.measureText("0").width);
    const name = look.view === "worker" && room < 9 ? String(row) : rowName(row).replace(/\s+/g, " ");
    pen.fillText(shorten(name, Math.max(3, room)), 12, y);
  }
}

/** Steps of 1, 2 or 5 that leave about `wanted` pixels between the marks. */
function step(span, width, wanted) {
  const rough = (span * wanted) / width;
  const ten = 10 ** Math.floor(Math.log10(rough));
  return ten * [1, 2, 5, 10].find((times) => times * ten >= rough);
}

/** The marked times on the axis, with their positions. */
function marks() {
  const every = step(look.t1 - look.t0, plotWidth(), 110);
  const [scale, unit] = look.t1 >= 1 ? [1, "s"] : look.t1 >= 1e-3 ? [1e3, "ms"] : [1e6, "µs"];
  const digits = Math.max(0, -Math.floor(Math.log10(every * scale) + 1e-9));
  const found = [];
  for (let n = Math.ceil(look.t0 / every); n * every <= look.t1; n++) {
    found.push({ x: xOf(n * every), text: `${(n * every * scale).toFixed(digits)} ${unit}` });
  }
  return found;
}

function drawAxis() {
  pen.fillStyle = paint.back;
  pen.fillRect(0, 0, size.width, size.axis);
  pen.font = `11px ${sans}`;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  for (const { x, text } of marks()) {
    pen.fillStyle = paint.line;
    pen.fillRect(Math.round(x), size.axis - 5, 1, 5);
    const half = pen.measureText(text).width / 2;
    if (x + half > size.width) continue;
    pen.fillStyle = paint.soft;
    pen.fillText(text, Math.max(x, size.gutter + half + 3), size.axis / 2);
  }
  pen.fillStyle = paint.line;
  pen.fillRect(0, size.axis - 1, size.width, 1);
  pen.fillRect(size.gutter - 1, 0, 1, size.height);
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
  const height = 48;
  const width = plotWidth();
  const p = overviewPen;
  p.setTransform(size.ratio, 0, 0, size.ratio, 0, 0);
  p.fillStyle = paint.back;
  p.fillRect(0, 0, size.width, height);
  p.textBaseline = "middle";
  p.font = `11px ${sans}`;
  p.fillStyle = paint.soft;
  p.fillText("busy workers", 12, height / 2);
  const of = busyOverTime(width);
  p.fillStyle = paint.fills[lit + 8];
  of.forEach((value, x) => {
    const tall = (height - 10) * Math.min(1, value / run.workers);
    p.fillRect(size.gutter + x, height - 4 - tall, 1, tall);
  });
  const x0 = size.gutter + Math.min((look.t0 / lastEnd) * width, width - 3);
  const x1 = Math.max(x0 + 3, size.gutter + (look.t1 / lastEnd) * width);
  p.save();
  p.beginPath();
  p.rect(x0, 0, x1 - x0, height);
  p.clip();
  p.fillStyle = paint.accent;
  of.forEach((value, x) => {
    const tall = (height - 10) * Math.min(1, value / run.workers);
    p.fillRect(size.gutter + x, height - 4 - tall, 1, tall);
  });
  p.restore();
  p.strokeStyle = paint.ink;
  p.lineWidth = 1;
  p.strokeRect(Math.round(x0) + 0.5, 3.5, Math.max(2, Math.round(x1 - x0) - 1), height - 7);
}
