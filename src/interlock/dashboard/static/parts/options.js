// A queue's options formatted for people; on the wire they are whole numbers.

import { bytes, count, lasting } from "../format.js";

const DURATIONS = new Set(["window", "first", "longest"]);
const BOUNDS = new Set(["maxsize", "maxbytes"]);

/** The value of an option: durations are in µs, factors in thousandths, 0 means no bound. */
export function optionText(name, value) {
  // Entries NAME=N, or NAME=N/µs:BURST, with a character between them that nobody sees.
  if (name === "limits" || name === "weights") return value.split("\x1f").map((entry) => entry.replace(/\/(\d+):(\d+)$/, (_, per, burst) => `/${lasting(per / 1e6)}:${burst}`)).join(", ") || (name === "limits" ? "none" : "1 each");
  if (!/^\d+$/.test(value)) return value;
  const number = Number(value);
  if (BOUNDS.has(name) && number === 0) return "no bound";
  if (DURATIONS.has(name)) return lasting(number / 1e6);
  if (name === "maxbytes" || name === "results") return bytes(number);
  if (name === "factor") return `× ${number / 1000}`;
  if (name === "jitter") return number ? "yes" : "no";
  if (name === "attempts" && number === 0) return "for ever";
  return count(number);
}

/** The number or the rate of a limit name. */
export function mostText({ most, interval, burst }) {
  if (interval === null) return most === null ? "any number" : count(most);
  const every = interval <= 1 ? `${Number((1 / interval).toPrecision(6))} per s` : `1 per ${lasting(interval)}`;
  return burst === 1 ? every : `${every}, ${count(burst)} at once`;
}
