// All queues: their state, at a glance and one by one.

import { get } from "../api.js";
import { h, setText, show } from "../dom.js";
import { coarse, count, rate, STATES } from "../format.js";
import { empty, flag, head, queueLink, refusal } from "../parts/basics.js";
import { figures } from "../parts/figures.js";
import { spark } from "../parts/spark.js";
import { stallBanner } from "../parts/stall.js";
import { Table } from "../parts/table.js";

const MOST = 500;
const SLOW = 60;

export function queues({ live, query, note, signal }) {
  const marks = new Map();
  const sort = { name: query.get("sort") ?? "queue", down: query.get("down") === "1" };
  const search = h("input", {
    type: "search", placeholder: "Find a queue", "aria-label": "Find a queue", "data-search": true,
    value: query.get("q") ?? "", autocomplete: "off", spellcheck: "false", oninput: () => { note({ q: search.value }); draw(); },
  });
  const totals = figures();
  const attention = h("div", { class: "attention", "aria-label": "Needs attention", role: "region" });
  const stalled = stallBanner();
  const told = h("div", { class: "more", hidden: true });
  const place = h("div", { class: "panel" });
  const nothing = h("div");
  const table = new Table(columns(live, marks), {
    caption: "Queues", keyOf: (row) => row.name, sorted: sort,
    onsort: ({ name, down }) => note({ sort: name, down: down ? "1" : "" }),
  });
  place.append(table.wrapped, told, nothing);
  const node = h("div", {}, head("Queues", { actions: [h("span", { class: "grow" }, search)] }), stalled.element, totals.element, attention, place);

  function draw() {
    const all = [...live.queues.values()];
    const wanted = search.value.trim().toLowerCase();
    const rows = wanted ? all.filter((row) => row.name.toLowerCase().includes(wanted)) : all;
    const shown = rows.length > MOST ? table.inOrder(rows).slice(0, MOST) : rows;
    totals.update(summed(all, live.now()));
    stalled.update([...marks].map(([name, mark]) => [name, mark.stall]));
    drawAttention(attention, all, marks, live.now());
    table.update(shown);
    table.wrapped.hidden = !rows.length;
    told.hidden = rows.length <= MOST;
    setText(told, `The first ${count(MOST)} of ${count(rows.length)} queues in this order; find others by their names.`);
    if (rows.length) nothing.replaceChildren();
    else if (!nothing.firstChild || nothing.dataset.wanted !== wanted) show(nothing, none(all.length, wanted));
    nothing.dataset.wanted = wanted;
  }

  async function load() {
    try {
      const found = await get("/queues", { signal });
      for (const { name, stats, paused, sealed, stall } of found) {
        live.note(name, stats);
        marks.set(name, { paused, sealed, stall });
      }
      const names = new Set(found.map((one) => one.name));
      live.only(names);
      for (const name of marks.keys()) if (!names.has(name)) marks.delete(name);
      draw();
    } catch (error) {
      if (error.name !== "AbortError" && !live.queues.size) show(nothing, refusal(error));
    }
  }

  const timer = setInterval(() => { if (!document.hidden) load(); }, 10_000);
  signal.addEventListener("abort", () => clearInterval(timer));
  live.addEventListener("stats", draw, { signal });
  if (live.queues.size) draw();
  return { node, title: "Queues", ready: load() };
}

function columns(live, marks) {
  const figure = (name, label, state, more = {}) => ({
    name, label, number: true, sort: (row) => row.stats[name] ?? 0, text: (row) => count(row.stats[name]),
    state: (row) => (row.stats[name] ? state : "zero"), ...more,
  });
  return [
    {
      name: "queue", label: "Queue", head: true, sort: (row) => row.name,
      stamp: (row) => `${marks.get(row.name)?.paused}${row.stats.sealed}${row.stats.paused}${row.stats.full}`,
      fill: (row) => h("span", { class: "name" }, queueLink(row.name, { "data-open": true }), badges(row, marks.get(row.name))),
    },
    figure("ready", "Ready"), figure("waiting", "Waiting"), figure("leased", "Leased"),
    figure("delayed", "Delayed", "", { class: "minor" }), figure("backing_off", "Backing off", "", { class: "minor" }),
    figure("held", "Held", "alarm"), figure("dead", "Dead", "alarm"),
    { name: "put", label: "Put/s", number: true, sort: (row) => row.rates.recent("put"), text: (row) => rate(row.rates.recent("put")) },
    { name: "done", label: "Acked/s", number: true, sort: (row) => row.rates.recent("done"), text: (row) => rate(row.rates.recent("done")) },
    {
      name: "trend", label: "Last minute", class: "trend", stamp: () => "",
      fill: (row) => spark(`Acked a second in ${row.name} over the last minute`),
      each: (row, cell) => cell.firstChild.draw(row.rates.series("done")),
    },
    oldest("oldest_ready", "Oldest ready", live), oldest("oldest_waiting", "Oldest waiting", live),
  ];
}

const oldest = (name, label, live) => ({
  name, label, number: true, sort: (row) => age(row.stats, live.now(), name),
  text: (row) => (row.stats[name] ? coarse(age(row.stats, live.now(), name)) : "–"),
  state: (row) => (!row.stats[name] ? "zero" : age(row.stats, live.now(), name) > SLOW ? "warning" : ""),
});

const age = (stats, now, name = "oldest_ready") => (stats[name] ? Math.max(0, now - stats[name] / 1e6) : 0);

function badges(row, mark) {
  const found = [];
  if (mark?.paused) found.push(flag("paused", "warning", "The whole queue is paused: nothing is leased"));
  else if (row.stats.paused) found.push(flag(`${count(row.stats.paused)} paused`, "warning", "Keys that are paused"));
  if (row.stats.sealed) found.push(flag("sealed", "warning", "Puts are refused"));
  if (row.stats.full) found.push(flag("full", "warning", "The queue is full: puts wait, or fail"));
  return found;
}

function summed(all, now) {
  const sum = { queues: all.length, put: 0, done: 0, oldest_ready: 0, oldest_waiting: 0 };
  for (const { stats, rates } of all) {
    for (const name of STATES) sum[name] = (sum[name] ?? 0) + (stats[name] ?? 0);
    sum.put += rates.recent("put");
    sum.done += rates.recent("done");
    for (const name of ["oldest_ready", "oldest_waiting"]) sum[name] = Math.max(sum[name], age(stats, now, name));
  }
  return sum;
}

/** The queues that need attention, the worst first. */
function drawAttention(place, all, marks, now) {
  const found = [];
  for (const { name, stats } of all) {
    const why = [];
    const stall = marks.get(name)?.stall;
    if (stall) why.push(`stalled: ${stall.summary}`);
    if (stats.held) why.push(`${count(stats.held)} held`);
    if (stats.parked) why.push(`${count(stats.parked)} parked`);
    if (stats.dead) why.push(`${count(stats.dead)} dead`);
    if (age(stats, now) > SLOW) why.push("ready for over a minute");
    if (why.length) found.push({ name, why: why.join(", "), weight: (stall?.blocked ?? 0) * 100 + (stats.held ?? 0) * 10 + (stats.dead ?? 0) + (stats.parked ?? 0) });
  }
  found.sort((a, b) => b.weight - a.weight);
  const text = found.slice(0, 6).map((one) => `${one.name} ${one.why}`).join("|") + found.length;
  if (place.drawn === text) return;
  place.drawn = text;
  place.hidden = !found.length;
  show(place, h("strong", {}, "Needs attention"), found.slice(0, 6).map((one) =>
    h("span", { class: "attend" }, queueLink(one.name), " ", h("span", { class: "soft" }, one.why))),
  found.length > 6 ? h("span", { class: "soft" }, `and ${count(found.length - 6)} more`) : null);
}

const none = (some, wanted) => (some
  ? empty(`No queue's name contains “${wanted}”`, "Clear the search to see all of them.")
  : empty("No queue yet", "A queue exists from its first message on. Put one:",
    h("p", {}, h("code", {}, "interlock send app:task"), " or ", h("code", {}, "queue.put(…)"), "; this page shows it at once.")));
