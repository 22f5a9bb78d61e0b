// Elements made from data. Text is only ever set as text, so that no id, key or payload is markup.

/**
 * Text from outside as the page shows it: what cannot be seen, or reorders or erases what stands beside it, is escaped
 * as Python does, `\u202e`. All text goes through here on its way into the page; tabs and line ends stay.
 */
export function visible(text) {
  return String(text).replace(/[^\P{C}\n\t]|[\p{Zl}\p{Zp}]/gu, (letter) => {
    const code = letter.codePointAt(0);
    const [mark, digits] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
    return `\\${mark}${code.toString(16).padStart(digits, "0")}`;
  });
}

const SVG = "http://www.w3.org/2000/svg";

/** An element with properties, attributes (`aria-…`, `data-…`, …), listeners (`onclick`) and children. */
export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** The same of a drawing. */
export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

/** Attributes that people read. */
const READ = /^(title|placeholder|alt|aria-|data-label$)/;

function fill(element, properties, children) {
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

/** Brings the children of `parent` in line with `items`: kept by key, made once, moved, removed. */
export function reconcile(parent, items, keyOf, create, update) {
  const known = new Map();
  for (const child of parent.children) known.set(child.itemKey, child);
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let child = known.get(key);
    if (child) known.delete(key);
    else {
      child = create(item);
      child.itemKey = key;
    }
    update?.(child, item);
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
  }
  for (const child of known.values()) child.remove();
}

/** The page's polite live region, for screen readers. */
export function say(text) {
  const voice = document.getElementById("said");
  voice.textContent = "";
  // Announced in a later task: a screen reader does not read the same text twice.
  setTimeout(() => { voice.textContent = visible(text); }, 30);
}
