// Light, dark, or as the system has it; kept in this browser.

import { show, svg } from "./dom.js";

const ORDER = ["system", "light", "dark"];
const SIGNS = {
  system: ["M2 3h12v8H2z", "M6 14h4", "M8 11v3"],
  light: ["M8 5.2a2.8 2.8 0 1 0 0 5.6a2.8 2.8 0 1 0 0-5.6", "M8 1v1.6M8 13.4V15M1 8h1.6M13.4 8H15M3 3l1.2 1.2M11.8 11.8L13 13M3 13l1.2-1.2M11.8 4.2L13 3"],
  dark: ["M13.5 9.8A6 6 0 1 1 6.2 2.5a4.8 4.8 0 0 0 7.3 7.3z"],
};

const chosen = () => document.documentElement.dataset.theme ?? "system";

export function nextTheme() {
  const next = ORDER[(ORDER.indexOf(chosen()) + 1) % ORDER.length];
  if (next === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    if (next === "system") localStorage.removeItem("interlock.theme");
    else localStorage.setItem("interlock.theme", next);
  } catch {
    // Kept for this page only.
  }
  mark();
  dispatchEvent(new CustomEvent("interlock:theme"));
  return next;
}

/** Draws the icon of the choice on the button. */
export function mark() {
  const button = document.getElementById("theme");
  show(button, svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, SIGNS[chosen()].map((d) => svg("path", { d }))));
  button.setAttribute("aria-label", `Colours: ${chosen()}`);
}
