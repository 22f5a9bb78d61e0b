// Confirmations before irreversible changes, and short notes of the result.

import { h, say, show } from "../dom.js";
import { button, refused } from "./basics.js";

/** Opens a dialog and returns its result; "" if it was dismissed. */
export function ask(title, content, buttons, { broad = false } = {}) {
  return new Promise((resolve) => {
    const before = document.activeElement;
    const id = "dialog-title";
    const foot = h("div", { class: "foot" }, buttons.map(([value, text, kind, check]) => h("button", {
      type: "button", class: kind, autofocus: kind.includes("first"),
      onclick: () => { if (!check || check()) element.close(value); },
    }, text)));
    const element = h("dialog", { class: broad ? "broad" : null, "aria-labelledby": id }, h("h2", { id }, title), content, foot);
    element.addEventListener("close", () => {
      element.remove();
      if (before?.isConnected) before.focus();
      resolve(element.returnValue);
    });
    // A click on the backdrop.
    element.addEventListener("mousedown", (event) => { if (event.target === element) element.close(""); });
    document.body.append(element);
    element.showModal();
  });
}

/** Asks whether to do it. */
export async function confirmed(title, text, action, { danger = false } = {}) {
  const content = text instanceof Node ? text : h("p", {}, text);
  return (await ask(title, content, [["", "Cancel", ""], ["yes", action, `${danger ? "danger " : ""}primary first`]])) === "yes";
}

/** Shows a long text, such as stacks. */
export const told = (title, content) => ask(title, content, [["", "Close", "first"]], { broad: true });

/** A note in the corner: `kind` is done or refused. A refusal stays until it is dismissed. */
export function note(text, { kind = "done", detail = null } = {}) {
  const place = document.getElementById("toasts");
  while (place.children.length >= 4) place.firstElementChild.remove();
  const element = h("div", { class: `toast ${kind}`, role: kind === "refused" ? "alert" : null },
    h("div", {}, h("strong", {}, text), detail),
    h("button", { type: "button", class: "icon", "aria-label": "Dismiss", onclick: () => element.remove() }, "×"));
  place.append(element);
  if (kind !== "refused") {
    say(text);
    setTimeout(() => element.remove(), 6000);
  }
}

/** Shows a refusal, and its reason. */
export function noteRefusal(what, error) {
  note(what, { kind: "refused", detail: refused(error) });
}

/** Work of many steps with a bar and a way to stop; `step` returns {done, left}. */
export async function progressed(title, step) {
  const text = h("p", { "aria-live": "polite" }, "Beginning …");
  let stopped = false;
  let done = 0;
  let failure = null;
  const closing = ask(title, show(h("div"), text, h("progress", { "aria-label": title })), [["", "Stop", "first"]]);
  closing.then(() => { stopped = true; });
  try {
    for (let left = true; left && !stopped;) {
      const answer = await step();
      done += answer.done;
      left = answer.left;
      text.textContent = `${done.toLocaleString("en-US")} done${left ? ", continuing …" : ""}`;
    }
  } catch (error) {
    failure = error;
  }
  const open = document.querySelector("dialog[open]");
  const wasStopped = stopped;
  open?.close("");
  return { done, failure, stopped: wasStopped };
}

export { button };
