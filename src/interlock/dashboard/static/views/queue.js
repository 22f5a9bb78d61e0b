// One queue, live: its diagram, its waits, its hot and its paused keys, its options.

import { get, path, page } from "../api.js";
import { Chart } from "../diagram/chart.js";
import { byKey, histogram } from "../diagram/waits.js";
import { h, setText, show } from "../dom.js";
import { count, counted, lasting, STATES } from "../format.js";
import { action, change } from "../parts/action.js";
import { button, empty, link, messageLink, pairs, panel, refusal } from "../parts/basics.js";
import { figures } from "../parts/figures.js";
import { mostText, optionText } from "../parts/options.js";
import { queueHead } from "../parts/queuehead.js";
import { stallBanner } from "../parts/stall.js";
import { Table } from "../parts/table.js";

export function queue(context) {
  const { params: { queue: name }, live, signal, query, note, lost } = context;
  const top = queueHead(context, () => load());
  const totals = figures();
  const trouble = h("div");
  const stalled = stallBanner({ roots: true });
  const chart = new Chart({ queue: name, live, signal, query, note });
  const waits = waitsPanel(chart);
  const hot = hotTable(name, () => load());
  const hotPlace = h("div");
  const paused = h("div");
  const options = h("div", { class: "body" });
  const limits = limitsTable(name);
  const more = h("div", { class: "more" });
  const limited = panel("Limits", h("div", {}, limits.wrapped, more));
  limited.hidden = true;
  const node = h("div", {}, top.node, trouble, stalled.element, totals.element,
    panel("Who holds what, what waits", chart.element, { actions: chart.controls }),
    h("div", { class: "columns" },
      waits.element,
      panel("Keys with most messages", hotPlace)),
    limited,
    h("div", { class: "columns" }, panel("Paused keys", paused), panel("Options", options)));
  hotPlace.append(hot.wrapped);

  function figuresNow() {
    const known = live.queues.get(name);
    if (!known) return;
    const { stats, rates } = known;
    const shown = Object.fromEntries(STATES.map((state) => [state, stats[state] ?? 0]));
    totals.update({ ...shown, limited: stats.limited, groups: stats.groups || undefined, put: rates.recent("put"), done: rates.recent("done"), ...Object.fromEntries(["oldest_ready", "oldest_waiting"].map((oldest) => [oldest, stats[oldest] ? Math.max(0, live.now() - stats[oldest] / 1e6) : 0])) });
  }

  let first = true;
  async function load() {
    try {
      const found = await get(path("queues", name), { signal });
      trouble.replaceChildren();
      live.note(name, found.stats);
      figuresNow();
      stalled.update([[name, found.stall]]);
      top.update({ paused: found.queue_paused ?? found.paused.includes(""), sealed: Boolean(found.stats.sealed) });
      const most = Math.max(1, ...found.hot.map((one) => one.waiting));
      hot.update(found.hot.slice(0, 20).map((one) => ({ ...one, most })));
      hot.wrapped.hidden = !found.hot.length;
      if (!found.hot.length && hotPlace.children.length < 2) hotPlace.append(empty("No message has a key now", "Keys are listed here while they have unsettled messages."));
      if (found.hot.length) while (hotPlace.children.length > 1) hotPlace.lastChild.remove();
      const { items = [], awaited = 0 } = found.limits ?? {};
      limited.hidden = !items.length;
      limits.update(items);
      setText(more, awaited ? `Messages wait for ${counted(awaited, "name")}.` : "No message waits for a limit.");
      drawPaused(paused, name, found.paused.filter(Boolean), load);
      show(options, pairs(Object.entries(found.options).map(([option, value]) => [option, optionText(option, String(value))])));
      if (first) await seed(found.hot, found.stats);
      first = false;
    } catch (error) {
      if (error.status === 404) lost(error.message);
      else if (error.name !== "AbortError") show(trouble, refusal(error));
    }
  }

  /** The leases from before this page was opened, with worker and start if they are known. */
  async function seed(depths, stats) {
    const now = live.now();
    const running = get("/workers", { signal }).then((workers) => new Map(workers.flatMap((worker) => (worker.running ?? [])
      .filter((one) => (one.queue ?? worker.queue) === name)
      .map((one) => [String(one.id), { worker: worker.id, since: now - one.seconds }])))).catch(() => new Map());
    const standing = ["leased", "backing_off", "held"].filter((state) => stats[state]).map((state) =>
      get(path("queues", name, "messages"), { query: { state, limit: 100 }, signal }).then(({ items }) => items));
    // A state that cannot be shown now is shown with its next event.
    const found = (await Promise.allSettled(standing)).flatMap((one) => one.value ?? []);
    // A worker announces its messages now and then: those that the engine no longer reports are
    // over.
    const known = await running;
    chart.seed(found.map((one) => (one.state === "leased" ? { ...one, ...known.get(String(one.id)) } : one)));
    chart.depths(depths);
  }

  const timer = setInterval(() => { if (!document.hidden) load(); }, 5000);
  signal.addEventListener("abort", () => clearInterval(timer));
  live.addEventListener("stats", () => { figuresNow(); waits.update(); }, { signal });
  waits.update();
  return { node, title: name, wants: { queue: name }, ready: load() };
}

/** The histogram of waits, of all keys or of the chosen one, and the keys that waited longest. */
function waitsPanel(chart) {
  const bars = histogram();
  const told = h("span", { class: "soft" });
  const all = button("All keys", () => { chosen = null; update(); }, { small: true });
  let chosen = null;
  const table = new Table([
    { name: "key", label: "Key", head: true, fill: (row) => h("button", { type: "button", class: "plain small mono", onclick: () => { chosen = row.key; update(); } }, row.key || "no key") },
    { name: "count", label: "Leased", number: true, text: (row) => count(row.count) },
    { name: "median", label: "Median wait", number: true, text: (row) => lasting(row.median) },
    { name: "longest", label: "Longest", number: true, text: (row) => lasting(row.longest) },
  ], { caption: "Waits by key", keyOf: (row) => row.key });
  const nothing = empty("No message was leased yet", "Waits are counted since this page was opened.");
  function update() {
    const waits = chart.tracks.waits;
    const some = chosen === null ? waits : waits.filter((one) => one.key === chosen);
    bars.update(some.map((one) => one.wait));
    table.update(byKey(waits, 8));
    nothing.hidden = waits.length > 0;
    bars.element.hidden = table.wrapped.hidden = !waits.length;
    all.hidden = chosen === null;
    setText(told, chosen === null ? `the last ${counted(waits.length, "lease")}` : `key ${chosen}, ${counted(some.length, "lease")}`);
  }
  return { element: panel("Waits before a lease", h("div", {}, nothing, bars.element, table.wrapped), { actions: [told, all] }), update };
}

function hotTable(name, changed) {
  return new Table([
    { name: "key", label: "Key", head: true, fill: (row) => link(`${page("queues", name, "messages")}?${new URLSearchParams({ key: row.key })}`, { class: "mono", "data-open": true }, row.key) },
    { name: "waiting", label: "Messages", number: true, text: (row) => count(row.waiting) },
    {
      name: "bar", label: "", unseen: "Part", stamp: (row) => `${row.waiting}/${row.most}`,
      fill: (row) => { const bar = h("i"); bar.style.width = `${(100 * row.waiting) / row.most}%`; return h("span", { class: "bar-cell", "aria-hidden": "true" }, bar); },
    },
    {
      name: "do", label: "", class: "end",
      fill: (row) => action("Pause", async () => {
        const said = await change(path("queues", name, "pause"), { keys: [row.key] }, `Key ${row.key} is paused`, `Key ${row.key} was already paused`);
        changed();
        return said;
      }, { small: true, label: `Pause key ${row.key}` }),
    },
  ], { caption: "Keys with most messages", keyOf: (row) => row.key });
}

/** Limit names: what is used of each, and how many messages wait for it. */
function limitsTable(queue) {
  const some = (value) => (value ? lasting(value) : "–");
  return new Table([
    { name: "name", label: "Limit", head: true, class: "mono", text: (row) => row.name },
    { name: "leased", label: "Leased", number: true, text: (row) => count(row.leased) },
    { name: "of", label: "Of", text: (row) => mostText(row) },
    { name: "waiting", label: "Waiting", number: true, text: (row) => count(row.waiting) },
    { name: "next", label: "Next in", number: true, text: (row) => some(row.next_in) },
    { name: "closed", label: "Closed for", number: true, text: (row) => some(row.closed_for) },
    { name: "keeper", label: "Keeper", stamp: (row) => row.keeper, fill: (row) => (row.keeper ? messageLink(queue, row.keeper) : h("span", { class: "soft" }, "–")) },
  ], { caption: "Limits", keyOf: (row) => row.name });
}

function drawPaused(place, name, keys, changed) {
  const text = keys.join("\0");
  if (place.drawn === text) return;
  place.drawn = text;
  const field = h("input", { "aria-label": "Key to pause", placeholder: "A key, such as customer:7", spellcheck: "false", autocomplete: "off" });
  const pause = action("Pause key", async () => {
    const key = field.value;
    if (!key) { field.focus(); return null; }
    const said = await change(path("queues", name, "pause"), { keys: [key] }, `Key ${key} is paused`, `Key ${key} was already paused`);
    field.value = "";
    changed();
    return said;
  });
  const form = h("form", { class: "more", onsubmit: (event) => { event.preventDefault(); pause.click(); } }, field, pause);
  pause.type = "button";
  if (!keys.length) {
    show(place, empty("No key is paused", "Messages of a paused key wait, and so do those behind them on any key; others continue."), form);
    return;
  }
  const table = new Table([
    { name: "key", label: "Key", head: true, class: "mono", text: (row) => row },
    {
      name: "do", label: "", class: "end",
      fill: (row) => action("Resume", async () => {
        const said = await change(path("queues", name, "resume"), { keys: [row] }, `Key ${row} is resumed`, `Key ${row} was not paused`);
        changed();
        return said;
      }, { small: true, label: `Resume key ${row}` }),
    },
  ], { caption: "Paused keys", keyOf: (row) => row });
  table.update(keys.slice(0, 200));
  show(place, table.wrapped, form);
}
