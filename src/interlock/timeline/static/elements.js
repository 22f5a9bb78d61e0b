// Elements made from data. Text is only ever set as text, so that no id, key or payload is markup.

import { visible } from "./text.js";

/** An element with properties, attributes (`aria-…`, `data-…`, …), listeners (`onclick`) and children. */
export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** Attributes that people read. */
const READ = /^(title|placeholder|alt|aria-|data-label$)/;

/** Gives an element its properties and children. */
export function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
    else element.setAttribute(name, value === true ? "" : READ.test(name) ? visible(value) : String(value));
  }
  append(element, children);
  return element;
}

/** Appends nodes and texts; skips null and false; flattens lists. */
export function append(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child instanceof Node ? child : visible(child));
  }
}

/** Replaces all children. */
export function show(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Sets a text only if it changed, which avoids a needless layout. */
export function setText(element, text) {
  const value = visible(text);
  const only = element.firstChild;
  if (only && only === element.lastChild && only.nodeType === Node.TEXT_NODE) {
    if (only.data !== value) only.data = value;
  } else if (only || value) {
    element.replaceChildren(value);
  }
}
