// The login: a token, or a name and password of the engine.

import { facts, session } from "../api.js";
import { h, show } from "../dom.js";
import { refusal } from "../parts/basics.js";

export function login(signal, done) {
  const trouble = h("div");
  const name = h("input", { name: "name", autocomplete: "username", spellcheck: "false" });
  const secret = h("input", { name: "secret", type: "password", autocomplete: "current-password" });
  const byUser = () => facts.login === "user";
  const send = async (event) => {
    event.preventDefault();
    try {
      await session("login", byUser() ? { user: name.value, password: secret.value } : { token: secret.value });
      done();
    } catch (error) {
      if (!signal.aborted) show(trouble, refusal(error));
    }
  };
  const form = h("form", { class: "login", onsubmit: send });
  show(form, h("h1", { tabindex: "-1" }, "Log in"), trouble,
    byUser() ? h("label", {}, "User of the engine", name) : null,
    h("label", {}, byUser() ? "Password" : "Token of the dashboard", secret),
    h("button", { class: "primary" }, "Log in"));
  return form;
}
