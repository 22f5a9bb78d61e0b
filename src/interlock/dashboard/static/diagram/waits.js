// How long messages waited before they were leased: a histogram, and the keys with the longest waits.

import { h, reconcile, setText } from "../dom.js";
import { count, lasting } from "../format.js";

/** Upper bounds of the bars, in seconds; the last has none. */
export const BOUNDS = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60, 300, Infinity];

/** Counts per bar of waits in seconds. */
export function binned(waits) {
  const found = new Array(BOUNDS.length).fill(0);
  for (const wait of waits) found[BOUNDS.findIndex((bound) => wait <= bound)]++;
  return found;
}

/** The value below which this fraction of sorted values is. */
export const quantile = (sorted, part) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? 0;

/** Per key the number of waits, the median and the longest; the longest medians first. */
export function byKey(waits, most) {
  const keys = new Map();
  for (const { wait, key } of waits) {
    const one = keys.get(key);
    if (one) one.push(wait);
    else keys.set(key, [wait]);
  }
  const rows = [...keys].map(([key, all]) => {
    all.sort((a, b) => a - b);
    return { key, count: all.length, median: quantile(all, 0.5), longest: all.at(-1) };
  });
  rows.sort((a, b) => b.median - a.median || (a.key < b.key ? -1 : 1));
  return rows.slice(0, most);
}

/** The bars; `update` takes waits in seconds. */
export function histogram() {
  const bars = h("div", { class: "histogram", role: "img" });
  return {
    element: bars,
    update(waits) {
      const bins = binned(waits);
      const most = Math.max(1, ...bins);
      const items = bins.map((value, at) => ({ at, value }));
      reconcile(bars, items, (one) => one.at, ({ at }) => h("div", {}, h("span", { class: "figure" }), h("i"), h("span", {},
        BOUNDS[at] === Infinity ? "more" : lasting(BOUNDS[at]))), (element, { value }) => {
        setText(element.firstChild, value ? count(value) : "");
        const tall = `${Math.round((86 * value) / most)}px`;
        if (element.children[1].style.height !== tall) element.children[1].style.height = tall;
      });
      const sorted = [...waits].sort((a, b) => a - b);
      bars.setAttribute("aria-label", waits.length
        ? `${count(waits.length)} waits: half of them up to ${lasting(quantile(sorted, 0.5))}, 99 in 100 up to ${lasting(quantile(sorted, 0.99))}, the longest ${lasting(sorted.at(-1))}`
        : "No waits yet");
    },
  };
}
