// Small pieces that many views share.

import { base, page } from "../api.js";
import { h, setText, visible } from "../dom.js";
import { coarse, iso, shorten, words } from "../format.js";

/** A link within the dashboard. */
export const link = (href, properties, ...children) => h("a", { href, "data-link": true, ...properties }, ...children);

export const queueLink = (name, properties) => link(page("queues", name), { title: visible(name).length > NAME ? name : null, ...properties }, shorten(visible(name), NAME));
/** Characters of a queue's name in a list: a longer one would push the rest off the screen. */
const NAME = 40;
export const messageLink = (queue, id, properties = {}, ...children) =>
  link(page("queues", queue, "messages", id), { class: "mono", ...properties }, ...(children.length ? children : [id]));

export const badge = (state, text = words(state)) =>
  h("span", { class: "badge", "data-state": state }, h("i", { class: "dot", "aria-hidden": "true" }), text);

/** A highlighted mark: `kind` is alarm or warning, or empty. */
export const flag = (text, kind = "", title) => h("span", { class: `badge ${kind}`, title }, text);

/** A button. If `why` forbids it, it stays focusable, and shows the reason when pressed. */
export function button(text, onclick, { kind = "", small = false, title, label } = {}) {
  return h("button", { type: "button", class: `${kind} ${small ? "small" : ""}`.trim(), onclick, title, "aria-label": label }, text);
}

export function pairs(entries) {
  return h("dl", { class: "pairs" }, entries
    .filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/** A titled box; `id` names its heading for screen readers. */
export function panel(title, body, { actions = [], level = "h2" } = {}) {
  const id = `panel-${++panels}`;
  return h("section", { class: "panel", "aria-labelledby": id },
    h("header", {}, h(level, { id }, title), actions.length ? h("div", { class: "actions" }, actions) : null), body);
}
let panels = 0;

/** The text of an empty list: its meaning, and the next step. */
export const empty = (title, ...advice) =>
  h("div", { class: "empty" }, h("strong", {}, title), advice.filter(Boolean).map((text) => (text instanceof Node ? text : h("p", {}, text))));

export const refusal = (error) => h("div", { class: "refusal", role: "alert" }, refused(error));

/** A refusal and its reason, as one sentence. */
export function refused(error) {
  return error.status ? `Refused (${error.status}): ${error.message}` : `Not done: ${error.message}`;
}

/** A moment, shown as its age; the exact time is in its title. It updates by itself. */
export function ago(seconds) {
  if (!seconds) return h("span", { class: "soft" }, "–");
  const element = h("time", { "data-since": seconds, datetime: new Date(seconds * 1000).toISOString(), title: iso(seconds) });
  tell(element);
  return element;
}

/** The time since a start. */
export function since(seconds) {
  const element = ago(seconds);
  if (seconds) element.dataset.bare = "";
  if (seconds) tell(element);
  return element;
}

let now = () => Date.now() / 1000;

/** Sets the engine's clock, and updates all times on the page. */
export function runTimes(clock) {
  now = clock;
  setInterval(() => {
    if (document.hidden) return;
    for (const element of document.querySelectorAll("time[data-since]")) tell(element);
  }, 1000);
}

function tell(element) {
  const seconds = now() - Number(element.dataset.since);
  if ("bare" in element.dataset) setText(element, coarse(Math.max(0, seconds)));
  else setText(element, seconds >= 0 ? `${coarse(seconds)} ago` : `in ${coarse(-seconds)}`);
}

/** Keys as chips that link to their messages. */
export function keyChips(queue, keys, shared = [], most = 6) {
  const all = [...keys.map((key) => [key, false]), ...shared.map((key) => [key, true])];
  if (!all.length) return h("span", { class: "soft" }, "no key");
  const chips = all.slice(0, most).map(([key, isShared]) => link(
    `${page("queues", queue, "messages")}?${new URLSearchParams({ key })}`,
    { class: isShared ? "chip shared" : "chip", title: isShared ? `${key} (shared)` : key }, key));
  if (all.length > most) chips.push(h("span", { class: "soft" }, `and ${all.length - most} more`));
  return h("span", { class: "chips" }, chips);
}

/** The key under which a message is parked, and the held messages behind which it is. */
export function parkedBehind(queue, parked) {
  if (!parked) return null;
  return h("span", {}, h("span", { class: "soft" }, "on "), h("code", {}, parked.key), h("span", { class: "soft" }, parked.paused ? ", which is paused" : ""),
    parked.behind.length ? h("span", { class: "soft" }, " behind ") : null, parked.behind.slice(0, 3).map((id) => [messageLink(queue, id), " "]));
}

/** The way back up, and the head of a view. */
export function head(title, { crumbs = [], marks = [], actions = [] } = {}) {
  return [
    crumbs.length ? h("nav", { "aria-label": "Where this is" }, h("ol", { class: "crumbs" }, crumbs.map((one) => h("li", {}, one)))) : null,
    h("div", { class: "head" }, h("h1", { tabindex: "-1" }, title), h("span", { class: "marks" }, marks), actions.length ? h("div", { class: "actions" }, actions) : null),
  ];
}

/** The buttons of a choice of one among few. */
export function choice(label, options, chosen, onchange) {
  const buttons = options.map(([value, text]) => h("button", {
    type: "button", "aria-pressed": String(value === chosen), "data-value": value,
    onclick: () => {
      for (const one of buttons) one.setAttribute("aria-pressed", String(one.dataset.value === String(value)));
      onchange(value);
    },
  }, text));
  return h("div", { class: "choice", role: "group", "aria-label": label }, buttons);
}

export const here = () => location.pathname.slice(base.length) || "/";
