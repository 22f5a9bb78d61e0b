// Figures and times as text, the same in every locale. Times of the API are seconds since 1970.

const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** 12,345 */
export const count = (value) => grouped.format(value ?? 0);

/** `count` with its noun. */
export const counted = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

/** A rate a second: 0, 0.4, 12.3, 1,240 */
export function rate(value) {
  if (!value || value < 0.05) return "0";
  return value < 100 ? value.toFixed(1) : count(value);
}

/** A length of time to three figures: 789 µs, 45.6 ms, 1.23 s, 3 min 20 s, 2 h 5 min, 3 d 4 h. */
export function lasting(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  if (seconds < 0) return `-${lasting(-seconds)}`;
  if (seconds === 0) return "0 s";
  if (seconds < 60) {
    const [scale, unit] = seconds >= 1 ? [1, "s"] : seconds >= 1e-3 ? [1e3, "ms"] : [1e6, "µs"];
    const value = seconds * scale;
    return `${value < 10 ? trimmed(value.toFixed(2)) : value < 100 ? trimmed(value.toFixed(1)) : value.toFixed(0)} ${unit}`;
  }
  return units(seconds);
}

const trimmed = (text) => text.replace(/\.?0+$/, "");

function units(seconds) {
  const parts = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = parts.findIndex(([, size]) => seconds >= size);
  const texts = [];
  let left = Math.floor(seconds);
  for (const [unit, size] of parts.slice(first, first + 2)) {
    const whole = Math.floor(left / size);
    left -= whole * size;
    if (whole) texts.push(`${whole} ${unit}`);
  }
  return texts.join(" ");
}

/** A duration to the second: 0 s, 12 s, 3 min 20 s. */
export function coarse(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  return seconds < 1 ? "< 1 s" : seconds < 60 ? `${Math.floor(seconds)} s` : units(seconds);
}

/** 2026-11-23 22:58:01.250Z */
export function iso(seconds, digits = 3) {
  const at = new Date(seconds * 1000);
  // Workers' announcements may hold anything.
  if (Number.isNaN(at.getTime())) return "–";
  const text = at.toISOString();
  return `${text.slice(0, 10)} ${text.slice(11, 19 + (digits ? digits + 1 : 0))}Z`;
}

/** 1,024 B, 12.3 KiB */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  if (value < 1024) return `${count(value)} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let size = value;
  let unit = "B";
  for (unit of units) {
    size /= 1024;
    if (size < 1024) break;
  }
  return `${size < 10 ? size.toFixed(1) : count(size)} ${unit}`;
}

/** Cuts a text in its middle, where paths and ids differ least. */
export function shorten(text, room) {
  if (text.length <= room) return text;
  const tail = Math.floor((room - 1) / 2);
  return `${text.slice(0, room - 1 - tail)}…${tail ? text.slice(-tail) : ""}`;
}

export const STATES = ["ready", "waiting", "leased", "delayed", "backing_off", "held", "dead"];

/** `backing_off` as words. */
export const words = (state) => String(state).replaceAll("_", " ");
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
