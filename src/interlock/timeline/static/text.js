// Figures, lengths of time and names as text, the same in every timeline and locale.

const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** 12,345 */
export const count = (value) => grouped.format(value ?? 0);

/** `count` with its noun. */
export const counted = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

/** A part of 1: 8.5 %, 62 % */
export const percent = (part) => `${(100 * part).toFixed(part < 0.0995 ? 1 : 0)} %`;

/** A length of time to three figures: 789 µs, 45.6 ms, 1.23 s, 3 min 20 s, 2 h 5 min, 3 d 4 h. */
export function lasting(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  if (seconds < 0) return `-${lasting(-seconds)}`;
  if (seconds === 0) return "0 s";
  if (seconds >= 60) return units(seconds);
  const [scale, unit] = seconds >= 1 ? [1, "s"] : seconds >= 1e-3 ? [1e3, "ms"] : [1e6, "µs"];
  const value = seconds * scale;
  return `${value < 10 ? trimmed(value.toFixed(2)) : value < 100 ? trimmed(value.toFixed(1)) : value.toFixed(0)} ${unit}`;
}

const trimmed = (text) => text.replace(/\.?0+$/, "");

/** The two largest units of a minute or more. */
export function units(seconds) {
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

/** Cuts a text in its middle, where paths and ids differ least; a sign of two code units stays whole. */
export function shorten(text, room) {
  if (text.length <= room) return text;
  const tail = Math.floor((room - 1) / 2);
  const head = text.slice(0, room - 1 - tail).replace(/[\ud800-\udbff]$/, "");
  return `${head}…${tail ? text.slice(-tail).replace(/^[\udc00-\udfff]/, "") : ""}`;
}

/**
 * Text from outside as a page shows it: what cannot be seen, or reorders or erases its neighbours, is escaped as Python
 * does, `\u202e`. All text goes through here on its way into a page; tabs and line ends stay.
 */
export function visible(text) {
  return String(text).replace(/[^\P{C}\n\t]|[\p{Zl}\p{Zp}]/gu, (letter) => {
    const code = letter.codePointAt(0);
    const [mark, digits] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
    return `\\${mark}${code.toString(16).padStart(digits, "0")}`;
  });
}

const LONGEST = 400;

/** Text from outside in one line of at most `room` letters; a very long one is cut before its letters are examined. */
export const fitted = (text, room) => shorten(visible(shorten(String(text), LONGEST).replace(/\s+/g, " ")), room);
