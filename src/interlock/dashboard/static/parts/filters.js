// Filters of a list, kept in the address.

import { h } from "../dom.js";

/**
 * Fields are [name, label, options or null]; an option is [value, text]. `changed` is called with the
 * values, at once for a choice and after a short rest for a text.
 */
export function filters(fields, query, note, changed) {
  const inputs = new Map();
  let timer = 0;
  const values = () => Object.fromEntries([...inputs].map(([name, input]) => [name, input.value.trim()]));
  const tell = () => { clearTimeout(timer); note(values()); changed(values()); };
  for (const [name, label, options] of fields) {
    const value = query.get(name) ?? "";
    const input = options
      ? h("select", { name, onchange: tell }, options.map(([one, text]) => h("option", { value: one }, text)))
      : h("input", { name, type: "search", spellcheck: "false", autocomplete: "off", "data-search": inputs.size === 0 || null, oninput: () => { clearTimeout(timer); timer = setTimeout(tell, 300); } });
    input.value = value;
    inputs.set(name, input);
    input.labelText = label;
  }
  const element = h("form", { class: "filters", role: "search", onsubmit: (event) => { event.preventDefault(); tell(); } },
    [...inputs.values()].map((input) => h("label", {}, input.labelText, input)));
  return { element, values };
}
