// The text next to the drawing: figures, legend, findings, and the chosen message. Ids and keys
// come from the trace: they only ever reach the page as text, never as markup.

import {
  behind, blocked, chainBusy, chainLength, end, held, holds, keyBusy, keyCount, keyOrder, keyRank, keyTotal,
  largest, lastEnd, put, run, start, total, unkeyed, waited, workerBusy, workerOf,
} from "./data.js";
import { blockedSteps, colour, colours, layout, noColour, otherColour, picked, rows, size, under } from "./tracks.js";
import { canvas, painter } from "./draw.js";
import { choose, chooseKey, chooseNothing, zoomTo } from "./start.js";
import { h, setText } from "./timeline/elements.js";
import { placeTip } from "./timeline/layout.js";
import { NOTE } from "./timeline/painter.js";
import { count, counted, lasting, percent, shorten } from "./timeline/text.js";

const panel = document.getElementById("panel");
export const tip = document.getElementById("tip");
const shownOfChain = 200;

const swatch = (shade) => {
  const made = h("i", { class: "swatch" });
  made.style.background = painter.paint.fills[shade];
  return made;
};

function pairs(entries) {
  return h("dl", { class: "pairs" },
    ...entries.flatMap(([term, text]) => [h("dt", {}, term), h("dd", {}, text)]));
}

/** A button that chooses a message; its id, its keys, and one figure. */
function messageButton(i, figure, className = "row") {
  const keys = keyNames(i);
  return h("button", {
    type: "button", class: className, title: `${run.ids[i]}: ${keys || "no key"}`,
    onclick: () => choose(i, { follow: true }),
  }, swatch(colour.of[i]), h("b", {}, run.ids[i]), h("span", { class: "of" }, keys || "no key"),
  h("span", { class: "figure" }, figure));
}

export function keyNames(i, most = 3) {
  const names = [];
  for (let h = held[i]; h < Math.min(held[i + 1], held[i] + most); h++) names.push(run.keys[holds[h] >> 1]);
  const more = held[i + 1] - held[i] - names.length;
  return names.join(", ") + (more > 0 ? ` and ${count(more)} more` : "");
}

function keyButton(key, figure, className = "row") {
  return h("button", {
    type: "button", class: className, title: run.keys[key], onclick: () => chooseKey(key),
  }, h("b", { class: "name" }, run.keys[key]), figure === null ? null : h("span", { class: "figure" }, figure));
}

export function showFigures() {
  setText(document.getElementById("title"), run.title);
  const used = workerBusy.reduce((sum, busy) => sum + busy, 0) / (run.workers * run.seconds || 1);
  const near = run.limit > 0 ? (run.seconds / run.limit).toFixed(2) : "0";
  const entries = [
    ["messages", count(total)], ["keys", count(keyTotal)],
    ["workers", count(run.workers)], ["time", lasting(run.seconds)],
    ["limit", lasting(run.limit), "No schedule of these workers could be shorter: the larger of the critical path and all handler time divided by the workers"],
    ["times the limit", near, "Time divided by the limit"],
    ["utilisation", percent(used), "Share of all workers' time spent in handlers"],
  ];
  document.getElementById("figures").replaceChildren(...entries.map(([name, value, title = ""]) =>
    h("div", { title }, h("dt", {}, name), h("dd", {}, value))));
}

export function showLegend() {
  const entry = (shade, text) => h("span", {}, swatch(shade), text);
  const most = 24;
  let entries;
  if (colour.by === "key") {
    entries = Array.from(keyOrder.subarray(0, colours), (key, n) => entry(n, shorten(run.keys[key], most)));
    if (keyTotal > colours) entries.push(entry(otherColour, "other keys"));
    if (unkeyed) entries.push(entry(noColour, "no key"));
  } else if (colour.by === "worker") {
    entries = Array.from({ length: Math.min(colours, run.workers) }, (_, n) => entry(n, `worker ${n}`));
    if (run.workers > colours) entries.push(h("span", {}, `then again from the first`));
  } else {
    entries = blockedSteps.map((bound, n) => entry(n,
      n === 0 ? "not at all" : bound === Infinity ? "longer" : `up to ${lasting(bound)}`));
  }
  entries.push(h("span", { class: "gathered" }, NOTE));
  document.getElementById("legend").replaceChildren(...entries);
}

export function showPanel(among = 0) {
  if (picked.message >= 0) showMessage(picked.message, among);
  else if (picked.key >= 0) showKey(picked.key);
  else showStart();
  panel.scrollTop = 0;
}

function showStart() {
  const heaviest = largest(1, (i) => (behind[i] < 0 ? 0 : chainBusy[i]));
  const waits = largest(8, blocked);
  panel.replaceChildren(
    h("p", { class: "hint" }, total ? "Click a message to see what it waited for." : "The run handled no message."),
    ...heaviest.flatMap((i) => [h("h2", {}, "Heaviest chain"), h("p", {},
      `${counted(chainLength[i], "message")} that waited for one another, ${lasting(chainBusy[i])} of handlers.`),
    messageButton(i, lasting(chainBusy[i]))]),
    ...(waits.length ? [h("h2", {}, "Waited longest behind their keys"),
      ...waits.map((i) => messageButton(i, lasting(blocked(i))))] : []),
    ...(keyTotal ? [h("h2", {}, "Busiest keys"), ...Array.from(keyOrder.subarray(0, 10), (key) =>
      keyButton(key, lasting(keyBusy[key])))] : []),
  );
}

function showKey(key) {
  panel.replaceChildren(
    closing("key"), h("h1", {}, run.keys[key]),
    pairs([["messages", count(keyCount[key])], ["handled", lasting(keyBusy[key])],
      ["of the whole time", percent(keyBusy[key] / lastEnd)], ["place", `${count(keyRank[key] + 1)} of ${count(keyTotal)}`]]),
    h("h2", {}, "Waited longest behind their keys"),
    ...largest(8, (i) => (picked.lit[i] ? blocked(i) : 0)).map((i) => messageButton(i, lasting(blocked(i)))),
  );
}

const closing = (kind) => h("div", { class: "kind" }, kind,
  h("button", { type: "button", title: "Clear the selection (Esc)", "aria-label": "Clear the selection", onclick: () => chooseNothing() }, "×"));

function showMessage(i, among) {
  const chips = [];
  for (let h = held[i]; h < Math.min(held[i + 1], held[i] + 60); h++) {
    const chip = keyButton(holds[h] >> 1, holds[h] & 1 ? "shared" : null, "chip");
    chips.push(chip);
  }
  if (held[i + 1] - held[i] > 60) chips.push(h("span", { class: "more" }, `and ${held[i + 1] - held[i] - 60} more`));
  panel.replaceChildren(
    closing("message"), h("h1", {}, run.ids[i]),
    ...(among > 1 ? [h("p", { class: "hint" },
      `${counted(among, "message")} under the pointer; this one waited longest behind its keys. Zoom in to see each.`)] : []),
    h("div", { class: "chips" }, ...(chips.length ? chips : [h("span", { class: "more" }, "no key")])),
    pairs([["worker", String(workerOf[i])], ["put at", lasting(put[i])], ["started at", lasting(start[i])],
      ["waited", lasting(waited(i))], ["handled", lasting(end[i] - start[i])]]),
    splitBar(i), h("button", { type: "button", class: "wide", onclick: () => zoomTo(i) }, "Zoom to it"),
    h("h2", {}, "What it waited for"), chainList(i),
  );
}

/** The time from put to end in proportion: behind its keys, for a worker, handled. */
function splitBar(i) {
  const parts = [["behind its keys", blocked(i), "keys"], ["for a worker", waited(i) - blocked(i), "worker"],
    ["handled", end[i] - start[i], "handled"]];
  const whole = parts.reduce((sum, [, seconds]) => sum + seconds, 0) || 1;
  const bar = h("div", { class: "split", "aria-hidden": "true" });
  for (const [, seconds, name] of parts.filter(([, seconds]) => seconds > 0)) {
    bar.append(h("i", { class: name }));
    bar.lastChild.style.flexGrow = String((100 * seconds) / whole);
  }
  return h("div", {}, bar, h("div", { class: "splits" }, ...parts.map(([text, seconds, name]) =>
    h("span", {}, h("i", { class: `swatch ${name}` }), `${text} ${lasting(seconds)}`))));
}

function chainList(i) {
  const { chain, links } = picked;
  if (chain.length === 1) return h("p", {}, "No earlier message conflicted with it any more: it waited for no message.");
  const entry = (n) => h("li", { class: n === chain.length - 1 ? "root" : "" },
    h("span", { class: "by" }, links[n - 1] >= 0 ? "on " : "", links[n - 1] >= 0 ? h("code", {}, run.keys[links[n - 1]]) : "a barrier"),
    messageButton(chain[n], lasting(end[chain[n]] - start[chain[n]])));
  const list = h("ol", { class: "chain" });
  const upTo = Math.min(chain.length, shownOfChain + 1);
  for (let n = 1; n < upTo; n++) list.append(entry(n));
  if (upTo < chain.length) {
    list.append(h("li", { class: "more" }, `${count(chain.length - upTo - 1)} more, and the root:`), entry(chain.length - 1));
  }
  return h("div", {}, h("p", {},
    `${counted(chain.length - 1, "message")} back to the root, ${lasting(chainBusy[i])} of handlers one after another.`), list);
}

export function showTip(event) {
  const box = canvas.getBoundingClientRect();
  const [x, y] = [event.clientX - box.left, event.clientY - box.top];
  const at = layout();
  const { row, found } = under(x, y);
  canvas.style.cursor = found.length ? "pointer" : x < at.gutter ? "default" : "grab";
  if (!found.length && !(x < at.gutter && at.rowAt(y) >= 0 && at.rowAt(y) < rows.count)) {
    tip.hidden = true;
    return;
  }
  if (row < 0) tip.replaceChildren(h("b", {}, rows.name(at.rowAt(y))));
  else if (found.length === 1) tipOf(found[0]);
  else tip.replaceChildren(h("b", {}, counted(found.length, "message")),
    h("span", {}, `longest wait behind its keys ${lasting(blocked(found[0]))}`), h("span", {}, "zoom in to see each"));
  placeTip(tip, x, y, size);
}

function tipOf(i) {
  tip.replaceChildren(h("b", {}, run.ids[i]), h("span", { class: "of" }, keyNames(i) || "no key"),
    h("span", {}, `waited ${lasting(waited(i))}, handled ${lasting(end[i] - start[i])}, worker ${workerOf[i]}`),
    ...(behind[i] < 0 ? [] : [h("span", {}, `waited for ${run.ids[behind[i]]}`)]));
}
