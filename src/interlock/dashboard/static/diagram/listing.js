// The diagram as a table: the same rows in words, for screen readers and for those who prefer them.

import { h, setText } from "../dom.js";
import { count, lasting } from "../format.js";
import { messageLink } from "../parts/basics.js";
import { Table } from "../parts/table.js";

const MOST = 50;

export class Listing {
  constructor(chart) {
    this.chart = chart;
    this.element = h("div");
  }

  update() {
    const { chart } = this;
    // Nothing is drawn while the table is shown instead.
    if (chart.place.hidden) chart.resort();
    setText(chart.words, chart.sentence());
    if (this.by !== chart.by) {
      this.by = chart.by;
      this.table = new Table(chart.by === "key" ? this.keys() : this.workers(), { caption: chart.by === "key" ? "Keys: who holds them and what waits" : "Workers and what they hold", keyOf: (row) => row.name });
      this.element.replaceChildren(this.table.wrapped);
    }
    this.table.update(chart.rows.slice(0, MOST));
  }

  keys() {
    const holder = (row) => [...row.here.values()].find((one) => one.span);
    return [
      { name: "key", label: "Key", head: true, class: "mono", text: (row) => row.name },
      {
        name: "held", label: "Held by", stamp: (row) => `${holder(row)?.id} ${holder(row)?.state}`,
        fill: (row) => {
          const found = holder(row);
          return found ? h("span", {}, messageLink(this.chart.queue, found.id), ` ${found.state.replace("_", " ")}${found.worker && found.state === "leased" ? ` by ${found.worker}` : ""}`) : h("span", { class: "soft" }, "nobody");
        },
      },
      { name: "for", label: "For", number: true, text: (row) => { const found = holder(row); return found ? `${found.unsure}${lasting(Math.max(0, this.chart.now - found.since))}` : "–"; } },
      { name: "waiting", label: "Waiting", number: true, text: (row) => count(row.depthNow) },
      {
        name: "next", label: "Next in line", stamp: (row) => row.line(1)[0]?.id,
        fill: (row) => { const next = row.line(1)[0]; return next ? messageLink(this.chart.queue, next.id) : h("span", { class: "soft" }, "–"); },
      },
    ];
  }

  workers() {
    const first = (row) => [...row.open.values()].slice(0, 5);
    return [
      { name: "worker", label: "Worker", head: true, class: "mono", text: (row) => row.name },
      { name: "holds", label: "Holds", number: true, text: (row) => count(row.open.size) },
      {
        name: "messages", label: "Messages", stamp: (row) => first(row).map((one) => one.id).join(),
        fill: (row) => h("span", { class: "actions" }, first(row).map((one) => messageLink(this.chart.queue, one.id))),
      },
    ];
  }
}
