// A table whose rows stay the same elements while their figures change.

import { append, h, reconcile, setText } from "../dom.js";

/**
 * Columns are {name, label, number, sort(row), text(row) or fill(cell, row), head, state(row), hide}.
 * `text` sets a cell's text; `fill` puts what it likes into a cell, and is called again only where
 * `stamp(row)` has changed; `each(row, cell)` is called every time. `head` makes the cell the head of its row, `state` gives it a class.
 */
export class Table {
  constructor(columns, { caption, keyOf, sorted = null, onsort = null, rowState = null, link = null }) {
    this.columns = columns;
    this.keyOf = keyOf;
    this.sorted = sorted;
    this.onsort = onsort;
    this.rowState = rowState;
    this.link = link;
    this.heads = columns.map((column) => this.headCell(column));
    this.body = h("tbody", { role: "rowgroup" });
    this.element = h("table", { class: "cards", role: "table" },
      h("caption", { class: "unseen" }, caption),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, this.heads)), this.body);
    this.wrapped = h("div", { class: "scroll" }, this.element);
    this.markSorted();
  }

  headCell(column) {
    const properties = { scope: "col", role: "columnheader", class: classOf(column) };
    if (!column.sort) return h("th", properties, column.label ? column.label : h("span", { class: "unseen" }, column.unseen ?? "Actions"));
    return h("th", properties, h("button", { type: "button", onclick: () => this.sortBy(column) }, column.label));
  }

  /** Sorts by a column; a second call reverses. Figures begin with the largest. */
  sortBy(column) {
    const same = this.sorted?.name === column.name;
    const down = same ? !this.sorted.down : Boolean(column.number);
    this.sorted = { name: column.name, down };
    this.markSorted();
    this.onsort?.(this.sorted);
    if (this.rows) this.update(this.rows);
  }

  markSorted() {
    this.columns.forEach((column, at) => {
      if (this.sorted?.name === column.name) this.heads[at].setAttribute("aria-sort", this.sorted.down ? "descending" : "ascending");
      else this.heads[at].removeAttribute("aria-sort");
    });
  }

  /** Shows these rows. */
  update(rows) {
    this.rows = rows;
    reconcile(this.body, this.inOrder(rows), this.keyOf, (row) => this.newRow(row), (element, row) => this.fillRow(element, row));
  }

  inOrder(rows) {
    const column = this.columns.find((one) => one.name === this.sorted?.name && one.sort);
    if (!column) return rows;
    const way = this.sorted.down ? -1 : 1;
    const valued = rows.map((row) => [column.sort(row), row]);
    valued.sort(([a, one], [b, other]) => way * compared(a, b) || compared(this.keyOf(one), this.keyOf(other)));
    return valued.map(([, row]) => row);
  }

  newRow() {
    const cells = this.columns.map((column) => (column.head
      ? h("th", { scope: "row", role: "rowheader", class: classOf(column) })
      : h("td", { role: "cell", class: classOf(column), "data-label": column.label || null })));
    const row = h("tr", { role: "row", "data-row": true }, cells);
    row.cellsOf = cells;
    row.stamps = [];
    return row;
  }

  fillRow(element, row) {
    this.columns.forEach((column, at) => {
      const cell = element.cellsOf[at];
      if (column.fill) {
        const stamp = column.stamp ? column.stamp(row) : "";
        if (element.stamps[at] !== stamp) {
          element.stamps[at] = stamp;
          cell.replaceChildren();
          const made = column.fill(row, cell);
          if (made) append(cell, [made]);
        }
      } else setText(cell, column.text(row));
      column.each?.(row, cell);
      if (column.state) {
        const name = `${classOf(column)} ${column.state(row) ?? ""}`.trim();
        if (cell.className !== name) cell.className = name;
      }
    });
    if (this.rowState) element.className = this.rowState(row) ?? "";
  }
}

const classOf = (column) => [column.number ? "number" : "", column.class ?? ""].join(" ").trim();

function compared(a, b) {
  if (typeof a === "string" || typeof b === "string") {
    const [one, other] = [String(a), String(b)];
    return one < other ? -1 : one > other ? 1 : 0;
  }
  return (a ?? -Infinity) - (b ?? -Infinity) || 0;
}
