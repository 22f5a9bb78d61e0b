// Final failures: held messages, which keep their keys closed, those parked behind them, and dead letters.

import { get, page, path, post } from "../api.js";
import { h, show } from "../dom.js";
import { count, counted, shorten } from "../format.js";
import { action } from "../parts/action.js";
import { ago, choice, empty, keyChips, link, messageLink, parkedBehind } from "../parts/basics.js";
import { confirmed, progressed } from "../parts/dialog.js";
import { filters } from "../parts/filters.js";
import { Pages } from "../parts/list.js";
import { queueHead } from "../parts/queuehead.js";
import { Table } from "../parts/table.js";
import { ready } from "./messages.js";

const HELD = { retry: ["Retry", "is ready again"], skip: ["Skip", "was skipped"], bury: ["Bury", "is a dead letter now"] };
const PARKED = { cancel: ["Cancel", "was cancelled"] };
const DEAD = { requeue: ["Requeue", "was requeued"], discard: ["Discard", "is gone"] };
const WARNED = { cancel: "It is settled without being handled.", skip: "It is settled without being handled, and its keys are free for the next message.", discard: "Its payload is deleted permanently." };
const KINDS = [["dead", "Dead letters"], ["held", "Held"], ["parked", "Parked"]];
const TITLES = { dead: "Dead letters", held: "Held messages", parked: "Parked messages" };
const NONE = {
  dead: ["No dead letter", "A message becomes one when its attempts are used up, or a handler rejects it."],
  held: ["Nothing is held", "A message is held when its attempts are used up and the retry policy says hold. Its keys stay blocked until an operator acts here."],
  parked: ["Nothing is parked", "Messages put with behind=\"park\" are parked while one of their keys is paused or has a held message. They return when the key opens."],
};

export function dead(context) {
  const { params: { queue }, query, note, signal, live } = context;
  const top = queueHead(context);
  const place = h("div");
  const bulk = h("span", { class: "actions" });
  let which = KINDS.find(([kind]) => kind === query.get("which"))?.[0] ?? "dead";
  let list = null;

  const text = filters([["task", "Task", null], ["error", "Error contains", null]], query, note, () => begin().start());
  // For a group of errors, next to the fields.
  const groups = h("div");
  let group = query.get("group") ?? "";
  const chosen = { element: text.element, values: () => (which === "dead" && group ? { ...text.values(), group } : text.values()) };
  const deeds = () => ({ held: HELD, parked: PARKED, dead: DEAD })[which];

  const button = (what, row) => action(deeds()[what][0], async () => {
    const [, done] = deeds()[what];
    const answer = await post(path("queues", queue, "messages", row.id, what));
    list.drop(row.id);
    if (answer?.changed === false) return `Message ${row.id} no longer exists`;
    return answer?.id && answer.id !== row.id ? `Message ${row.id} ${done} as ${answer.id}` : `Message ${row.id} ${done}`;
  }, {
    small: true, kind: what === "discard" ? "danger" : "", label: `${deeds()[what][0]} message ${row.id}`,
    question: WARNED[what] ? { title: `${deeds()[what][0]} message ${row.id}?`, text: WARNED[what], danger: what === "discard" } : null,
  });

  function columns() {
    return [
      { name: "id", label: "Message", head: true, fill: (row) => messageLink(queue, row.id, { "data-open": true }) },
      { name: "task", label: "Task", class: "mono text", text: (row) => row.task ?? "–" },
      which === "parked" ? { name: "parked", label: "Parked", fill: (row) => parkedBehind(queue, row.parked) } : { name: "error", label: "Error", class: "text", fill: (row) => h("span", { title: row.error }, row.error?.split("\n")[0] || "–") },
      { name: "keys", label: "Keys", fill: (row) => keyChips(queue, row.keys, row.shared, 2) },
      { name: "attempt", label: "Attempts", number: true, text: (row) => row.attempt },
      { name: "put", label: "Put", stamp: (row) => row.put, fill: (row) => ago(row.put) },
      which === "dead" ? { name: "died", label: "Died", stamp: (row) => row.due, fill: (row) => ago(row.due) } : null,
      {
        name: "do", label: "", class: "end",
        fill: (row) => h("span", { class: "actions" }, Object.keys(deeds()).map((what) => button(what, row)),
          which === "dead" ? link(`${page("queues", queue, "messages", row.id)}#edit`, { class: "button small", "aria-label": `Edit message ${row.id} and requeue it` }, "Edit") : null),
      },
    ].filter(Boolean);
  }

  function load(cursor) {
    const wanted = chosen.values();
    if (which !== "dead") return get(path("queues", queue, "messages"), { query: { ...wanted, state: which, cursor, limit: 50 }, signal });
    return get(path("queues", queue, "dead"), { query: { ...wanted, after: cursor, limit: 50 }, signal }).then((found) => ({ ...found, cursor: found.after ?? null }));
  }

  /** The kinds of errors, the most frequent first; pressing one narrows the list to it. */
  async function drawGroups() {
    show(groups);
    if (which !== "dead") return;
    try {
      const found = await get(path("queues", queue, "dead", "errors"), { query: text.values(), signal });
      const pick = (name) => () => {
        group = group === name ? "" : name;
        note({ group });
        begin().start();
      };
      if (found.groups.length < 2 && !group) return;
      show(groups, h("div", { class: "actions groups", role: "group", "aria-label": "Kinds of errors" }, found.groups.slice(0, 12).map((one) => h("button", {
        type: "button", class: "small", "aria-pressed": String(one.group === group), title: one.error, onclick: pick(one.group),
      }, `${shorten(one.group || "no error", 60)} · ${count(one.count)}${found.complete ? "" : "+"}`))));
    } catch (error) {
      if (error.name !== "AbortError") show(groups, h("p", { class: "soft" }, `Kinds of errors: ${error.message}`));
    }
  }

  /** The number of messages that a change of all matches affects, in words. */
  async function matched(wanted) {
    const one = which === "dead" ? "dead letter" : `${which} message`;
    if (which !== "dead") {
      const stats = live.queues.get(queue)?.stats;
      const narrowed = Object.values(wanted).some(Boolean);
      return stats && !narrowed ? counted(stats[which] ?? 0, one) : `the ${one}s that match`;
    }
    const found = await get(path("queues", queue, "dead", "errors"), { query: wanted, signal });
    return found.complete ? counted(found.matched, one) : `at least ${counted(found.matched, one)}`;
  }

  function begin() {
    drawGroups();
    list = new Pages(new Table(columns(), { caption: TITLES[which], keyOf: (row) => row.id }), load, {
      signal,
      none: () => (Object.values(chosen.values()).some(Boolean)
        ? empty(`No ${which === "dead" ? "dead letter" : `${which} message`} fits these filters`, "Clear one of them to see the others.")
        : empty(...NONE[which])),
    });
    show(place, h("div", { class: "panel" }, list.element));
    drawBulk();
    return list;
  }

  function drawBulk() {
    show(bulk, Object.entries(deeds()).map(([what, [text]]) => action(`${text} all that match`, () => all(what, text), { small: true, kind: what === "discard" ? "danger" : "" })));
  }

  async function all(what, text) {
    const wanted = chosen.values();
    const many = await matched(wanted);
    const narrowed = Object.entries(wanted).filter(([, value]) => value).map(([name, value]) => `${name} ${JSON.stringify(value)}`).join(" and ");
    const question = h("div", {}, h("p", {}, narrowed ? `${many} of ${queue} with ${narrowed}.` : `${many} of ${queue}: no filter is set.`),
      h("p", { class: "soft" }, WARNED[what] ?? "They are handled one by one; you can stop in between."));
    if (!(await confirmed(`${text} ${many}?`, question, text, { danger: what === "discard" }))) return null;
    const step = which === "dead" ? deadStep(what, wanted) : heldStep(what, wanted);
    const { done, failure, stopped } = await progressed(`${text} …`, step);
    list.start();
    if (failure) throw Object.assign(failure, { message: `${failure.message} (${counted(done, "message")} done before)` });
    return `${text}: ${counted(done, "message")}${stopped ? ", stopped before the end" : ""}`;
  }

  /** A bounded number per call; each answer has the place of the next one. */
  function deadStep(what, wanted) {
    let place = {};
    return async () => {
      const answer = await post(path("queues", queue, "dead", what), { ...wanted, ...place }, { signal });
      place = { after: answer.after ?? "", until: answer.until ?? "" };
      return { done: answer.changed, left: answer.left };
    };
  }

  /** Held and parked messages have no bulk call: they are read a page at a time. */
  function heldStep(what, wanted) {
    let cursor = null;
    return async () => {
      const found = await get(path("queues", queue, "messages"), { query: { ...wanted, state: which, cursor, limit: 50 }, signal });
      let done = 0;
      for (const row of found.items) {
        const answer = await post(path("queues", queue, "messages", row.id, what), {}, { signal });
        done += answer?.changed === false ? 0 : 1;
      }
      cursor = found.cursor;
      return { done, left: cursor !== null && cursor !== undefined };
    };
  }

  begin();
  const kind = choice("Kind", KINDS, which, (value) => {
    which = value;
    note({ which: value === "dead" ? "" : value });
    begin().start();
  });
  const bar = h("div", { class: "head" }, kind, h("span", { class: "actions end" }, bulk));
  return { node: h("div", {}, top.node, bar, chosen.element, groups, place), title: `Held and dead · ${queue}`, ready: ready(list, queue, top, context) };
}
