// A payload for people to read, and the form to requeue a dead letter with an edited one.

import { path, post } from "../api.js";
import { h, setText, show } from "../dom.js";
import { bytes } from "../format.js";
import { action } from "./action.js";
import { pairs } from "./basics.js";
import { ask, confirmed } from "./dialog.js";

/** JSON on one line where it fits. */
function written(value) {
  const short = JSON.stringify(value);
  return escaped(short.length <= 64 ? short : JSON.stringify(value, null, 2));
}

/** The same JSON with invisible characters written as \u202e, which a form returns unchanged. */
const escaped = (json) => json.replace(/[^\P{C}\n]|[\p{Zl}\p{Zp}]/gu,
  (letter) => [...Array(letter.length).keys()].map((at) => `\\u${letter.charCodeAt(at).toString(16).padStart(4, "0")}`).join(""));

/** Whether all whole numbers are small enough for a browser to keep them exactly. */
export function isExact(value) {
  if (typeof value === "number") return !Number.isInteger(value) || Number.isSafeInteger(value);
  if (value && typeof value === "object") return Object.values(value).every(isExact);
  return true;
}

export function payloadView(payload) {
  const box = (text, label) => h("pre", { class: "wrap", tabindex: "0", "aria-label": label }, text);
  const headers = Object.entries(payload.headers ?? {});
  const note = payload.cut ? h("p", { class: "soft" }, `Cut: the whole payload has ${bytes(payload.size)}.`) : null;
  if (payload.kind !== "task" || payload.cut) {
    return h("div", { class: "body stack" }, h("p", { class: "soft" }, `${payload.kind}, ${bytes(payload.size ?? payload.text.length)}`), box(payload.text, "Payload"), note);
  }
  return h("div", { class: "body stack" }, pairs([["Task", h("code", {}, payload.task)]]),
    payload.args?.length ? [h("h3", {}, "Arguments"), box(written(payload.args), "Arguments")] : null,
    Object.keys(payload.kwargs ?? {}).length ? [h("h3", {}, "Named arguments"), box(written(payload.kwargs), "Named arguments")] : null,
    !payload.args?.length && !Object.keys(payload.kwargs ?? {}).length ? h("p", { class: "soft" }, "Called without arguments.") : null,
    headers.length ? [h("h3", {}, "Headers"), pairs(headers.map(([name, value]) => [name, h("code", {}, value)]))] : null, note);
}

/** The form; `done` is called with the answer. */
export function editor(queue, id, payload, done) {
  const trouble = h("p", { class: "bad", role: "alert", hidden: true });
  const area = (label, value, rows) => h("textarea", { "aria-label": label, rows, spellcheck: "false", value });
  const form = h("form", { class: "body stack", id: "edit", onsubmit: (event) => event.preventDefault() });
  if (!payload.edit) return show(form, h("p", { class: "soft" }, "This payload cannot be edited here: it is not text, or too long. It can be requeued as it is."));
  if (payload.kind === "task" && !(isExact(payload.args) && isExact(payload.kwargs))) {
    return show(form, h("p", { class: "soft" }, "An argument is a whole number beyond 2⁵³, which a browser would round. Requeue it from a program."));
  }
  const fields = payload.kind === "task"
    ? { args: area("Arguments, a JSON list", written(payload.args), 5), kwargs: area("Named arguments, a JSON object", written(payload.kwargs), 5) }
    : { text: area("Payload", payload.text, 12) };
  const read = () => {
    if (fields.text) return { text: fields.text.value };
    const args = parsed("Arguments", fields.args.value);
    const kwargs = parsed("Named arguments", fields.kwargs.value);
    if (!Array.isArray(args)) throw new Error("Arguments is not a list; allowed: a JSON list, as [1, \"a\"]");
    if (!kwargs || typeof kwargs !== "object" || Array.isArray(kwargs)) throw new Error("Named arguments is not an object; allowed: a JSON object, as {\"a\": 1}");
    if (!isExact(args) || !isExact(kwargs)) throw new Error("A whole number is beyond 2⁵³, which a browser would round");
    return { args, kwargs };
  };
  const send = action("Requeue edited", async () => {
    trouble.hidden = true;
    let given;
    try {
      given = read();
    } catch (error) {
      setText(trouble, error.message);
      trouble.hidden = false;
      return null;
    }
    const where = (what) => path("queues", queue, "messages", id, what);
    const keys = await confirmedKeys(await post(where("keys"), given));
    if (!keys) return null;
    const answer = await post(where("requeue"), { ...given, ...keys });
    done(answer);
    return answer.changed ? `Requeued as ${answer.id}` : `It was already requeued, as ${answer.id}`;
  }, { kind: "primary" });
  const labelled = (name, field) => h("label", { class: "stack" }, h("span", { class: "soft" }, name), field);
  return show(form, fields.text ? labelled("Payload", fields.text) : [labelled("Arguments", fields.args), labelled("Named arguments", fields.kwargs)],
    trouble, h("div", { class: "actions" }, send, h("span", { class: "soft" }, "The old and the new keys are shown before anything changes.")));
}

/** Shows the keys before and after, or asks for them if no worker knows the rule; null: not confirmed. */
async function confirmedKeys({ old, new: computed, by, why, barrier }) {
  const text = (key) => (typeof key === "string" ? key : `base64 ${key.base64}`);
  const told = ({ keys, shared }) => [...keys.map(text), ...shared.map((key) => `${text(key)} (shared)`)].join(", ") || "no keys";
  const named = ({ limit, group, run }) => [limit?.length ? `limits ${limit.join(", ")}` : "", group ? `group ${group}` : "", run ? `run ${run}` : ""].filter(Boolean).join(", ") || "none";
  const before = ["Old keys", h("code", {}, told(old))];
  if (computed) {
    const changed = computed.limit && named(old) !== named(computed);
    const names = changed ? [["Old limits and group", h("code", {}, named(old))], ["New limits and group", h("code", {}, named(computed))]] : [];
    const content = h("div", { class: "stack" }, pairs([before, ["New keys", h("code", {}, told(computed))], ...names]),
      h("p", { class: "soft" }, `Computed by worker ${by} with the task's own rule.`));
    return (await confirmed("Requeue with these keys?", content, "Requeue")) ? computed : null;
  }
  if (barrier) return (await confirmed("Requeue this barrier?", "It runs alone, without keys.", "Requeue")) ? { keys: [], shared: [] } : null;
  const area = (label) => h("textarea", { "aria-label": label, rows: 3, spellcheck: "false" });
  const [exclusive, shared, none] = [area("New keys, one per line"), area("New shared keys, one per line"), h("input", { type: "checkbox" })];
  const lines = (field) => field.value.split("\n").filter(Boolean);
  const stated = () => lines(exclusive).length + lines(shared).length > 0 || none.checked;
  const content = h("div", { class: "stack" }, pairs([before]), h("p", {}, `State the new keys: ${why}.`),
    h("label", { class: "stack" }, h("span", { class: "soft" }, "New keys, one per line"), exclusive),
    h("label", { class: "stack" }, h("span", { class: "soft" }, "New shared keys, one per line"), shared),
    h("label", {}, none, " It has no keys."));
  const buttons = [["", "Cancel", ""], ["yes", "Requeue", "primary first", stated]];
  if ((await ask("Which keys does it have now?", content, buttons)) !== "yes") return null;
  const keys = { keys: lines(exclusive), shared: lines(shared) };
  return (await confirmed("Requeue with these keys?", pairs([before, ["New keys", h("code", {}, told(keys))]]), "Requeue")) ? keys : null;
}

function parsed(what, text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${what}: ${error.message}`);
  }
}
