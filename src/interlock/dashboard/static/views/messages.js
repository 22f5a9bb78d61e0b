// The unsettled messages of a queue, by filters.

import { get, path } from "../api.js";
import { h } from "../dom.js";
import { bytes, count, words, STATES } from "../format.js";
import { ago, badge, empty, keyChips, messageLink, parkedBehind } from "../parts/basics.js";
import { filters } from "../parts/filters.js";
import { Pages } from "../parts/list.js";
import { queueHead } from "../parts/queuehead.js";
import { Table } from "../parts/table.js";

export function messages(context) {
  const { params: { queue }, query, note, signal } = context;
  const top = queueHead(context);
  const table = new Table(messageColumns(queue), { caption: `Messages of ${queue}`, keyOf: (row) => row.id });
  const chosen = filters([
    ["state", "State", [["", "any"], ...STATES.filter((state) => state !== "dead").map((state) => [state, words(state)])]],
    ["key", "Key", null], ["task", "Task", null], ["error", "Error contains", null],
  ], query, note, () => list.start());
  const list = new Pages(table, (cursor) => get(path("queues", queue, "messages"), { query: { ...chosen.values(), cursor, limit: 50 }, signal }), {
    signal,
    none: () => (Object.values(chosen.values()).some(Boolean)
      ? empty("No message fits these filters", "Clear one of them. Settled messages are deleted; dead letters are under Held and dead.")
      : empty("No unsettled message", "All messages are settled.")),
  });
  return { node: h("div", {}, top.node, chosen.element, h("div", { class: "panel" }, list.element)), title: `Messages · ${queue}`, ready: ready(list, queue, top, context) };
}

/** Loads the list, and whether the queue exists and is paused. */
export async function ready(list, queue, top, { signal, lost }) {
  get(path("queues", queue), { signal }).then((found) => top.update({ paused: found.queue_paused ?? found.paused.includes(""), sealed: Boolean(found.stats.sealed) }), (error) => { if (error.status === 404) lost(error.message); });
  await list.start();
}

/** Columns of any list of messages. */
export function messageColumns(queue, { error = true } = {}) {
  return [
    { name: "id", label: "Message", head: true, fill: (row) => messageLink(queue, row.id, { "data-open": true }) },
    { name: "state", label: "State", stamp: (row) => row.state, fill: (row) => badge(row.state) },
    { name: "task", label: "Task", class: "mono text", text: (row) => row.task ?? "–" },
    { name: "keys", label: "Keys", fill: (row) => keyChips(queue, row.keys, row.shared, 3) },
    { name: "parked", label: "Parked", class: "minor", stamp: (row) => JSON.stringify(row.parked), fill: (row) => parkedBehind(queue, row.parked) },
    { name: "attempt", label: "Attempt", number: true, text: (row) => count(row.attempt) },
    { name: "put", label: "Put", stamp: (row) => row.put, fill: (row) => ago(row.put) },
    { name: "due", label: "Due", class: "minor", stamp: (row) => row.due, fill: (row) => (row.due && row.state !== "dead" ? ago(row.due) : h("span", { class: "soft" }, "–")) },
    { name: "size", label: "Size", number: true, class: "minor", text: (row) => bytes(row.size) },
    error ? { name: "error", label: "Last error", class: "text", stamp: (row) => row.error, fill: (row) => (row.error ? h("span", { title: row.error }, row.error.split("\n")[0]) : null) } : null,
  ].filter(Boolean);
}
