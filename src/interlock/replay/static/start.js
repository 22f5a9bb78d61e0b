// Choosing, finding, moving: all the reader's actions, and the first drawing.

import {
  behind, chainLength, end, keyCount, keyOrder, keyRank, keyTotal, lastEnd, put, run, start, total, waited,
} from "./data.js";
import {
  colour, colourBy, layout, look, neighbour, pickKey, pickMessage, pickNothing, picked, rowOf, rows, size, under,
} from "./tracks.js";
import { canvas, draw, measure, overview, readTheme } from "./draw.js";
import { keyNames, showFigures, showLegend, showPanel, showTip, tip } from "./panel.js";
import { h } from "./timeline/elements.js";
import { AXIS } from "./timeline/layout.js";
import { counted, lasting, visible } from "./timeline/text.js";

const frame = document.getElementById("frame");
const scroll = document.getElementById("scroll");
const search = document.getElementById("search");
const found = document.getElementById("found");
let waiting = 0;

/** Draws once before the next frame, however often it is called. */
function redraw() {
  if (!waiting) waiting = requestAnimationFrame(() => { waiting = 0; settle(); draw(); });
}

/** Keeps the view within the run, and the parts next to the drawing in step with it. */
function settle() {
  const least = Math.min(lastEnd, Math.max(1e-6, lastEnd / 1e7));
  const span = Math.min(lastEnd, Math.max(least, look.t1 - look.t0));
  look.t0 = Math.min(Math.max(0, look.t0), lastEnd - span);
  look.t1 = look.t0 + span;
  const lowest = layout().lowest(rows.count);
  look.top[look.view] = Math.min(Math.max(0, look.top[look.view]), lowest);
  scroll.firstElementChild.style.height = `${rows.count * size.row}px`;
  scroll.hidden = !lowest;
  if (Math.abs(scroll.scrollTop - look.top[look.view]) >= 1) scroll.scrollTop = look.top[look.view];
  const whole = look.t1 - look.t0 > lastEnd * 0.9999;
  document.getElementById("span").textContent = whole ? "" : `${lasting(look.t1 - look.t0)} from ${lasting(look.t0)}`;
}

function zoom(times, x = layout().gutter + layout().plot / 2) {
  const at = layout().time(Math.max(layout().gutter, x));
  look.t0 = at - (at - look.t0) * times;
  look.t1 = at + (look.t1 - at) * times;
  const over = Math.max(0, look.t1 - lastEnd);
  if (look.t0 < 0) look.t1 -= look.t0;
  look.t0 = Math.max(0, look.t0 - over);
  redraw();
}

function move(seconds, pixels = 0) {
  const span = look.t1 - look.t0;
  look.t0 = Math.min(Math.max(0, look.t0 + seconds), lastEnd - span);
  look.t1 = look.t0 + span;
  look.top[look.view] += pixels;
  redraw();
}

function fit() {
  look.t0 = 0;
  look.t1 = lastEnd;
  redraw();
}

/** Twenty times the message's own length, or its whole wait if that is longer. */
export function zoomTo(i) {
  const from = behind[i] < 0 ? put[i] : Math.min(start[behind[i]], start[i]);
  const span = Math.max(end[i] - Math.max(from, start[i] - (end[i] - start[i]) * 20), (end[i] - start[i]) * 6, 1e-6);
  look.t1 = end[i] + span * 0.3;
  look.t0 = look.t1 - span * 1.6;
  bringToSight(i);
}

/** Moves, without zooming, so that the message is in the drawing. */
function bringToSight(i) {
  const span = look.t1 - look.t0;
  if (start[i] < look.t0 || end[i] > look.t1) {
    look.t0 = start[i] - span * 0.6;
    look.t1 = look.t0 + span;
  }
  bringRow(rowOf(i, picked.links[0] ?? picked.at));
}

function bringRow(row) {
  const { tall } = layout();
  const y = layout().y(row);
  if (y < AXIS || y + size.row > size.height) {
    look.top[look.view] = row * size.row - tall / 2 + size.row / 2;
  }
  redraw();
}

export function choose(i, { follow = false, at = -1, among = 1 } = {}) {
  pickMessage(i, at);
  showPanel(among);
  say(`${run.ids[i]}, waited ${lasting(waited(i))}, handled ${lasting(end[i] - start[i])}, `
    + (behind[i] < 0 ? "waited for no message" : `waited for ${run.ids[behind[i]]}, ${counted(chainLength[i] - 1, "message")} to the root`));
  if (follow) bringToSight(i);
  redraw();
}

export function chooseKey(key) {
  pickKey(key);
  showView("key");
  showPanel();
  say(`key ${run.keys[key]}, ${counted(keyCount[key], "message")}`);
  bringRow(keyRank[key]);
}

export function chooseNothing() {
  pickNothing();
  showPanel();
  redraw();
}

function say(text) {
  document.getElementById("said").textContent = visible(text);
}

function showView(view) {
  if (look.view === view) return;
  look.view = view;
  for (const button of document.querySelectorAll("[data-view]")) {
    button.setAttribute("aria-checked", String(button.dataset.view === view));
    button.tabIndex = button.dataset.view === view ? 0 : -1;
  }
  // In a track's own colours its key or worker would be redundant, so the other one is shown.
  if (!colour.chosen) setColour(view === "worker" ? "key" : "worker");
  measure();
  if (picked.message >= 0) bringToSight(picked.message);
  redraw();
}

function setColour(by) {
  document.getElementById("colour").value = by;
  colourBy(by);
  readTheme();
  showLegend();
  redraw();
}

for (const button of document.querySelectorAll("[data-view]")) {
  button.tabIndex = button.dataset.view === look.view ? 0 : -1;
  button.onclick = () => showView(button.dataset.view);
  button.onkeydown = (event) => {
    if (!event.key.startsWith("Arrow")) return;
    showView(look.view === "worker" ? "key" : "worker");
    document.querySelector("[data-view][aria-checked=true]").focus();
    event.preventDefault();
  };
}
document.getElementById("colour").onchange = (event) => {
  colour.chosen = true;
  setColour(event.target.value);
  showPanel();
};
document.getElementById("in").onclick = () => zoom(0.5);
document.getElementById("out").onclick = () => zoom(2);
document.getElementById("fit").onclick = fit;
document.getElementById("help").onclick = () => document.getElementById("keys").showModal();

// Finding: whole ids first, then keys, then ids that contain the text.
let matches = [];
let marked = -1;

function find(text) {
  const sought = text.trim().toLowerCase();
  if (!sought) return [];
  const most = 12;
  const whole = [];
  const parts = [];
  for (let i = 0; i < total && whole.length < most; i++) {
    const id = run.ids[i].toLowerCase();
    if (id === sought) whole.push({ message: i });
    else if (parts.length < most && id.includes(sought)) parts.push({ message: i });
  }
  const keys = [];
  for (const key of keyOrder) {
    if (keys.length < most && run.keys[key].toLowerCase().includes(sought)) keys.push({ key });
  }
  return [...whole, ...keys.slice(0, most - Math.min(4, parts.length)), ...parts].slice(0, most);
}

function showFound() {
  found.replaceChildren(...matches.map((match, n) => {
    const [kind, name, figure] = match.key === undefined
      ? ["message", run.ids[match.message], keyNames(match.message, 2) || "no key"]
      : ["key", run.keys[match.key], counted(keyCount[match.key], "message")];
    const entry = h("li", { id: `found-${n}`, role: "option" }, h("small", {}, kind), h("b", {}, name), h("span", {}, figure));
    entry.setAttribute("aria-selected", String(n === marked));
    entry.onpointerdown = (event) => { event.preventDefault(); take(n); };
    return entry;
  }));
  if (search.value.trim() && !matches.length) found.replaceChildren(h("li", { class: "none" }, "nothing found"));
  found.hidden = !found.children.length;
  search.setAttribute("aria-expanded", String(!found.hidden));
  if (marked >= 0) search.setAttribute("aria-activedescendant", `found-${marked}`);
  else search.removeAttribute("aria-activedescendant");
}

function take(n) {
  const match = matches[n];
  if (!match) return;
  matches = [];
  found.hidden = true;
  search.setAttribute("aria-expanded", "false");
  if (match.key !== undefined) chooseKey(match.key);
  else choose(match.message, { follow: true });
  canvas.focus();
}

search.oninput = () => { matches = find(search.value); marked = matches.length ? 0 : -1; showFound(); };
search.onblur = () => { found.hidden = true; search.setAttribute("aria-expanded", "false"); };
search.onfocus = () => { if (search.value.trim()) search.oninput(); };
search.onkeydown = (event) => {
  if (event.key === "Enter") take(Math.max(0, marked));
  else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    if (!matches.length) return;
    marked = (marked + (event.key === "ArrowDown" ? 1 : -1) + matches.length) % matches.length;
    showFound();
    event.preventDefault();
  } else if (event.key === "Escape") { search.value = ""; search.oninput(); canvas.focus(); }
  event.stopPropagation();
};

let drag = null;

canvas.onpointerdown = (event) => {
  if (event.button !== 0) return;
  canvas.setPointerCapture(event.pointerId);
  drag = { x: event.clientX, y: event.clientY, moved: false };
};
canvas.onpointermove = (event) => {
  if (!drag) return showTip(event);
  const [x, y] = [event.clientX - drag.x, event.clientY - drag.y];
  if (!drag.moved && Math.hypot(x, y) < 4) return undefined;
  tip.hidden = true;
  canvas.style.cursor = "grabbing";
  move(-x / layout().scale, -y);
  drag = { x: event.clientX, y: event.clientY, moved: true };
  return undefined;
};
canvas.onpointerup = (event) => {
  const still = drag && !drag.moved;
  drag = null;
  if (!still) return;
  const box = canvas.getBoundingClientRect();
  const [x, y] = [event.clientX - box.left, event.clientY - box.top];
  const row = layout().rowAt(y);
  if (x < layout().gutter && look.view === "key" && row >= 0 && row < keyTotal) return void chooseKey(keyOrder[row]);
  const hit = under(x, y);
  if (!hit.found.length) return void chooseNothing();
  choose(hit.found[0], { at: look.view === "key" && hit.row < keyTotal ? keyOrder[hit.row] : -1, among: hit.found.length });
};
canvas.onpointercancel = () => { drag = null; };
canvas.onpointerleave = () => { tip.hidden = true; };
canvas.ondblclick = (event) => zoom(0.25, event.clientX - canvas.getBoundingClientRect().left);
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const x = event.clientX - canvas.getBoundingClientRect().left;
  const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 200 : 1;
  const [across, down] = event.shiftKey ? [event.deltaX + event.deltaY, 0] : [event.deltaX, event.deltaY];
  tip.hidden = true;
  if (x < layout().gutter) move(0, down * unit);
  else if (Math.abs(across) > Math.abs(down)) move((across * unit) / layout().scale);
  else zoom(2 ** (Math.max(-240, Math.min(240, down * unit)) / 240), x);
}, { passive: false });
scroll.onscroll = () => { look.top[look.view] = scroll.scrollTop; redraw(); };

// The overview: a drag inside the frame moves it, outside it draws a new one.
let brush = null;
const overviewTime = (event) =>
  ((event.clientX - overview.getBoundingClientRect().left - layout().gutter) / layout().plot) * lastEnd;

overview.onpointerdown = (event) => {
  overview.setPointerCapture(event.pointerId);
  const time = overviewTime(event);
  const whole = look.t1 - look.t0 > lastEnd * 0.999;
  brush = { time, moves: !whole && time >= look.t0 && time <= look.t1 };
};
overview.onpointermove = (event) => {
  if (!brush) return;
  const time = overviewTime(event);
  if (brush.moves) {
    move(time - brush.time);
    brush.time = time;
  } else if (Math.abs(time - brush.time) > lastEnd / 500) {
    look.t0 = Math.max(0, Math.min(time, brush.time));
    look.t1 = Math.min(lastEnd, Math.max(time, brush.time));
    redraw();
  }
};
overview.onpointerup = () => { brush = null; };
overview.onpointercancel = overview.onpointerup;
overview.ondblclick = fit;

const presses = {
  ArrowLeft: () => move((look.t0 - look.t1) / 8),
  ArrowRight: () => move((look.t1 - look.t0) / 8),
  ArrowUp: () => move(0, -size.row * 3),
  ArrowDown: () => move(0, size.row * 3),
  PageUp: () => move(0, -layout().tall),
  PageDown: () => move(0, layout().tall),
  Home: () => move(-lastEnd),
  End: () => move(lastEnd),
  "+": () => zoom(0.5),
  "=": () => zoom(0.5),
  "-": () => zoom(2),
  f: fit,
  0: fit,
  n: () => stepTo(neighbour(1)),
  p: () => stepTo(neighbour(-1)),
  w: () => { if (picked.message >= 0 && behind[picked.message] >= 0) choose(behind[picked.message], { follow: true }); },
  z: () => { if (picked.message >= 0) zoomTo(picked.message); },
  v: () => showView(look.view === "worker" ? "key" : "worker"),
  Enter: () => { if (picked.message < 0) stepTo(neighbour(1)); },
  Escape: chooseNothing,
  "/": () => search.focus(),
  "?": () => document.getElementById("keys").showModal(),
};

function stepTo(i) {
  if (i >= 0) choose(i, { follow: true, at: picked.at });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const elsewhere = event.target !== canvas && event.target !== document.body;
  // Elsewhere the arrows and Enter belong to the focused element.
  if (elsewhere && (event.key.length > 1 && event.key !== "Escape" || event.target.matches("input, select"))) return;
  const press = presses[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!press) return;
  event.preventDefault();
  press();
});

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  readTheme();
  showLegend();
  showPanel();
  redraw();
});
new ResizeObserver(() => { measure(); redraw(); }).observe(frame);

colourBy(colour.by);
readTheme();
measure();
showFigures();
showLegend();
showPanel();
settle();
draw();
document.documentElement.dataset.openedMs = performance.now().toFixed(1);
