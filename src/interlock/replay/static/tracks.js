// The track of each message, its colour, and what is chosen: the rows of the timeline.

import {
  blocked, busiestKey, byStart, chainOf, end, held, holds, holdsKey, keyCount, keyOrder, keyRank, keyTotal, lastEnd,
  linkKey, run, start, total, unkeyed, waited, workerBusy, workerOf,
} from "./data.js";
import { Layout } from "./timeline/layout.js";
import { COLOURS } from "./timeline/painter.js";
import { count, percent } from "./timeline/text.js";

/**
 * Tracks for one view. `item[from[row]..from[row + 1]]` are a row's messages by their start.
 * Messages that overlap on a row (readers of a shared key) stand one above the other: each is
 * `place` of `places`.
 */
function makeTracks(count, rowsOf) {
  const from = new Uint32Array(count + 1);
  for (let i = 0; i < total; i++) rowsOf(i, (row) => { from[row + 1]++; });
  for (let row = 0; row < count; row++) from[row + 1] += from[row];
  const item = new Uint32Array(from[count]);
  const next = from.slice(0, count);
  for (const i of byStart) rowsOf(i, (row) => { item[next[row]++] = i; });
  const place = new Uint8Array(item.length);
  const places = new Uint8Array(item.length).fill(1);
  const longest = new Float64Array(count);
  for (let row = 0; row < count; row++) {
    for (let at = from[row]; at < from[row + 1];) at = standApart(item, place, places, at, from[row + 1]);
    for (let at = from[row]; at < from[row + 1]; at++) {
      longest[row] = Math.max(longest[row], end[item[at]] - start[item[at]]);
    }
  }
  return { count, from, item, place, places, longest };
}

/** Gives the overlapping messages that begin at `at` a place each; returns where the next group begins. */
function standApart(item, place, places, at, stop) {
  const begin = at;
  const ends = [end[item[at]]];
  let last = ends[0];
  for (at++; at < stop && start[item[at]] < last; at++) {
    let free = ends.findIndex((when) => when <= start[item[at]]);
    if (free < 0) free = ends.length < 255 ? ends.push(0) - 1 : 254;
    ends[free] = end[item[at]];
    place[at] = free;
    last = Math.max(last, ends[free]);
  }
  places.fill(ends.length, begin, at);
  return at;
}

let byKey = null;

export const views = {
  worker: makeTracks(run.workers, (i, give) => give(workerOf[i])),
  // Made when it is first needed: the page opens sooner without it.
  get key() {
    return (byKey ??= makeTracks(keyTotal + (unkeyed ? 1 : 0), (i, give) => {
      for (let h = held[i]; h < held[i + 1]; h++) give(keyRank[holds[h] >> 1]);
      if (held[i] === held[i + 1]) give(keyTotal);
    }));
  },
};

/** The visible part: a view, a time range in seconds, and for each view the scroll position. */
export const look = { view: "worker", t0: 0, t1: lastEnd, top: { worker: 0, key: 0 } };

/** Sizes in CSS pixels; `measure` in draw.js sets them. */
export const size = { width: 0, height: 0, row: 24 };

/** The geometry of the visible part. */
export const layout = () => new Layout({ ...size, from: look.t0, to: look.t1, top: look.top[look.view] });

export const colours = 8;
export const otherColour = 8; // a key that is not among the busiest
export const noColour = 9; // no key at all
export const blockedSteps = [0, 1e-3, 1e-2, 1e-1, 1, Infinity]; // upper bounds, in seconds

/** The colour number of every message under one way of colouring. */
const colourings = {
  key(i) {
    const key = busiestKey(i);
    return key < 0 ? noColour : Math.min(keyRank[key], otherColour);
  },
  worker: (i) => workerOf[i] % colours,
  blocked(i) {
    const time = blocked(i);
    return blockedSteps.findIndex((bound) => time <= bound);
  },
};

export const colour = { by: "key", of: new Uint8Array(total), chosen: false };

export function colourBy(by) {
  colour.by = by;
  for (let i = 0; i < total; i++) colour.of[i] = colourings[by](i);
}

/**
 * What is singled out: one message and its chain, or one key; everything else is drawn faintly.
 * `at` is the key on whose track the message was chosen, -1 for its busiest.
 */
export const picked = { message: -1, at: -1, key: -1, chain: [], links: [], lit: null };

export function pickNothing() {
  Object.assign(picked, { message: -1, at: -1, key: -1, chain: [], links: [], lit: null });
}

export function pickMessage(message, at = -1) {
  const chain = chainOf(message);
  const links = chain.slice(1).map((before, n) => linkKey(chain[n], before));
  const lit = new Uint8Array(total);
  for (const i of chain) lit[i] = 1;
  Object.assign(picked, { message, at, key: -1, chain, links, lit });
}

export function pickKey(key) {
  const lit = new Uint8Array(total);
  for (let i = 0; i < total; i++) if (holdsKey(i, key)) lit[i] = 1;
  Object.assign(picked, { message: -1, at: -1, key, chain: [], links: [], lit });
}

/** The row on which a message is drawn; by key, the row of `key` or else of its busiest key. */
export function rowOf(i, key = -1) {
  if (look.view === "worker") return workerOf[i];
  const on = key >= 0 ? key : busiestKey(i);
  return on < 0 ? keyTotal : keyRank[on];
}

/** The rows of the view, as the painter takes them; items are messages. */
export const rows = {
  title: "",
  hover: -1,
  get count() { return views[look.view].count; },
  get isLit() { return Boolean(picked.lit); },
  name(row, room = Infinity) {
    if (look.view === "key") return row < keyTotal ? run.keys[keyOrder[row]] : "no key";
    return room < 9 ? String(row) : `worker ${row}`;
  },
  figure(row) {
    if (look.view === "worker") return percent(workerBusy[row] / lastEnd);
    return count(row < keyTotal ? keyCount[keyOrder[row]] : unkeyed);
  },
  isChosen: (row) => look.view === "key" && row < keyTotal && keyOrder[row] === picked.key,
  label: (i) => (look.view === "key" ? run.ids[i] : run.keys[busiestKey(i)] ?? run.ids[i]),
  mark: (time, step) => tick(time, step, look.t1),
  spans(row, from, to, give) {
    const { item, place, places, from: begin } = views[look.view];
    for (let at = firstAfter(views[look.view], row, from); at < begin[row + 1]; at++) {
      const i = item[at];
      if (start[i] > to) break;
      const faint = picked.lit && !picked.lit[i] ? COLOURS : 0;
      give(start[i], end[i], colour.of[i] + faint, place[at], places[at], i);
    }
  },
};

/** A time on the axis, in the unit that suits the latest one, with as many digits as the step needs. */
function tick(time, step, latest) {
  const [scale, unit] = latest >= 1 ? [1, "s"] : latest >= 1e-3 ? [1e3, "ms"] : [1e6, "µs"];
  const digits = Math.max(0, -Math.floor(Math.log10(step * scale) + 1e-9));
  return `${(time * scale).toFixed(digits)} ${unit}`;
}

/** First place on a row whose message could still reach past `time`. */
function firstAfter(tracks, row, time) {
  let low = tracks.from[row];
  let high = tracks.from[row + 1];
  const earliest = time - tracks.longest[row];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (start[tracks.item[middle]] < earliest) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The place of message `i` among those of its row. */
export function placeOf(tracks, row, i) {
  let at = firstAfter(tracks, row, start[i]);
  while (at < tracks.from[row + 1] && tracks.item[at] !== i) at++;
  return at;
}

/** The messages at a point, the one that waited longest behind its keys first. */
export function under(x, y) {
  const { row, exact, found } = layout().under(rows, x, y);
  if (exact !== null) return { row, found: [exact] };
  return { row, found: found.sort((a, b) => blocked(b) - blocked(a) || waited(b) - waited(a)) };
}

/** The message `step` places further on the chosen message's row. */
export function neighbour(step) {
  const tracks = views[look.view];
  const row = picked.message < 0 ? layout().inSight(tracks.count)[0] : rowOf(picked.message, picked.at);
  const from = tracks.from[row];
  const stop = tracks.from[row + 1];
  if (picked.message < 0) {
    for (let at = firstAfter(tracks, row, look.t0); at < stop; at++) {
      if (start[tracks.item[at]] >= look.t0) return tracks.item[at];
    }
    return from < stop ? tracks.item[from] : -1;
  }
  const at = placeOf(tracks, row, picked.message) + step;
  return at >= from && at < stop ? tracks.item[at] : -1;
}
