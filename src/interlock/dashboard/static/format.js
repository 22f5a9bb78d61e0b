// Figures and times as text, the same in every locale. Times of the API are seconds since 1970.

import { count, counted, lasting, shorten, units } from "./timeline/text.js";

export { count, counted, lasting, shorten };

/** A rate a second: 0, 0.4, 12.3, 1,240 */
export function rate(value) {
  if (!value || value < 0.05) return "0";
  return value < 100 ? value.toFixed(1) : count(value);
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

export const STATES = ["ready", "waiting", "leased", "delayed", "backing_off", "held", "parked", "dead"];

/** `backing_off` as words. */
export const words = (state) => String(state).replaceAll("_", " ");
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
