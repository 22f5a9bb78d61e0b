// An address that leads nowhere.

import { base } from "../api.js";
import { h } from "../dom.js";
import { empty, head, link } from "../parts/basics.js";

export const missing = ({ path }) => ({
  title: "Not found",
  node: h("div", {}, head("Nothing here"), h("div", { class: "panel" }, empty("No such page", h("p", {}, h("code", {}, path)),
    h("p", {}, link(`${base}/`, {}, "All queues"))))),
});
