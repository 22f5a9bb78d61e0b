// The track of each message, the width of a second, and the item under the pointer.

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

const views = {
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
const look = { view: "worker", t0: 0, t1: lastEnd, top: { worker: 0, key: 0 } };

/** Sizes in CSS pixels; `measure` in draw.js fills in those that follow from the window. */
const size = { width: 0, height: 0, gutter: 0, axis: 26, row: 24, ratio: 1 };

const colours = 8;
const otherColour = 8; // a key that is not among the busiest
const noColour = 9; // no key at all
const blockedSteps = [0, 1e-3, 1e-2, 1e-1, 1, Infinity]; // upper bounds, in seconds

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

const colour = { by: "key", of: new Uint8Array(total), chosen: false };

function colourBy(by) {
  colour.by = by;
  for (let i = 0; i < total; i++) colour.of[i] = colourings[by](i);
}

/**
 * What is singled out: one message and its chain, or one key; everything else is drawn faintly.
 * `at` is the key on whose track the message was chosen, -1 for its busiest.
 */
const picked = { message: -1, at: -1, key: -1, chain: [], links: [], lit: null };

function pickNothing() {
  Object.assign(picked, { message: -1, at: -1, key: -1, chain: [], links: [], lit: null });
}

function pickMessage(message, at = -1) {
  const chain = chainOf(message);
  const links = chain.slice(1).map((before, n) => linkKey(chain[n], before));
  const lit = new Uint8Array(total);
  for (const i of chain) lit[i] = 1;
  Object.assign(picked, { message, at, key: -1, chain, links, lit });
}

function pickKey(key) {
  const lit = new Uint8Array(total);
  for (let i = 0; i < total; i++) if (holdsKey(i, key)) lit[i] = 1;
  Object.assign(picked, { message: -1, at: -1, key, chain: [], links: [], lit });
}

const plotWidth = () => Math.max(1, size.width - size.gutter);
const plotHeight = () => Math.max(1, size.height - size.axis);
const timeAt = (x) => look.t0 + ((x - size.gutter) / plotWidth()) * (look.t1 - look.t0);
const xOf = (time) => size.gutter + ((time - look.t0) / (look.t1 - look.t0)) * plotWidth();
const rowAt = (y) => Math.floor((y - size.axis + look.top[look.view]) / size.row);
const yOf = (row) => size.axis + row * size.row - look.top[look.view];

/** The row on which a message is drawn; by key, the row of `key` or else of its busiest key. */
function rowOf(i, key = -1) {
  if (look.view === "worker") return workerOf[i];
  const on = key >= 0 ? key : busiestKey(i);
  return on < 0 ? keyTotal : keyRank[on];
}

function rowName(row) {
  if (look.view === "worker") return `worker ${row}`;
  return row < keyTotal ? run.keys[keyOrder[row]] : "no key";
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

/** The messages within two pixels of a point, the one that waited longest behind its keys first. */
function under(x, y) {
  const tracks = views[look.view];
  const row = rowAt(y);
  const found = [];
  if (x < size.gutter || y < size.axis || row < 0 || row >= tracks.count) return { row: -1, found };
  const slack = (2 * (look.t1 - look.t0)) / plotWidth();
  const time = timeAt(x);
  const inRow = (y - yOf(row)) / size.row;
  let exact = -1;
  for (let at = firstAfter(tracks, row, time - slack); at < tracks.from[row + 1]; at++) {
    const i = tracks.item[at];
    if (start[i] > time + slack) break;
    if (end[i] < time - slack) continue;
    if (Math.floor((1 - inRow) * tracks.places[at]) === tracks.place[at]
        && start[i] <= time && time <= end[i] && end[i] - start[i] > 2 * slack) exact = i;
    found.push(i);
  }
  if (exact >= 0) return { row, found: [exact] };
  return { row, found: found.sort((a, b) => blocked(b) - blocked(a) || waited(b) - waited(a)) };
}

/** The message `step` places further on the chosen message's row. */
function neighbour(step) {
  const tracks = views[look.view];
  const row = picked.message < 0 ? Math.max(0, rowAt(size.axis)) : rowOf(picked.message, picked.at);
  const from = tracks.from[row];
  const stop = tracks.from[row + 1];
  if (picked.message < 0) {
    for (let at = firstAfter(tracks, row, look.t0); at < stop; at++) {
      if (start[tracks.item[at]] >= look.t0) return tracks.item[at];
    }
    return from < stop ? tracks.item[from] : -1;
  }
  let at = firstAfter(tracks, row, start[picked.message]);
  while (at < stop && tracks.item[at] !== picked.message) at++;
  at += step;
  return at >= from && at < stop ? tracks.item[at] : -1;
}
