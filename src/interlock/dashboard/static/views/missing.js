// An unknown address.

import { base } from "../api.js";
import { h } from "../dom.js";
import { button, empty, head, link } from "../parts/basics.js";

/** `what` names the missing thing, and `again` retries: a queue may be created later. */
export const missing = ({ path, what = "No such page", again }) => ({
  title: "Not found",
  node: h("div", {}, head("Not found"), h("div", { class: "panel" }, empty(what, h("p", {}, h("code", {}, path)),
    h("p", {}, link(`${base}/`, {}, "All queues")), again ? h("p", {}, button("Retry", again)) : null))),
});
