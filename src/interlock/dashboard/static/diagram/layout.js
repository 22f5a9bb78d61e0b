// The layout: time across, tracks down, and the item under a point. No drawing here.

/** Pixels of the parts of the drawing. */
export const AXIS = 24;
export const ROW = 24;
export const TALL_ROW = 46;
/** Maximum boxes of waiting messages next to a track, and the pixels of each. */
export const BOXES = 8;
export const BOX = 9;

export class Layout {
  constructor({ width, height, by, seconds, now, top = 0 }) {
    this.width = width;
    this.height = height;
    this.by = by;
    this.seconds = seconds;
    this.now = now;
    this.top = top;
    this.row = by === "key" ? ROW : TALL_ROW;
    this.gutter = Math.round(Math.min(190, Math.max(84, width * 0.16)));
    this.line = by === "key" ? Math.min(120, Math.max(44, Math.round(width * 0.1))) : 12;
    this.plot = Math.max(40, width - this.gutter - this.line);
  }

  get end() { return this.gutter + this.plot; }
  x(time) { return this.end - (this.now - time) * (this.plot / this.seconds); }
  time(x) { return this.now - (this.end - x) * (this.seconds / this.plot); }
  y(row) { return AXIS + row * this.row - this.top; }
  rowAt(y) { return y < AXIS ? -1 : Math.floor((y - AXIS + this.top) / this.row); }

  /** The first and the last row in sight. */
  inSight(count) {
    const first = Math.max(0, Math.floor(this.top / this.row));
    return [first, Math.min(count - 1, Math.floor((this.top + this.height - AXIS) / this.row))];
  }

  /** The largest `top`, at which the last row is at the bottom. */
  lowest(count) { return Math.max(0, count * this.row - (this.height - AXIS)); }

  /** The marked times, at steps of 1, 2 or 5, with their labels: seconds before now. */
  marks() {
    const rough = (this.seconds * 90) / this.plot;
    const ten = 10 ** Math.floor(Math.log10(rough));
    const every = ten * [1, 2, 5, 10].find((times) => times * ten >= rough);
    const found = [];
    // At whole times, so that the marks move with the drawing.
    for (let n = Math.ceil((this.now - this.seconds) / every); n * every <= this.now; n++) {
      found.push({ x: this.x(n * every), text: clock(n * every, every) });
    }
    return found;
  }

  /** The index of the first span that ends behind the left edge. */
  firstSeen(spans) {
    const from = this.now - this.seconds;
    let low = 0;
    let high = spans.length;
    // Ends are nearly in order; long items are found by searching a little further back.
    while (low < high) {
      const middle = (low + high) >> 1;
      if (spans[middle].end < from) low = middle + 1;
      else high = middle;
    }
    return Math.max(0, low - 64);
  }
}

/** 22:58:01 or, for finer steps, 58:01.5; in UTC like all times here. */
export function clock(seconds, every) {
  const text = new Date(Math.round(seconds * 1000)).toISOString();
  if (every >= 1) return text.slice(11, 19);
  return text.slice(14, every >= 0.1 ? 21 : 22);
}

/** Tracks in the order in which they are shown; `by` is busy, waiting or name. */
export function ordered(rows, by, from, now) {
  const score = { name: () => 0, waiting: (row) => row.depthNow, busy: (row) => held(row, from, now) + row.depthNow / 1000 }[by];
  const valued = rows.map((row) => [score(row), row]);
  valued.sort(([a, one], [b, other]) => b - a || (one.name < other.name ? -1 : 1));
  return valued.map(([, row]) => row);
}

/** Seconds for which a track was held between two times, those of each lane added. */
export function held(row, from, now) {
  let sum = 0;
  for (const span of row.spans) sum += Math.max(0, Math.min(span.end, now) - Math.max(span.start, from));
  return sum;
}
