// The drawing. A wide message becomes a block; narrow ones are gathered into columns one pixel
// wide, whose height is the fraction of that time in which the track was busy. All of it is written
// into one pixel buffer, because a hundred thousand fillRect calls would not keep up with a drag.

const canvas = document.getElementById("tracks");
const overview = document.getElementById("overview");
const pen = canvas.getContext("2d", { alpha: false });
const overviewPen = overview.getContext("2d", { alpha: false });
const blockWidth = 3; // CSS pixels from which a message is drawn by itself
const lit = 10; // colour numbers below are the full colours, from here on the faint ones

const paint = { ink: "", soft: "", back: "", line: "", wait: "", accent: "", fills: [], words: [], letters: [] };
let image = null;
let pixels = null;
let columns = new Float32Array(0);

/** Reads the colours of the theme in force; called again when light turns to dark. */
function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  const mix = (a, b, part) => a.map((v, n) => Math.round(v + (b[n] - v) * part));
  const parse = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const css = (c) => `rgb(${c.join(",")})`;
  const word = (c) => ((255 << 24) | (c[2] << 16) | (c[1] << 8) | c[0]) >>> 0;
  for (const name of ["ink", "soft", "back", "line", "wait", "accent"]) paint[name] = read(`--${name}`);
  const back = parse(paint.back);
  const ramp = colour.by === "blocked" ? "--step-" : "--colour-";
  const full = Array.from({ length: lit }, (_, n) => parse(read(ramp + n) || read("--colour-8")));
  const faint = full.map((c) => mix(c, back, 0.78));
  const all = [...full, ...faint];
  paint.fills = all.map(css);
  paint.words = Uint32Array.from(all, word);
  paint.letters = all.map((c) => readable(c, [parse(paint.back), parse(paint.ink)]).map(css)[0]);
  paint.backWord = word(back);
  paint.lineWord = word(mix(back, parse(paint.line), 0.7));
  paint.bandWord = word(parse(read("--band")));
}

/** The candidates, the one that stands out most against `ground` first (contrast as WCAG has it). */
function readable(ground, candidates) {
  const light = (c) => [0.2126, 0.7152, 0.0722].reduce((sum, weight, n) => {
    const part = c[n] / 255;
    return sum + weight * (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  }, 0.05);
  const contrast = (c) => Math.max(light(c), light(ground)) / Math.min(light(c), light(ground));
  return candidates.sort((a, b) => contrast(b) - contrast(a));
}

/** Adopts the window's size; all drawing is in CSS pixels × `size.ratio`. */
function measure() {
  const box = canvas.parentElement.getBoundingClientRect();
  size.ratio = window.devicePixelRatio || 1;
  size.height = Math.max(120, Math.floor(box.height));
  const count = views[look.view].count;
  const least = look.view === "key" ? 24 : 20;
  size.row = Math.min(110, Math.max(least, Math.floor(plotHeight() / Math.max(1, count))));
  const scrolls = count * size.row > plotHeight();
  size.width = Math.max(200, Math.floor(box.width)) - (scrolls ? 14 : 0);
  size.gutter = Math.round(Math.min(200, Math.max(96, size.width * 0.16)));
  for (const [one, width, height] of [[canvas, size.width, size.height], [overview, size.width, 48]]) {
    one.width = Math.round(width * size.ratio);
    one.height = Math.round(height * size.ratio);
    one.style.width = `${width}px`;
    one.style.height = `${height}px`;
  }
  image = pen.createImageData(canvas.width, canvas.height);
  pixels = new Uint32Array(image.data.buffer);
  columns = new Float32Array(2 * lit * canvas.width);
}

/** Fills a rectangle given in device pixels, cut to the plot. */
function fill(x0, x1, y0, y1, word) {
  const left = Math.max(x0, Math.round(size.gutter * size.ratio));
  const right = Math.min(x1, image.width);
  const bottom = Math.min(y1, image.height);
  for (let y = Math.max(y0, Math.round(size.axis * size.ratio)); y < bottom; y++) {
    if (left < right) pixels.fill(word, y * image.width + left, y * image.width + right);
  }
}

/** One row: the blocks, then the columns of narrow messages; returns the blocks for their labels. */
function drawRow(tracks, row, labels) {
  const { ratio } = size;
  const width = image.width;
  const origin = size.gutter * ratio;
  const scale = (plotWidth() * ratio) / (look.t1 - look.t0);
  const top = Math.round((yOf(row) + 2) * ratio);
  const bottom = Math.round((yOf(row) + size.row - 2) * ratio);
  const tall = bottom - top;
  const least = blockWidth * ratio;
  let low = width;
  let high = -1;
  for (let at = firstAfter(tracks, row, look.t0); at < tracks.from[row + 1]; at++) {
    const i = tracks.item[at];
    if (start[i] > look.t1) break;
    const x0 = origin + (start[i] - look.t0) * scale;
    const x1 = origin + (end[i] - look.t0) * scale;
    if (x1 < origin || x0 >= width) continue;
    const shade = colour.of[i] + (picked.lit && !picked.lit[i] ? lit : 0);
    const places = tracks.places[at];
    if (x1 - x0 >= least) {
      const y0 = bottom - Math.round((tall * (tracks.place[at] + 1)) / places);
      const y1 = bottom - Math.round((tall * tracks.place[at]) / places);
      const gap = x1 - x0 > 6 * ratio ? Math.round(ratio) : 0;
      const left = Math.round(x0);
      const right = Math.max(left + 1, Math.round(x1) - gap);
      fill(left, right, y0, Math.max(y0 + 1, y1 - (places > 1 && y1 - y0 >= 4 ? 1 : 0)), paint.words[shade]);
      if (x1 - x0 > 34 * ratio && y1 - y0 >= 12 * ratio) labels.push({ i, x0, x1, y: (y0 + y1) / 2, shade });
      continue;
    }
    const first = Math.max(0, Math.floor(x0));
    const last = Math.min(width - 1, Math.floor(x1));
    for (let x = first; x <= last; x++) {
      const part = Math.min(x1, x + 1) - Math.max(x0, x);
      columns[x * 2 * lit + shade] += Math.max(part, 0.02) / places;
    }
    if (first < low) low = first;
    if (last > high) high = last;
  }
  for (let x = low; x <= high; x++) drawColumn(x, bottom, tall);
}

/** One column of gathered messages, its colours stacked, the lit ones lowest; leaves it empty. */
function drawColumn(x, bottom, tall) {
  const at = x * 2 * lit;
  let sum = 0;
  for (let shade = 0; shade < 2 * lit; shade++) sum += columns[at + shade];
  if (!sum) return;
  // A lone short message must stay visible, so every column is at least two pixels high.
  const unit = Math.max(tall * Math.min(1, sum), 2 * size.ratio) / sum;
  let reached = 0;
  for (let shade = 0; shade < 2 * lit; shade++) {
    const part = columns[at + shade];
    if (!part) continue;
    columns[at + shade] = 0;
    const y1 = bottom - Math.round(reached * unit);
    reached += part;
    let y0 = bottom - Math.round(reached * unit);
    if (shade < lit && picked.lit) y0 = Math.min(y0, y1 - Math.round(2 * size.ratio));
    fill(x, x + 1, Math.max(y0, bottom - tall), y1, paint.words[shade]);
  }
}

function draw() {
  if (!image) measure();
  const tracks = views[look.view];
  const { ratio } = size;
  pixels.fill(paint.backWord);
  const labels = [];
  const firstRow = Math.max(0, rowAt(size.axis));
  const lastRow = Math.min(tracks.count - 1, rowAt(size.height));
  for (let row = firstRow; row <= lastRow; row++) {
    const y = Math.round(yOf(row) * ratio);
    if (row % 2 === 0) fill(0, image.width, y, y + Math.round(size.row * ratio), paint.bandWord);
  }
  for (const { x } of marks()) {
    const at = Math.round(x * ratio);
    fill(at, at + 1, 0, image.height, paint.lineWord);
  }
  for (let row = firstRow; row <= lastRow; row++) drawRow(tracks, row, labels);
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.putImageData(image, 0, 0);
  drawLabels(labels);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  drawChain();
  drawNames(firstRow, lastRow);
  drawAxis();
  drawOverview();
}

/** On a wide block: by worker its busiest key, by key its id; cut to what fits. */
function drawLabels(labels) {
  const height = Math.round(11 * size.ratio);
  pen.font = `${height}px ${monospace}`;
  pen.textBaseline = "middle";
  pen.textAlign = "left";
  const letter = pen.measureText("0").width;
  for (const { i, x0, x1, y, shade } of labels) {
    const left = Math.max(x0, size.gutter * size.ratio) + 4 * size.ratio;
    const text = look.view === "key" ? run.ids[i] : run.keys[busiestKey(i)] ?? run.ids[i];
    const room = Math.floor((Math.min(x1, image.width) - left - 3 * size.ratio) / letter);
    if (room < 3) continue;
    pen.fillStyle = paint.letters[shade];
    pen.fillText(shorten(text, room), left, y);
  }
}

const monospace = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace";
const sans = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif";

/** Cuts a text in its middle, where paths and ids differ least. */
function shorten(text, room) {
  if (text.length <= room) return text;
  const tail = Math.floor((room - 1) / 2);
  return `${text.slice(0, room - 1 - tail)}…${tail ? text.slice(-tail) : ""}`;
}
