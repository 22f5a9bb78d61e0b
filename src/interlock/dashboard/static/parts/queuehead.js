// The head of all views of one queue: its path, its marks, its gates, the links to its parts.

import { page, path } from "../api.js";
import { h, setText, show } from "../dom.js";
import { count } from "../format.js";
import { action, change } from "./action.js";
import { flag, head, link } from "./basics.js";
import { base } from "../api.js";

/** `changed` is called after a gate was moved. */
export function queueHead({ params: { queue }, live, signal, path: here }, changed) {
  const marks = h("span", { class: "marks" });
  const gates = h("span", { class: "actions" });
  const counts = new Map();
  const tab = (text, to, counted) => {
    const number = h("span", { class: counted === "failed" ? "count bad" : "count" });
    counts.set(counted, number);
    return link(to, { "aria-current": to === base + here || decodeURI(to) === decodeURI(base + here) ? "page" : null }, text, number);
  };
  const node = h("div", {}, head(queue, { crumbs: [link(`${base}/`, {}, "Queues")], marks: [marks], actions: [gates] }),
    h("nav", { class: "tabs", "aria-label": "Parts of the queue" },
      tab("Live", page("queues", queue), ""), tab("Messages", page("queues", queue, "messages"), "unsettled"), tab("Held and dead", page("queues", queue, "dead"), "failed")));
  const state = { paused: false, sealed: false, full: false };
  let drawn = "";

  const gate = (text, what, done, nothing, question) => action(text, async () => {
    const said = await change(path("queues", queue, what), { keys: null }, done, nothing);
    changed?.();
    return said;
  }, { small: false, question });

  function draw() {
    const stats = live.queues.get(queue)?.stats;
    if (stats) {
      setText(counts.get("unsettled"), count(stats.unsettled));
      const failed = (stats.held ?? 0) + (stats.dead ?? 0);
      setText(counts.get("failed"), failed ? count(failed) : "");
      if (Boolean(stats.sealed) !== state.sealed || Boolean(stats.full) !== state.full) update({ sealed: Boolean(stats.sealed), full: Boolean(stats.full) });
    }
  }

  /** Sets whether the queue itself is paused or sealed. */
  function update(news) {
    Object.assign(state, news);
    // Rebuilt only where it changed: a focused button must keep its focus.
    const text = JSON.stringify(state);
    if (text === drawn) return;
    drawn = text;
    show(marks, state.paused ? flag("paused", "warning", "Nothing is leased") : null, state.sealed ? flag("sealed", "warning", "Puts are refused") : null, state.full ? flag("full", "warning", "The queue is full: puts wait, or fail") : null);
    show(gates,
      state.paused
        ? gate("Resume", "resume", `${queue} is resumed`, `${queue} was not paused`)
        : gate("Pause", "pause", `${queue} is paused`, `${queue} was already paused`, { title: `Pause ${queue}?`, text: "No message is leased until it is resumed; leased ones are finished.", action: "Pause" }),
      state.sealed
        ? gate("Reopen", "reopen", `${queue} accepts messages again`, `${queue} was not sealed`)
        : gate("Seal", "seal", `${queue} is sealed`, `${queue} was already sealed`, { title: `Seal ${queue}?`, text: "Every put is refused until it is reopened; its messages are handled.", action: "Seal" }));
  }
  update({});
  draw();
  live.addEventListener("stats", draw, { signal });
  return { node, update };
}
