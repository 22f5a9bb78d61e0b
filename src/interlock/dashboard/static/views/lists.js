// Lists shown as the engine returns them: topics, tables, stores, sources.

import { get } from "../api.js";
import { h, show } from "../dom.js";
import { bytes, capital, count, words } from "../format.js";
import { empty, head, refusal } from "../parts/basics.js";
import { Table } from "../parts/table.js";

const NOTHING = {
  topics: ["No topic", "Only a hub has topics. A topic exists while it has a subscriber."],
  tables: ["No table", "Only a hub has tables. The tables declared in its configuration are listed here."],
  stores: ["No store", "Stores copy a table's rows to a database; the hub's configuration names them."],
  sources: ["No source", "Sources feed queues from brokers; the programs that run them announce themselves."],
};

export const lists = (what) => ({ signal }) => {
  const place = h("div", { class: "panel" }, h("div", { class: "note" }, "Looking …"));
  let table = null;
  let columns = "";
  async function load() {
    try {
      const found = await get(`/${what}`, { signal });
      const rows = found.items;
      if (!rows.length) {
        const [title, advice] = NOTHING[what];
        table = null;
        show(place, empty(title, found.note ?? advice));
        return;
      }
      const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
      if (!table || columns !== names.join()) {
        columns = names.join();
        table = new Table(names.map((name, at) => column(name, at)), { caption: capital(what), keyOf: (row) => String(row.name ?? row.id ?? JSON.stringify(row)) });
        show(place, table.wrapped);
      }
      table.update(rows);
    } catch (error) {
      if (error.name !== "AbortError") show(place, refusal(error));
    }
  }
  const timer = setInterval(load, 5_000);
  signal.addEventListener("abort", () => clearInterval(timer));
  return { node: h("div", {}, head(capital(what)), place), title: capital(what), ready: load() };
};

function column(name, at) {
  const number = (row) => typeof row[name] === "number";
  return {
    name, label: capital(words(name)), head: at === 0, sort: (row) => row[name],
    class: at ? "" : "mono", text: (row) => told(name, row[name]), state: (row) => (number(row) ? "number" : ""),
  };
}

export function told(name, value) {
  if (value === null || value === undefined || value === "") return "–";
  if (typeof value === "number") return /bytes|memory$/.test(name) ? bytes(value) : Number.isInteger(value) ? count(value) : String(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
