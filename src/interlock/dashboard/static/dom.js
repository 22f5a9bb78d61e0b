// Elements of the pages: those of the timeline, drawings and lists.

import { append, fill, h, setText, show } from "./timeline/elements.js";
import { visible } from "./timeline/text.js";

export { append, h, setText, show, visible };

const SVG = "http://www.w3.org/2000/svg";

/** An element of a drawing, as `h` makes those of a page. */
export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
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
