// The details of a message in the diagram: under the pointer, and when it is chosen.

import { h, show } from "../dom.js";
import { counted, lasting } from "../format.js";
import { badge, keyChips, messageLink } from "../parts/basics.js";

const LINKS = 24;

/** The chosen message and those it waits for, transitively: [{message, keys}], each once. */
export function chainOf(tracks, id) {
  const first = tracks.messages.get(id);
  if (!first) return [];
  const found = [];
  const seen = new Set([id]);
  const next = [first];
  while (next.length && found.length < LINKS) {
    const message = next.shift();
    found.push({ message, keys: [...message.keys, ...message.shared] });
    for (const { message: before } of tracks.blockers(message.id)) {
      if (seen.has(before.id)) continue;
      seen.add(before.id);
      next.push(before);
    }
  }
  return found;
}

export function tipOf(tracks, { row, id, span }, now, by) {
  if (!id) {
    return [h("strong", { class: "mono" }, row.name || "no key"), h("span", { class: "soft" },
      by === "key" ? `${counted(row.depthNow, "message")} waiting` : `${counted(row.open.size, "message")} leased`)];
  }
  const message = tracks.messages.get(id);
  if (span) {
    const open = span.end === Infinity;
    return [h("strong", { class: "mono" }, id), h("span", { class: "soft" }, [...span.keys, ...span.shared].join(", ") || "no key"),
      h("span", {}, `${span.kind.replace("_", " ")} for ${lasting((open ? now : span.end) - span.start)}${open ? "" : `, ${span.outcome}`}`),
      span.worker ? h("span", { class: "soft" }, `by ${span.worker}`) : null, span.attempt > 1 ? h("span", { class: "soft" }, `attempt ${span.attempt}`) : null];
  }
  return [h("strong", { class: "mono" }, id), h("span", {}, `waiting for ${lasting(now - message.since)}`),
    ...tracks.blockers(id).map(({ key, message: before }) => h("span", { class: "soft" }, `${key}: behind ${before.id}, ${before.state.replace("_", " ")}`))];
}

/** Shows everything about the chosen message, with links to those it waits for. */
export function chosenPanel(place, queue, tracks, id, now, choose) {
  const message = tracks.messages.get(id);
  const parts = [messageLink(queue, id, {}, `message ${id}`)];
  if (!message) {
    const span = ended(tracks, id);
    parts.push(badge("acked", span ? span.outcome : "gone"));
    if (span) parts.push(keyChips(queue, span.keys, span.shared), h("span", { class: "soft" }, `held for ${lasting(span.end - span.start)}${span.worker ? ` by ${span.worker}` : ""}`));
  } else {
    parts.push(badge(message.state), keyChips(queue, message.keys, message.shared),
      h("span", { class: "soft" }, `for ${message.unsure}${lasting(Math.max(0, now - message.since))}${message.state === "leased" && message.worker ? ` by ${message.worker}` : ""}${message.attempt > 1 ? `, attempt ${message.attempt}` : ""}`));
    const blockers = tracks.blockers(id);
    if (blockers.length) {
      parts.push(h("ul", {}, blockers.map(({ key, message: before }) => h("li", {}, h("span", { class: "soft" }, "waits on "), h("code", {}, key),
        h("span", { class: "soft" }, " for "), h("button", { type: "button", class: "plain small mono", onclick: () => choose(before.id) }, before.id), ` ${before.state.replace("_", " ")}`))));
    }
  }
  show(place, parts);
}

function ended(tracks, id) {
  for (const rows of [tracks.workers, tracks.keys]) {
    for (const row of rows.values()) {
      const found = row.spans.findLast((span) => span.id === id);
      if (found) return found;
    }
  }
  return null;
}
