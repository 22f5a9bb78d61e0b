// The engine behind the pages, and what this login may do.

import { facts, get } from "../api.js";
import { h, show } from "../dom.js";
import { head, pairs, panel, refusal } from "../parts/basics.js";
import { told } from "./lists.js";

const SHOWN = new Set(["url", "kind", "version", "user", "write", "rights", "csrf", "login", "sources"]);

export function server({ signal }) {
  const place = h("div");
  async function load() {
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
          ["User", found.user ?? "nobody has to log in"], ["May", found.rights.join(", ")],
          ["Changes", found.write ? "allowed" : "not allowed: start the dashboard with --write"],
        ]))),
        more.filter(([, value]) => value && typeof value === "object").map(([name, value]) => panel(name.replaceAll("_", " "),
          h("div", { class: "body" }, pairs(Object.entries(value).map(([one, of]) => [one.replaceAll("_", " "), told(one, of)])))))));
    } catch (error) {
      if (error.name !== "AbortError") show(place, refusal(error));
    }
  }
  const timer = setInterval(load, 5_000);
  signal.addEventListener("abort", () => clearInterval(timer));
  return { node: h("div", {}, head("Server"), place), title: "Server", ready: load() };
}
