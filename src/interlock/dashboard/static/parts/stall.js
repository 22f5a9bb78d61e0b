// The banner of stalled queues: the number of blocked messages, and their roots.

import { page } from "../api.js";
import { h, show } from "../dom.js";
import { count, counted, words } from "../format.js";
import { link, messageLink, queueLink } from "./basics.js";

const SHOWN = 5;

/** A banner; `update` takes the stalls by the names of their queues, the largest are shown. */
export function stallBanner({ roots = false } = {}) {
  const element = h("div", { class: "refusal stall", role: "alert", hidden: true });
  let drawn = "";
  return {
    element,
    update(stalls) {
      const found = [...stalls].filter(([, stall]) => stall).sort(([, a], [, b]) => b.blocked - a.blocked);
      const text = JSON.stringify(found);
      if (text === drawn) return;
      drawn = text;
      element.hidden = !found.length;
      show(element,
        found.slice(0, SHOWN).map(([name, stall]) => h("div", {},
          h("strong", {}, "Stalled: "), roots ? null : [queueLink(name), ": "], stall.summary,
          roots ? [". ", link(page("queues", name, "dead"), {}, "Held and dead messages"), h("ul", {}, stall.roots.map((root) => line(name, root)))] : null)),
        found.length > SHOWN ? h("div", {}, `and ${count(found.length - SHOWN)} more queues`) : null);
    },
  };
}

function line(queue, root) {
  const what = root.id === null
    ? (root.key === null ? "the pause of the queue" : `the pause of key ${root.key}`)
    : [`${words(root.kind)} message `, messageLink(queue, root.id), root.key === null ? "" : ` on ${root.key}`];
  return h("li", {}, what, ` blocks ${root.exact ? "" : "at least "}${counted(root.blocked, "message")}`);
}
