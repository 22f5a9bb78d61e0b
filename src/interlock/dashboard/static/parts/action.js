// Changes: confirmed, sent, and reported. A forbidden button shows the reason when it is pressed.

import { forbidden, post } from "../api.js";
import { h } from "../dom.js";
import { confirmed, note } from "./dialog.js";
import { refused } from "./basics.js";

/**
 * A button that changes something. `run` does it and answers what to say, or null for nothing.
 * `question` is {title, text, action, danger} where it must be asked first.
 */
export function action(text, run, { kind = "", small = false, question = null, label, guarded = true } = {}) {
  const why = guarded ? forbidden() : null;
  const element = h("button", {
    type: "button", class: `${kind} ${small ? "small" : ""}`.trim(), "aria-label": label,
    "aria-disabled": why ? "true" : null, title: why ? `Not allowed: ${why}` : null,
    onclick: () => press(element, text, run, question, guarded),
  }, text);
  return element;
}

async function press(element, text, run, question, guarded) {
  const why = guarded ? forbidden() : null;
  if (why) {
    note(`${text}: not allowed`, { kind: "refused", detail: why });
    return;
  }
  if (element.busy) return;
  const asked = typeof question === "function" ? question() : question;
  if (asked && !(await confirmed(asked.title, asked.text, asked.action ?? text, { danger: asked.danger }))) return;
  element.busy = true;
  element.setAttribute("aria-busy", "true");
  try {
    const said = await run();
    if (said) note(said);
  } catch (error) {
    if (error.name !== "AbortError") note(`${text}: not done`, { kind: "refused", detail: refused(error) });
  } finally {
    element.busy = false;
    element.removeAttribute("aria-busy");
  }
}

/** Posts a change and returns the sentence that says whether it changed anything. */
export async function change(where, body, done, nothing) {
  const answer = await post(where, body);
  return answer?.changed === false || answer?.changed === 0 ? nothing : done;
}
