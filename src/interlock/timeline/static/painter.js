// The drawing of a timeline. A wide message becomes a block; narrow ones are gathered into columns one pixel wide, whose
// height is the fraction of that time in which the track was busy. All of it is written into one pixel buffer, because a
// hundred thousand fillRect calls would not keep up with a drag.
//
// Interface of the rows that are drawn:
//   count                        how many there are
//   name(row, room), figure(row) the texts in front of a track; `room` is in letters
//   isChosen(row), hover         the row of the chosen key; the row under the pointer, or -1
//   spans(row, from, to, give)   calls give(start, end, shade, place, places, item) for each message between two times in
//                                the order of their starts; -1 as its shade leaves the message to the caller
//   label(item)                  the text on a wide block
//   title, mark(time, step)      the texts of the axis; `beyond`, if any, is above the space behind the tracks
//   isLit                        true if only some messages are shown in full colours: their shades are below COLOURS

import { AXIS, BLOCK } from "./layout.js";
import { fitted } from "./text.js";

/** What the legend says of narrow messages. */
export const NOTE = "narrow messages are gathered: height = how busy";
/** Number of colours; the same ones, faint, follow. */
export const COLOURS = 10;
const SHADES = 2 * COLOURS;
export const MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace";
export const SANS = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif";

export class Painter {
  constructor(canvas) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d", { alpha: false });
    this.readTheme();
  }

  /** Reads the colours in force: `names` and those of the blocks, the variables that begin with `ramp`. */
  readTheme(names = [], ramp = "colour") {
    const blocks = Array.from({ length: COLOURS }, (_, n) => `${ramp}-${n}`);
    const found = readColours(["ink", "soft", "back", "band", "line", "wait", "accent", ...names, ...blocks]);
    const css = (c) => `rgb(${c.join(",")})`;
    const word = (c) => ((255 << 24) | (c[2] << 16) | (c[1] << 8) | c[0]) >>> 0;
    const mix = (a, b, part) => a.map((value, n) => Math.round(value + (b[n] - value) * part));
    const { back, ink } = found;
    const full = blocks.map((name) => found[name]);
    const shades = [...full, ...full.map((c) => mix(c, back, 0.78))];
    this.paint = {
      ...Object.fromEntries(Object.entries(found).map(([name, c]) => [name, css(c)])),
      fills: shades.map(css), words: Uint32Array.from(shades, word), letters: shades.map((c) => css(readable(c, [back, ink]))),
      backWord: word(back), bandWord: word(found.band), lineWord: word(mix(back, found.line, 0.7)),
    };
  }

  /** Sets the size in CSS pixels. */
  resize(width, height) {
    this.ratio = resize(this.canvas, width, height);
    this.image = this.pen.createImageData(this.canvas.width, this.canvas.height);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.columns = new Float32Array(SHADES * this.canvas.width);
    this.used = new Uint32Array(this.canvas.width);
  }

  /** Draws everything; `overlay` adds its own between the blocks and the names, in CSS pixels. */
  draw(layout, rows, overlay) {
    const { pen, paint, ratio } = this;
    this.layout = layout;
    const [first, last] = layout.inSight(rows.count);
    const marks = layout.marks(rows.mark);
    this.pixels.fill(paint.backWord);
    const device = (at) => Math.round(at * ratio);
    for (let row = first; row <= last; row++) {
      if (row % 2 === 0 || row === rows.hover) this.fill(0, this.image.width, device(layout.y(row)), device(layout.y(row + 1)), paint.bandWord);
    }
    for (const { x } of marks) this.fill(device(x), device(x) + 1, 0, this.image.height, paint.lineWord);
    const blocks = [];
    for (let row = first; row <= last; row++) this.track(rows, row, blocks);
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.putImageData(this.image, 0, 0);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.labels(rows, blocks);
    overlay(first, last);
    this.names(rows, first, last);
    this.axis(rows, marks);
  }

  /** Fills a rectangle given in device pixels, below the axis. */
  fill(x0, x1, y0, y1, word) {
    const { width, height } = this.image;
    const right = Math.min(x1, width);
    const bottom = Math.min(y1, height);
    for (let y = Math.max(y0, Math.round(AXIS * this.ratio)); y < bottom; y++) {
      if (x0 < right) this.pixels.fill(word, y * width + x0, y * width + right);
    }
  }

  /** One row: its blocks, then the columns of its narrow messages. Adds the blocks that are wide enough for a label. */
  track(rows, row, blocks) {
    const { layout, ratio, columns, used } = this;
    const origin = layout.gutter * ratio;
    const [least, most] = [Math.round(origin), Math.round(layout.end * ratio)];
    const scale = layout.scale * ratio;
    const bottom = Math.round((layout.y(row) + layout.row - layout.inset[1]) * ratio);
    const tall = bottom - Math.round((layout.y(row) + layout.inset[0]) * ratio);
    let low = most;
    let high = -1;
    rows.spans(row, layout.from, layout.to, (start, end, shade, place, places, item) => {
      const x0 = origin + (start - layout.from) * scale;
      const x1 = origin + (end - layout.from) * scale;
      if (x1 < least || x0 >= most || shade < 0) return;
      if (x1 - x0 >= BLOCK * ratio) {
        const y0 = bottom - Math.round((tall * (place + 1)) / places);
        const y1 = bottom - Math.round((tall * place) / places);
        const gap = x1 - x0 > 6 * ratio ? Math.round(ratio) : 0;
        const left = Math.round(x0);
        const right = Math.min(most, Math.max(left + 1, Math.round(x1) - gap));
        this.fill(Math.max(least, left), right, y0, Math.max(y0 + 1, y1 - (places > 1 && y1 - y0 >= 4 ? 1 : 0)), this.paint.words[shade]);
        if (x1 - x0 > 28 * ratio && y1 - y0 >= 11 * ratio) blocks.push({ item, x0: left / ratio, x1: right / ratio, y: (y0 + y1) / 2 / ratio, shade });
        return;
      }
      const last = Math.min(most - 1, Math.floor(x1));
      for (let x = Math.max(least, Math.floor(x0)); x <= last; x++) {
        const part = Math.min(x1, x + 1) - Math.max(x0, x);
        columns[x * SHADES + shade] += Math.max(part, 0.02) / places;
        used[x] |= 1 << shade;
        if (x < low) low = x;
        if (x > high) high = x;
      }
    });
    for (let x = low; x <= high; x++) if (used[x]) this.column(x, bottom, tall, rows.isLit);
  }

  /** One column of gathered messages, its colours stacked, the lit ones lowest; leaves it empty. */
  column(x, bottom, tall, isLit) {
    const { columns, used, pixels, ratio, image: { width, height }, paint: { words } } = this;
    const at = x * SHADES;
    const shades = used[x];
    let sum = 0;
    for (let shade = 0; shade < SHADES; shade++) if (shades >> shade & 1) sum += columns[at + shade];
    // A lone short message must stay visible, so every column is at least two pixels high.
    const unit = Math.max(tall * Math.min(1, sum), 2 * ratio) / sum;
    const [highest, lowest] = [Math.max(bottom - tall, Math.round(AXIS * ratio)), Math.min(bottom, height)];
    let reached = 0;
    for (let shade = 0; shade < SHADES; shade++) {
      if (!(shades >> shade & 1)) continue;
      const y1 = bottom - Math.round(reached * unit);
      reached += columns[at + shade];
      columns[at + shade] = 0;
      let y0 = bottom - Math.round(reached * unit);
      if (isLit && shade < COLOURS) y0 = Math.min(y0, y1 - Math.round(2 * ratio));
      for (let y = Math.max(y0, highest); y < Math.min(y1, lowest); y++) pixels[y * width + x] = words[shade];
    }
    used[x] = 0;
  }

  labels(rows, blocks) {
    const { pen, paint, layout } = this;
    pen.font = `11px ${MONO}`;
    pen.textBaseline = "middle";
    pen.textAlign = "left";
    const letter = pen.measureText("0").width;
    for (const { item, x0, x1, y, shade } of blocks) {
      if (y < AXIS) continue;
      const text = rows.label(item);
      const left = Math.max(x0, layout.gutter) + 4;
      const room = Math.floor((x1 - left - 3) / letter);
      // A label cut so short is ambiguous, so it is left out.
      if (room < Math.min(9, text.length)) continue;
      pen.fillStyle = paint.letters[shade];
      pen.fillText(fitted(text, room), left, y + 0.5, x1 - left - 2);
    }
  }

  names(rows, first, last) {
    const { pen, paint, layout } = this;
    pen.fillStyle = paint.back;
    pen.fillRect(0, 0, layout.gutter, layout.height);
    pen.textBaseline = "middle";
    for (let row = first; row <= last; row++) {
      const y = layout.y(row) + layout.row / 2;
      const isChosen = rows.isChosen(row);
      if (isChosen) {
        pen.fillStyle = paint.accent;
        pen.fillRect(0, layout.y(row) + 3, 4, layout.row - 6);
      }
      pen.font = `11px ${SANS}`;
      pen.textAlign = "right";
      pen.fillStyle = paint.soft;
      const figure = rows.figure(row);
      pen.fillText(figure, layout.gutter - 10, y);
      const taken = figure ? pen.measureText(figure).width + 10 : 0;
      pen.font = `${isChosen ? "bold " : ""}11.5px ${MONO}`;
      pen.textAlign = "left";
      pen.fillStyle = paint.ink;
      const wide = layout.gutter - taken - 20;
      const room = Math.max(3, Math.floor(wide / pen.measureText("0").width));
      pen.fillText(fitted(rows.name(row, room), room), 12, y, wide);
    }
    pen.fillStyle = paint.line;
    pen.fillRect(layout.gutter - 1, 0, 1, layout.height);
  }

  axis({ title, beyond }, marks) {
    const { pen, paint, layout } = this;
    pen.fillStyle = paint.back;
    pen.fillRect(0, 0, layout.width, AXIS);
    pen.font = `11px ${SANS}`;
    pen.textBaseline = "middle";
    pen.textAlign = "center";
    for (const { x, text } of marks) {
      pen.fillStyle = paint.line;
      pen.fillRect(Math.round(x), AXIS - 5, 1, 5);
      const half = pen.measureText(text).width / 2;
      if (x + half > layout.end) continue;
      pen.fillStyle = paint.soft;
      pen.fillText(text, Math.max(x, layout.gutter + half + 3), AXIS / 2);
    }
    pen.fillStyle = paint.line;
    pen.fillRect(0, AXIS - 1, layout.width, 1);
    pen.fillRect(layout.gutter - 1, 0, 1, AXIS);
    pen.textAlign = "left";
    pen.fillStyle = paint.soft;
    pen.fillText(title, 12, AXIS / 2);
    if (!beyond || layout.width - layout.end < 30) return;
    pen.fillStyle = paint.wait;
    pen.fillText(beyond, layout.end + 5, AXIS / 2);
  }
}

/** Sets a canvas's size in CSS pixels; returns the number of its own pixels in one of them. */
export function resize(canvas, width, height) {
  const ratio = Math.min(3, window.devicePixelRatio || 1);
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  return ratio;
}

/** Colours of the style sheet as red, green and blue, with light or dark decided. */
function readColours(names) {
  const probe = document.createElement("i");
  probe.hidden = true;
  document.body.append(probe);
  const found = {};
  for (const name of names) {
    probe.style.color = `var(--${name})`;
    found[name] = getComputedStyle(probe).color.match(/\d+/g).slice(0, 3).map(Number);
  }
  probe.remove();
  return found;
}

/** The colour with the most contrast against `ground`, as WCAG computes it. */
function readable(ground, candidates) {
  const light = (c) => [0.2126, 0.7152, 0.0722].reduce((sum, weight, n) => {
    const part = c[n] / 255;
    return sum + weight * (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  }, 0.05);
  const contrast = (c) => Math.max(light(c), light(ground)) / Math.min(light(c), light(ground));
  return candidates.reduce((best, one) => (contrast(one) > contrast(best) ? one : best));
}
