// One message: why it waits, its payload, its failed attempts, and the possible operations.

import { base, get, page, path, post } from "../api.js";
import { h, say, show } from "../dom.js";
import { bytes, coarse, iso } from "../format.js";
import { action } from "../parts/action.js";
import { ago, badge, empty, head, keyChips, link, pairs, panel, refusal } from "../parts/basics.js";
import { chain } from "../parts/chain.js";
import { editor, payloadView } from "../parts/payload.js";

/** The operations of each state: [name, text, question]. */
const SKIPPED = "It is settled without being handled, and its keys are free for the next message.";
const DEEDS = {
  delayed: [["cancel", "Cancel", "It is settled without being handled."]],
  waiting: [["cancel", "Cancel", "It is settled without being handled."]],
  ready: [["cancel", "Cancel", "It is settled without being handled."]],
  leased: [["revoke", "Revoke", "Its lease ends now. The handler continues, but cannot settle the message, which is redelivered."]],
  backing_off: [["retry", "Retry now"], ["skip", "Skip", SKIPPED], ["bury", "Bury", "It becomes a dead letter, and its keys are free for the next message."], ["cancel", "Cancel", "It is settled without being handled."]],
  held: [["retry", "Retry"], ["skip", "Skip", SKIPPED], ["bury", "Bury", "It becomes a dead letter, and its keys are free for the next message."]],
  parked: [["cancel", "Cancel", "It is settled without being handled."]],
  dead: [["requeue", "Requeue"], ["discard", "Discard", "Its payload is deleted permanently."]],
};

export function message(context) {
  const { params: { queue, id }, signal, go, live } = context;
  const crumbs = [link(`${base}/`, {}, "Queues"), link(page("queues", queue), {}, queue), link(page("queues", queue, "messages"), {}, "Messages")];
  const deeds = h("span", { class: "actions" });
  const state = h("span", { class: "marks" });
  const parts = { facts: h("div", { class: "body" }), chain: h("div"), payload: h("div"), failures: h("div"), edit: h("div") };
  const chainPanel = panel("What it waits for", parts.chain);
  const editPanel = panel("Edit and requeue", parts.edit);
  editPanel.hidden = true;
  const trouble = h("div");
  const content = h("div", { class: "message-columns" },
    h("div", {}, chainPanel, panel("Failures", parts.failures)),
    h("div", {}, panel("Message", parts.facts), panel("Payload", parts.payload), editPanel));
  const node = h("div", {}, head(`Message ${id}`, { crumbs, marks: [state], actions: [deeds] }), trouble, content);
  let shown = "";
  let stamp = "";

  async function act(what) {
    const answer = await post(path("queues", queue, "messages", id, what), {});
    if (what === "requeue" && answer.id) {
      go(page("queues", queue, "messages", answer.id));
      return `Requeued as ${answer.id}`;
    }
    await load();
    return answer.changed === false ? `Message ${id} was no longer in a state for that` : `Message ${id}: done`;
  }

  function draw(found) {
    const { message: one, payload, failures, explanation, served } = found;
    trouble.replaceChildren();
    content.hidden = false;
    if (shown !== one.state) {
      if (shown) say(`Message ${id} is ${one.state.replace("_", " ")} now`);
      shown = one.state;
      show(state, badge(one.state));
      show(deeds, (DEEDS[one.state] ?? []).map(([what, text, question]) => action(text, () => act(what), {
        kind: what === "discard" ? "danger" : "", question: question ? { title: `${text} message ${id}?`, text: question, danger: what === "discard" } : null,
      })));
      editPanel.hidden = one.state !== "dead";
      chainPanel.hidden = one.state === "dead";
      if (one.state === "dead") {
        show(parts.edit, editor(queue, id, payload, (answer) => go(page("queues", queue, "messages", answer.id))));
        if (location.hash === "#edit") parts.edit.querySelector("textarea")?.focus();
      }
    }
    const text = JSON.stringify([one, payload, failures]);
    if (text !== stamp) {
      stamp = text;
      show(parts.facts, pairs([
        ["Task", one.task ? h("code", {}, one.task) : null], ["Keys", keyChips(queue, one.keys, one.shared, 40)], ["Limits", one.limit.join(", ") || null], ["Group", one.group], ["Coalesces as", one.coalesce], ["Behind a failure", one.behind], ["Attempt", String(one.attempt)],
        ["Priority", one.priority ? String(one.priority) : null], ["Barrier", one.barrier ? "runs alone" : null],
        ["Put", h("span", {}, ago(one.put), h("small", {}, ` ${iso(one.put)}`))], [one.state === "dead" ? "Died" : "Due", one.due ? h("span", {}, ago(one.due), h("small", {}, ` ${iso(one.due)}`)) : null],
        ["Size", bytes(one.size)],
      ]));
      show(parts.payload, payloadView(payload));
      show(parts.failures, failures.length ? failures.map(failure) : one.error
        ? h("div", { class: "body" }, h("pre", { class: "wrap", tabindex: "0", "aria-label": "Error" }, one.error))
        : empty("No attempt has failed"));
    }
    const open = parts.chain.querySelector("details")?.open;
    show(parts.chain, chain(queue, explanation, served), explanation ? h("details", { class: "as-text", open: open || null }, h("summary", {}, "As text"), h("pre", { tabindex: "0", "aria-label": "Explanation" }, explanation.text)) : null);
  }

  async function load() {
    try {
      draw(await get(path("queues", queue, "messages", id), { signal }));
    } catch (error) {
      if (error.name === "AbortError") return;
      if (error.status === 404) gone(error);
      else show(trouble, refusal(error));
    }
  }

  function gone(error) {
    clearInterval(timer);
    const before = shown;
    content.hidden = true;
    show(state);
    show(deeds);
    show(trouble, h("div", { class: "panel" }, before
      ? empty("It is settled", `When last seen, it was ${before.replace("_", " ")}; ${coarse(live.now() - Number(id) / 1e6)} have passed since its put.`)
      : empty("Not found", error.message, "Settled messages are deleted.")));
    if (before) say(`Message ${id} is settled`);
  }

  const timer = setInterval(() => { if (!document.hidden && !document.querySelector("dialog[open]")) load(); }, 2000);
  signal.addEventListener("abort", () => clearInterval(timer));
  return { node, title: `Message ${id} · ${queue}`, ready: load() };
}

/** One failed attempt; the newest is open. */
function failure({ attempt, time, text, traceback }, at) {
  return h("details", { class: "failure", open: at === 0 || null },
    h("summary", {}, h("span", { class: "soft nowrap" }, `attempt ${attempt}`), h("span", { class: "bad" }, text || "no text"), time ? h("small", {}, ago(time)) : null),
    traceback ? h("pre", { tabindex: "0", "aria-label": `Traceback of attempt ${attempt}` }, traceback) : h("p", { class: "soft" }, "No traceback was sent."));
}
