// Why a message waits, drawn: the message, below it those it waits for, down to the leased ones and
// their holders.

import { h } from "../dom.js";
import { count, lasting } from "../format.js";
import { badge, empty, keyChips, messageLink } from "./basics.js";

/** Nodes of an explanation, breadth first, as a tree in which each message occurs once. */
export function treeOf(nodes) {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const seen = new Set();
  const branch = (node) => {
    seen.add(node.id);
    const item = { node, why: [] };
    for (const because of node.because ?? []) {
      const holders = [];
      for (const id of because.holders) {
        if (seen.has(id) || !byId.has(id)) holders.push({ again: id, known: byId.has(id) });
        else {
          seen.add(id);
          holders.push({ id });
        }
      }
      item.why.push({ because, holders });
    }
    for (const { holders } of item.why) for (const holder of holders) if (holder.id) holder.item = branch(byId.get(holder.id));
    return item;
  };
  return nodes.length ? branch(nodes[0]) : null;
}

export function chain(queue, explanation, served = true) {
  if (!explanation?.chain?.length) return empty("Nothing to draw", "A dead letter waits for nothing.");
  const top = treeOf(explanation.chain);
  return h("div", { class: "chain" }, drawn(queue, top, served, true),
    explanation.truncated ? h("p", { class: "note" }, "Cut here: more messages wait behind this one.") : null);
}

function drawn(queue, { node, why }, served, first = false) {
  const ways = why.flatMap(({ because, holders }) => [
    ...holders.map((holder) => ({ because, holder })), ...(holders.length ? [] : [{ because, holder: null }])]);
  return h("div", { class: `link-box${node.state === "leased" ? " root" : ""}` },
    h("div", { class: "link-card" },
      h("div", { class: "actions" }, first ? h("strong", { class: "mono" }, node.id) : messageLink(queue, node.id), badge(node.state), node.task ? h("code", {}, node.task) : null),
      h("div", { class: "soft" }, told(node, served)),
      node.keys ? keyChips(queue, node.keys, node.shared ?? [], 4) : null),
    ways.length ? h("ol", { class: "ways" }, ways.map(({ because, holder }) => h("li", {},
      h("span", { class: "why" }, because.limit ? "a limit" : because.key === null ? "a barrier" : null, because.limit || because.key !== null ? h("code", {}, because.limit ?? because.key) : null, h("span", { class: "soft" }, because.limit ? because.text : `${count(because.ahead)}${because.exact ? "" : "+"} ahead`)),
      holder === null ? null : holder.item ? drawn(queue, holder.item, served) : h("div", { class: "link-card again" }, messageLink(queue, holder.again), h("span", { class: "soft" }, holder.known ? " drawn elsewhere here" : ""))))) : null);
}

/** A message's state, in words. */
export function told(node, served = true) {
  const parts = [];
  if (node.state === "leased") parts.push(`handled${node.consumer ? ` by ${node.consumer}` : ""} for ${lasting(node.held_for)}`);
  else if (node.state === "ready" && node.limits?.length) parts.push(`nothing else blocks it than ${node.limits.length === 1 ? "a limit" : "limits"}`);
  else if (node.state === "ready") parts.push(served ? "nothing blocks it: the next free worker takes it" : "nothing blocks it, but no worker that serves this queue has announced itself");
  else if (node.state === "held") parts.push("its attempts are used up; it waits until an operator retries, skips or buries it");
  else if (node.state === "parked" && node.parked) parts.push(`parked for ${lasting(node.parked.since)} on the key ${node.parked.key}${node.parked.paused ? ", which is paused" : ""}; it holds no place until the key opens`);
  if (node.turn && node.state === "ready") parts.push(`${node.turn.group ? `group ${node.turn.group}` : "without a group"}: ${count(node.turn.ahead)} ${node.turn.ahead === 1 ? "group comes" : "groups come"} first`);
  if (node.due_in !== null && node.due_in !== undefined) parts.push(`due in ${lasting(node.due_in)}`);
  if (node.lease_left !== null && node.lease_left !== undefined) parts.push(`lease left ${lasting(node.lease_left)}`);
  if (node.attempt > 1) parts.push(`attempt ${node.attempt}`);
  if (node.queue_paused) parts.push("the queue is paused");
  if (node.paused?.length) parts.push(`paused: ${node.paused.join(", ")}`);
  parts.push(`put ${lasting(node.age)} ago`);
  return parts.join(" · ");
}
