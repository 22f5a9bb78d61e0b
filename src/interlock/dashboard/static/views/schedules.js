// The timetable: scheduled calls, with their times.

import { get } from "../api.js";
import { h, show } from "../dom.js";
import { ago, empty, head, messageLink, queueLink, refusal } from "../parts/basics.js";
import { Table } from "../parts/table.js";

export function schedules({ signal }) {
  const place = h("div", { class: "panel" }, h("div", { class: "note" }, "Looking …"));
  const table = new Table([
    { name: "name", label: "Name", head: true, sort: (row) => row.name, text: (row) => row.name },
    { name: "when", label: "When", class: "mono", text: (row) => row.schedule ?? "–" },
    { name: "task", label: "Task", class: "mono", text: (row) => row.task ?? "–" },
    { name: "missed", label: "Missed ticks", text: (row) => row.missed ?? "–" },
    { name: "from", label: "From", text: (row) => (row.stored ? "stored" : "declared") },
    { name: "queue", label: "Queue", fill: (row) => (row.queue ? queueLink(row.queue, { "data-open": true }) : null) },
    { name: "last", label: "Last", sort: (row) => row.last ?? 0, stamp: (row) => row.last, fill: (row) => ago(row.last) },
    { name: "next", label: "Next", sort: (row) => row.next ?? 0, stamp: (row) => row.next, fill: (row) => ago(row.next) },
    {
      name: "timer", label: "Timer", stamp: (row) => row.timer?.id + row.timer?.state,
      fill: (row) => (row.timer ? h("span", {}, messageLink(row.timer.queue, row.timer.id), " ", row.timer.state.replace("_", " ")) : null),
    },
  ], { caption: "Schedules", keyOf: (row) => `${row.queue ?? ""}/${row.name}` });

  async function load() {
    try {
      const found = await get("/schedules", { signal });
      const rows = found.items;
      if (rows.length) {
        table.update(rows);
        if (!table.wrapped.isConnected) show(place, table.wrapped);
      } else {
        show(place, empty("No schedule", found.note ?? "No running worker has a timetable.",
          h("p", {}, "Give a task one: ", h("code", {}, '@app.cron("0 3 * * *")'), " or ", h("code", {}, '@app.every("15m")'), " above ", h("code", {}, "@app.task"), ".")));
      }
    } catch (error) {
      if (error.name !== "AbortError") show(place, refusal(error));
    }
  }
  const timer = setInterval(load, 10_000);
  signal.addEventListener("abort", () => clearInterval(timer));
  return { node: h("div", {}, head("Schedules"), place), title: "Schedules", ready: load() };
}
