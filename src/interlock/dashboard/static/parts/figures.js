// The large figures over a view: counts by state, rates, the age of the oldest.

import { h, setText } from "../dom.js";
import { coarse, count, rate } from "../format.js";

const SHOWN = [
  ["queues", "Queues", count], ["ready", "Ready", count], ["limited", "At a limit", count], ["waiting", "Waiting", count], ["leased", "Leased", count],
  ["delayed", "Delayed", count], ["backing_off", "Backing off", count], ["held", "Held", count], ["parked", "Parked", count], ["groups", "Groups", count], ["dead", "Dead", count],
  ["put", "Put/s", rate], ["done", "Acked/s", rate], ["oldest_ready", "Oldest ready", (value) => (value ? coarse(value) : "–")],
  ["oldest_waiting", "Oldest waiting", (value) => (value ? coarse(value) : "–")],
];
const ALARMS = new Set(["held", "dead"]);

/** A row of figures; `update` takes the values by name, and shows the given ones. */
export function figures() {
  const cells = new Map();
  const element = h("dl", { class: "figures" });
  return {
    element,
    update(values) {
      for (const [name, label, format] of SHOWN) {
        if (values[name] === undefined) continue;
        let cell = cells.get(name);
        if (!cell) {
          const dd = h("dd", { class: "figure" });
          const dot = ["put", "done", "oldest_ready", "oldest_waiting", "queues", "limited", "groups"].includes(name) ? null : h("i", { class: "dot", "aria-hidden": "true" });
          const box = h("div", {}, dd, h("dt", { "data-state": name }, dot, label));
          // In the order of SHOWN, whenever a figure arrives.
          const next = SHOWN.slice(SHOWN.findIndex((one) => one[0] === name) + 1).map((one) => cells.get(one[0])?.box).find(Boolean);
          element.insertBefore(box, next ?? null);
          cell = { box, dd };
          cells.set(name, cell);
        }
        setText(cell.dd, format(values[name]));
        cell.box.className = !values[name] ? "none" : ALARMS.has(name) ? "alarm" : "";
      }
    },
  };
}
