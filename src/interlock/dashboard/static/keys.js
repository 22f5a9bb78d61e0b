// The keyboard. Moving between rows moves the focus itself, so Enter and screen readers follow.

import { h } from "./dom.js";
import { told } from "./parts/dialog.js";

const LIST = [
  ["/", "focus the search or the first filter of the view"],
  ["g q", "queues"], ["g w", "workers"], ["g t", "timetable"], ["g s", "server"],
  ["j k", "next and previous row"],
  ["Enter", "open the row"],
  ["u", "up: from a message to its queue, from a queue to all queues"],
  ["Esc", "close, leave a field, clear the selection"],
  [".", "stop or continue the live view"],
  ["t", "light, dark, or as the system"],
  ["?", "this list"],
];

/** `go` gets the part of a path behind "g"; `act` has a function for each other key. */
export function listen({ go, up, pause, theme }) {
  // When "g" was pressed. Not 0, which is the time at which the page was loaded.
  let prefix = -Infinity;
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (document.querySelector("dialog[open]")) return;
    const field = event.target.closest?.("input, select, textarea, [contenteditable]");
    if (event.key === "Escape") {
      if (field) field.blur();
      else document.activeElement?.blur?.();
      dispatchEvent(new CustomEvent("interlock:escape"));
      return;
    }
    if (field) return;
    const second = performance.now() - prefix < 1200;
    prefix = -Infinity;
    if (second && go(event.key)) return void event.preventDefault();
    const act = {
      "/": find, "j": () => walk(1), "k": () => walk(-1), "?": showKeys, "u": up, ".": pause, "t": theme,
      "g": () => { prefix = performance.now(); },
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}

export function showKeys() {
  told("Keyboard", h("dl", { class: "keys" }, LIST.map(([keys, text]) => [
    h("dt", {}, keys.split(" ").map((key) => [h("kbd", {}, key), " "])), h("dd", {}, text)])));
}

function find() {
  const field = document.querySelector("#main [data-search]") ?? document.querySelector("#main input");
  field?.focus();
  field?.select?.();
}

function walk(step) {
  const rows = [...document.querySelectorAll("#main [data-row]")].filter((row) => row.offsetParent !== null);
  if (!rows.length) return;
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const next = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + step))];
  const target = next.querySelector("[data-open]") ?? next.querySelector("a, button");
  target?.focus();
  next.scrollIntoView({ block: "nearest" });
}
