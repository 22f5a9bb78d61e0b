// The run, unpacked: one typed array per column, messages numbered in the order of their puts.

export const run = JSON.parse(document.getElementById("run").textContent);

/** The integers of one column: base64, then 7 bits a byte, lowest first, the top bit meaning more. */
function unpack(text, count) {
  const bytes = atob(text);
  const values = new Float64Array(count);
  for (let at = 0, i = 0; i < count; i++) {
    let value = 0;
    let scale = 1;
    let byte;
    do {
      byte = bytes.charCodeAt(at++);
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte > 127);
    values[i] = value;
  }
  return values;
}

/** Signed numbers are packed as 0, -1, 1, -2, 2, …, so that small ones stay short. */
const signed = (value) => (value % 2 ? -(value + 1) / 2 : value / 2);

export const total = run.ids.length;
export const put = new Float64Array(total);
export const start = new Float64Array(total);
export const end = new Float64Array(total);
export const workerOf = Uint32Array.from(unpack(run.worker, total));
export const behind = new Int32Array(total); // the message it waited for last, or -1
export const held = new Uint32Array(total + 1); // where a message's keys begin in `holds`
export const holds = Uint32Array.from(unpack(run.holds, run.holdCount)); // key × 2, and 1 if shared

{
  const puts = unpack(run.put, total);
  const waits = unpack(run.wait, total);
  const handled = unpack(run.handled, total);
  const widths = unpack(run.width, total);
  const steps = unpack(run.behind, total);
  for (let i = 0, clock = 0; i < total; i++) {
    clock += signed(puts[i]);
    put[i] = clock * run.unit;
    start[i] = (clock + signed(waits[i])) * run.unit;
    end[i] = (clock + signed(waits[i]) + handled[i]) * run.unit;
    held[i + 1] = held[i] + widths[i];
    behind[i] = steps[i] ? i - steps[i] : -1;
  }
}

export const keyTotal = run.keys.length;
export const keyCount = new Uint32Array(keyTotal); // messages that hold the key
export const keyBusy = new Float64Array(keyTotal); // seconds handled while holding it
const workerCount = new Uint32Array(run.workers);
export const workerBusy = new Float64Array(run.workers);
export let unkeyed = 0;
export let lastEnd = 0;

for (let i = 0; i < total; i++) {
  for (let h = held[i]; h < held[i + 1]; h++) {
    keyCount[holds[h] >> 1]++;
    keyBusy[holds[h] >> 1] += end[i] - start[i];
  }
  if (held[i] === held[i + 1]) unkeyed++;
  workerCount[workerOf[i]]++;
  workerBusy[workerOf[i]] += end[i] - start[i];
  if (end[i] > lastEnd) lastEnd = end[i];
}
lastEnd = Math.max(lastEnd, run.seconds, 1e-6);

/** Keys from the busiest down, and each key's place in that order. */
export const keyOrder = Uint32Array.from({ length: keyTotal }, (_, key) => key);
keyOrder.sort((a, b) => keyBusy[b] - keyBusy[a] || keyCount[b] - keyCount[a] || a - b);
export const keyRank = new Uint32Array(keyTotal);
keyOrder.forEach((key, rank) => { keyRank[key] = rank; });

export const byStart = Uint32Array.from({ length: total }, (_, i) => i);
byStart.sort((a, b) => start[a] - start[b] || a - b);

/** Seconds of the chain of handlers that ends with this message, along the messages each waited for. */
export const chainBusy = new Float64Array(total);
export const chainLength = new Uint32Array(total);
for (let i = 0; i < total; i++) {
  const before = behind[i];
  chainBusy[i] = end[i] - start[i] + (before < 0 ? 0 : chainBusy[before]);
  chainLength[i] = 1 + (before < 0 ? 0 : chainLength[before]);
}

export const waited = (i) => Math.max(0, start[i] - put[i]);

/** The end of the last message that held it up; after that it waited for a worker. */
export const freeAt = (i) =>
  behind[i] < 0 ? put[i] : Math.min(Math.max(end[behind[i]], put[i]), Math.max(start[i], put[i]));

export const blocked = (i) => freeAt(i) - put[i];

/** The message, the one it waited for, and so on to the root. */
export function chainOf(i) {
  const chain = [];
  for (let at = i; at >= 0; at = behind[at]) chain.push(at);
  return chain;
}

/** The busiest key on which message `i` conflicts with message `before`; -1 if none. */
export function linkKey(i, before) {
  const mine = new Map();
  for (let h = held[i]; h < held[i + 1]; h++) mine.set(holds[h] >> 1, holds[h] & 1);
  let found = -1;
  for (let h = held[before]; h < held[before + 1]; h++) {
    const key = holds[h] >> 1;
    if (!mine.has(key) || (mine.get(key) & holds[h] & 1)) continue;
    if (found < 0 || keyRank[key] < keyRank[found]) found = key;
  }
  return found;
}

/** The busiest of a message's keys; -1 if it has none. */
export function busiestKey(i) {
  let best = -1;
  for (let h = held[i]; h < held[i + 1]; h++) {
    if (best < 0 || keyRank[holds[h] >> 1] < keyRank[best]) best = holds[h] >> 1;
  }
  return best;
}

export function holdsKey(i, key) {
  for (let h = held[i]; h < held[i + 1]; h++) if (holds[h] >> 1 === key) return true;
  return false;
}

/** The `count` messages for which `measure` is largest, largest first, none at 0. */
export function largest(count, measure) {
  const best = [];
  for (let i = 0; i < total; i++) {
    const value = measure(i);
    if (value <= 0 || (best.length === count && value <= best[count - 1].value)) continue;
    best.push({ i, value });
    best.sort((a, b) => b.value - a.value);
    if (best.length > count) best.pop();
  }
  return best.map((one) => one.i);
}
