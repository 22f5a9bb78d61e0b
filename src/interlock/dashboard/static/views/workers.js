// Workers of all machines: each one's messages, start, stacks and end.

import { get, path, post } from "../api.js";
import { h, reconcile, setText, show } from "../dom.js";
import { coarse, count, counted } from "../format.js";
import { action } from "../parts/action.js";
import { badge, empty, head, keyChips, messageLink, pairs, queueLink, refusal, since } from "../parts/basics.js";
import { told } from "../parts/dialog.js";
import { Table } from "../parts/table.js";

const PATIENCE = 15_000;
const MOST = 200;

export function workers({ live, query, note, signal }) {
  const search = h("input", {
    type: "search", placeholder: "Find a host, app, queue or task", "aria-label": "Find a worker", "data-search": true, value: query.get("q") ?? "",
    spellcheck: "false", autocomplete: "off", oninput: () => { note({ q: search.value }); draw(); },
  });
  const summary = h("p", { class: "soft" });
  const place = h("div", { class: "workers" });
  const nothing = h("div");
  let all = null;

  function draw() {
    if (!all) return;
    const wanted = search.value.trim().toLowerCase();
    const found = wanted ? all.filter((one) => textOf(one).includes(wanted)) : all;
    const busy = all.reduce((sum, one) => sum + (one.running?.length ?? 0), 0);
    const hosts = new Set(all.map((one) => one.host)).size;
    setText(summary, `${counted(all.length, "worker")} on ${counted(hosts, "machine")}, ${counted(busy, "message")} being handled${found.length > MOST ? `; the first ${MOST} of ${count(found.length)} are shown` : ""}`);
    reconcile(place, found.slice(0, MOST), (one) => `${one.queue}\0${one.id}`, card, (element, one) => element.update(one));
    if (found.length) nothing.replaceChildren();
    else {
      show(nothing, h("div", { class: "panel" }, wanted ? empty(`No worker fits “${wanted}”`)
        : empty("No worker has announced itself", "A worker is listed here while it runs.", h("p", {}, "Start one: ", h("code", {}, "interlock worker module:app --url …")))));
    }
  }

  async function load() {
    try {
      take(await get("/workers", { signal }));
    } catch (error) {
      if (error.name !== "AbortError" && !all) show(nothing, refusal(error));
    }
  }

  function take(found) {
    all = [...found].sort((a, b) => (a.id < b.id ? -1 : 1));
    draw();
  }

  live.addEventListener("workers", ({ detail }) => take(Array.isArray(detail) ? detail : detail.workers), { signal });
  const ticking = setInterval(() => { if (!document.hidden) draw(); }, 1000);
  signal.addEventListener("abort", () => clearInterval(ticking));
  const node = h("div", {}, head("Workers", { actions: [search] }), summary, place, nothing);
  return { node, title: "Workers", wants: { workers: true }, ready: load() };

  /** One worker; it stays the same element while its data changes. */
  function card(first) {
    const state = h("span");
    const facts = h("div", { class: "worker-facts" });
    const running = new Table([
      { name: "task", label: "Task", head: true, class: "mono", text: (row) => row.task || "–" },
      { name: "id", label: "Message", fill: (row) => messageLink(row.queue, row.id, { "data-open": true }) },
      { name: "queue", label: "Queue", fill: (row) => queueLink(row.queue) },
      { name: "keys", label: "Keys", fill: (row) => keyChips(row.queue, row.keys ?? [], [], 3) },
      { name: "attempt", label: "Attempt", number: true, text: (row) => row.attempt },
      { name: "for", label: "For", number: true, text: (row) => coarse(Math.max(0, live.now() - row.began)), state: (row) => (live.now() - row.began > 60 ? "warning" : "") },
    ], { caption: `Messages being handled by ${first.id}`, keyOf: (row) => `${row.queue}/${row.id}` });
    const idle = h("p", { class: "note" }, "No message is being handled.");
    const busy = h("div", { class: "busy", "aria-hidden": "true" }, h("i"));
    const buttons = h("span", { class: "actions" },
      action("Stacks", () => stacks(first), { small: true, label: `Stacks of ${first.id}`, guarded: false }),
      action("Drain", () => drain(first), { small: true, label: `Drain ${first.id}`, question: { title: "Drain this worker?", text: `${first.id} takes no more messages, finishes what it has, and ends.`, action: "Drain" } }));
    const element = h("section", { class: "panel worker", "aria-label": `Worker ${first.id}` },
      h("header", {}, h("h2", { class: "mono" }, first.id), state, busy, buttons), facts, running.wrapped, idle);
    let seen = null;
    element.update = (one) => {
      if (one !== seen) {
        seen = one;
        const at = live.now();
        element.rows = (one.running ?? []).map((row) => ({ ...row, queue: row.queue ?? one.queue, began: at - row.seconds }));
        show(state, badge(one.state ?? "running"));
        show(facts, pairs([
          ["App", one.app], ["Takes from", h("span", { class: "actions" }, (one.queues ?? [one.queue]).slice(0, 8).map((name) => queueLink(name)))],
          ["Concurrency", one.concurrency ? `${count(one.running?.length ?? 0)} of ${one.concurrency} busy${one.pool ? `, ${one.pool}` : ""}` : null],
          ["Handled", one.handled === undefined ? null : `${count(one.handled)}${one.failed ? `, ${count(one.failed)} failed` : ""}${one.lost ? `, ${count(one.lost)} leases lost` : ""}`],
          ["Since", sinceOf(one, at)], ["Version", one.version],
          ["Schedules", one.schedules?.length ? one.schedules.join(", ") : null],
          ["Relay", one.relay || null],
        ]));
        busy.firstChild.style.width = one.concurrency ? `${Math.min(100, (100 * (one.running?.length ?? 0)) / one.concurrency)}%` : "0";
      }
      running.update(element.rows);
      running.wrapped.hidden = !element.rows.length;
      idle.hidden = element.rows.length > 0;
    };
    return element;
  }

  async function asked(worker, what) {
    const { number } = await post(path("workers", worker.queue, worker.id, what), {}, { signal });
    if (number === null || number === undefined) throw new Error("it no longer announces itself");
    const until = performance.now() + PATIENCE;
    while (performance.now() < until) {
      const { answer } = await get(path("workers", worker.queue, worker.id, "answers", String(number)), { signal });
      if (answer !== null && answer !== undefined) return answer;
      await new Promise((resolve) => { setTimeout(resolve, 400); });
    }
    throw new Error(`no answer within ${PATIENCE / 1000} s: its handlers may hold the interpreter`);
  }

  async function stacks(worker) {
    const { stacks: found = [] } = await asked(worker, "stacks");
    told(`Stacks of ${worker.id}`, found.length
      ? h("div", { class: "stack" }, found.map((one) => (typeof one === "string"
        ? h("pre", { tabindex: "0", "aria-label": "Stack" }, one)
        : h("section", {}, h("h3", {}, one.thread ?? one.name ?? "thread"), one.task ? h("p", { class: "soft" }, one.task) : null, h("pre", { tabindex: "0", "aria-label": `Stack of ${one.thread ?? one.name}` }, one.stack ?? one.text ?? JSON.stringify(one, null, 2))))))
      : h("p", {}, "It returned no stack."));
    return null;
  }

  async function drain(worker) {
    await post(path("workers", worker.queue, worker.id, "drain"), {}, { signal });
    load();
    return `${worker.id} was asked to drain`;
  }
}

/** A worker's start, by the engine's clock: its own may differ. */
const sinceOf = (one, now) => (one.seconds === undefined ? null : since(now - one.age - one.seconds));
const textOf = (one) => [one.id, one.host, one.app, one.queue, ...(one.queues ?? []), ...(one.running ?? []).map((row) => row.task)].join(" ").toLowerCase();
