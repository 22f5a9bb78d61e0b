// The geometry of a timeline: time across, tracks down. No drawing here.

/** Pixels of the time axis above the tracks. */
export const AXIS = 26;
/** Pixels from which a message is drawn as a block; narrower ones are gathered. */
export const BLOCK = 3;
/** Pixels within which the pointer finds a message. */
const NEAR = 2;

/** Pixels of the names beside the tracks. */
export const gutterOf = (width) => Math.round(Math.min(200, Math.max(96, width * 0.16)));

export class Layout {
  /**
   * Times `from` and `to` are seconds, sizes are CSS pixels: the whole `width` and `height`, the names' `gutter`, `right`
   * behind the tracks, `row` of one track with an `inset` above and below its blocks, and `top` scrolled out of sight.
   */
  constructor({ width, height, from, to, row, gutter = gutterOf(width), right = 0, inset = [2, 2], top = 0 }) {
    Object.assign(this, { width, height, from, to, row, gutter, inset, top });
    this.plot = Math.max(1, width - gutter - right);
    this.scale = this.plot / (to - from);
  }

  get end() { return this.gutter + this.plot; }
  get tall() { return Math.max(1, this.height - AXIS); }
  x(time) { return this.gutter + (time - this.from) * this.scale; }
  time(x) { return this.from + (x - this.gutter) / this.scale; }
  y(row) { return AXIS + row * this.row - this.top; }
  rowAt(y) { return y < AXIS ? -1 : Math.floor((y - AXIS + this.top) / this.row); }

  /** The first and the last row in sight. */
  inSight(count) {
    return [Math.max(0, Math.floor(this.top / this.row)), Math.min(count - 1, Math.floor((this.top + this.tall) / this.row))];
  }

  /** The largest `top`, at which the last row is at the bottom. */
  lowest(count) { return Math.max(0, count * this.row - this.tall); }

  /** Upper edge and height of a message that is `place` of `places` on its row, the first one lowest. */
  box(row, place, places) {
    const room = (this.row - this.inset[0] - this.inset[1]) / places;
    return { y: this.y(row) + this.row - this.inset[1] - room * (place + 1), tall: room };
  }

  /** The marked times, about `wanted` pixels apart, at multiples of a step of 1, 2 or 5; `text(time, step)` labels them. */
  marks(text, wanted = 100) {
    const rough = wanted / this.scale;
    const ten = 10 ** Math.floor(Math.log10(rough));
    const step = ten * [1, 2, 5, 10].find((times) => times * ten >= rough);
    const found = [];
    for (let n = Math.ceil(this.from / step); n * step <= this.to; n++) found.push({ x: this.x(n * step), text: text(n * step, step) });
    return found;
  }

  /** The row under a point, the message whose block is there, and all messages within two pixels of it. */
  under(rows, x, y) {
    const row = this.rowAt(y);
    const hit = { row, exact: null, found: [] };
    if (x < this.gutter || x > this.end || row < 0 || row >= rows.count) return { ...hit, row: -1 };
    const [time, near] = [this.time(x), NEAR / this.scale];
    rows.spans(row, time - near, time + near, (start, end, shade, place, places, item) => {
      if (start > time + near || end < time - near) return;
      const wide = (end - start) * this.scale >= BLOCK;
      const { y: upper, tall } = this.box(row, place, places);
      if (wide && places > 1 && (y < upper || y > upper + tall)) return;
      hit.found.push(item);
      if (wide && start <= time && time <= end) hit.exact = item;
    });
    return hit;
  }
}

/** Places the box of details at the pointer, inside the drawing. */
export function placeTip(tip, x, y, { width, height }) {
  tip.hidden = false;
  const left = Math.max(4, Math.min(x + 14, width - tip.offsetWidth - 8));
  const below = y + 18 + tip.offsetHeight < height;
  tip.style.transform = `translate(${left}px, ${Math.max(2, below ? y + 18 : y - tip.offsetHeight - 8)}px)`;
}
