// A list that is fetched in pages and holds a bounded number of rows.

import { h, show } from "../dom.js";
import { counted } from "../format.js";
import { button, empty, refusal } from "./basics.js";

export const MOST_ROWS = 1000;

/** Pages of rows in a table. `load(cursor)` returns {items, cursor, scanned}. */
export class Pages {
  constructor(table, load, { none, signal }) {
    this.table = table;
    this.load = load;
    this.none = none;
    this.signal = signal;
    this.more = h("div", { class: "more" });
    this.element = h("div", {}, table.wrapped, this.more);
    this.turn = 0;
  }

  /** Starts over; late results of an older turn are not shown. */
  async start() {
    const turn = ++this.turn;
    this.rows = [];
    this.scanned = 0;
    this.cursor = null;
    show(this.more, h("span", {}, "Looking …"));
    await this.next(turn);
  }

  async next(turn = this.turn) {
    let answer;
    try {
      answer = await this.load(this.cursor);
    } catch (error) {
      if (turn !== this.turn || error.name === "AbortError") return;
      show(this.element, refusal(error), button("Try again", () => { show(this.element, this.table.wrapped, this.more); this.start(); }));
      return;
    }
    if (turn !== this.turn || this.signal.aborted) return;
    this.cursor = answer.cursor ?? null;
    this.scanned += answer.scanned ?? answer.items.length;
    const known = new Set(this.rows.map(this.table.keyOf));
    this.rows = [...this.rows, ...answer.items.filter((row) => !known.has(this.table.keyOf(row)))].slice(0, MOST_ROWS);
    this.draw();
  }

  /** Removes a row, after its message was settled. */
  drop(key) {
    this.rows = this.rows.filter((row) => this.table.keyOf(row) !== key);
    this.draw();
  }

  draw() {
    this.table.update(this.rows);
    this.table.wrapped.hidden = this.rows.length === 0;
    const full = this.rows.length >= MOST_ROWS;
    const told = `${counted(this.rows.length, "message")} shown${this.scanned > this.rows.length ? `, ${counted(this.scanned, "message")} looked at` : ""}`;
    const parts = [];
    if (!this.rows.length && this.cursor === null) parts.push(this.none());
    else {
      parts.push(h("span", {}, told));
      if (full) parts.push(h("span", {}, "Narrow the filters to see others."));
      else if (this.cursor !== null) parts.push(button(this.rows.length ? "Show more" : "Search further", () => this.next(), { small: true }));
      else parts.push(h("span", {}, "That is all."));
    }
    show(this.more, parts);
    this.ondraw?.(this.rows);
  }
}

export { empty };
