// The live diagram's part of the layout: the order of its tracks, their sizes, the times of its axis.

/** Maximum boxes of waiting messages next to a track, and the pixels of each. */
export const BOXES = 8;
export const BOX = 9;

/** Pixels of a track and what surrounds its blocks: by key, the strip of those that wait is below them. */
export const shapeOf = (by) => (by === "key" ? { row: 24, inset: [4, 6] } : { row: 46, inset: [4, 4] });

/** Pixels behind the tracks: by key, for the waiting messages. */
export const lineOf = (by, width) => (by === "key" ? Math.min(120, Math.max(44, Math.round(width * 0.1))) : 12);

/** The index of the first span that could end after a time. */
export function firstSeen(spans, from) {
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
