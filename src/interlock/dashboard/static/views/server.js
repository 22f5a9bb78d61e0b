// The engine behind the pages, and this login's rights.

import { facts, forbidden, get } from "../api.js";
import { h, show } from "../dom.js";
import { ago, empty, head, pairs, panel, queueLink, refusal } from "../parts/basics.js";
import { Table } from "../parts/table.js";
import { told } from "./lists.js";

const SHOWN = new Set(["url", "kind", "version", "user", "write", "rights", "csrf", "login", "sources", "refused"]);

export function server({ signal }) {
  const place = h("div");
  const changes = h("div", {}, h("div", { class: "note" }, "Looking …"));
  const table = new Table([
    { name: "time", label: "When", stamp: (row) => row.time, fill: (row) => ago(row.time) },
    { name: "who", label: "Who", text: (row) => row.who }, { name: "from", label: "From", class: "mono", text: (row) => row.from },
    { name: "action", label: "Action", text: (row) => row.action },
    { name: "queue", label: "Queue", fill: (row) => queueLink(row.queue) },
    { name: "what", label: "What", class: "text mono", text: (row) => row.what || "the queue" },
    { name: "result", label: "Result", class: "text", text: (row) => row.result },
  ], { caption: "Recent changes", keyOf: (row) => row.key });

  async function loadChanges() {
    try {
      const { items } = await get("/changes", { signal });
      // The same change may be made twice in a millisecond: its index among equal ones is part of
      // its key.
      const seen = new Map();
      for (const row of [...items].reverse()) {
        const key = JSON.stringify([row.time, row.action, row.queue, row.what]);
        seen.set(key, (seen.get(key) ?? 0) + 1);
        row.key = `${key} ${seen.get(key)}`;
      }
      table.update(items);
      show(changes, items.length ? table.wrapped : empty("No change yet", "Changes by this dashboard since it started are listed here. The log interlock.audit has all of them."));
    } catch (error) {
      if (error.name !== "AbortError") show(changes, refusal(error));
    }
  }

  async function load() {
    loadChanges();
    try {
      const found = await get("/server", { signal });
      Object.assign(facts, found);
      const more = Object.entries(found).filter(([name]) => !SHOWN.has(name));
      show(place, h("div", { class: "columns" },
        panel("Engine", h("div", { class: "body" }, pairs([
          ["Address", h("code", {}, found.url)], ["Kind", found.kind], ["Version", found.version],
          ...more.filter(([, value]) => value === null || typeof value !== "object").map(([name, value]) => [name.replaceAll("_", " "), told(name, value)]),
        ]))),
        panel("This login", h("div", { class: "body" }, pairs([
          ["User", found.user ?? "no login is required"], ["May", found.rights.join(", ")],
          ["Changes", changesText(found)],
        ]))),
        more.filter(([, value]) => value && typeof value === "object").map(([name, value]) => panel(name.replaceAll("_", " "),
          h("div", { class: "body" }, pairs(Object.entries(value).map(([one, of]) => [one.replaceAll("_", " "), told(one, of)])))))));
    } catch (error) {
      if (error.name !== "AbortError") show(place, refusal(error));
    }
  }
  const timer = setInterval(load, 5_000);
  signal.addEventListener("abort", () => clearInterval(timer));
  return { node: h("div", {}, head("Server"), place, panel("Recent changes", changes)), title: "Server", ready: load() };
}

/** Whether this login may change anything, and the reason if not. */
function changesText(found) {
  const why = forbidden();
  if (why) return `not allowed: ${why}`;
  const refused = Object.keys(found.refused ?? {});
  if (!refused.length) return "allowed";
  return `allowed, but for ${refused.length === 1 ? "the queue" : "these queues"} ${refused.slice(0, 20).join(", ")}${refused.length > 20 ? ` and ${refused.length - 20} more` : ""}`;
}
