// Addresses and views. The address alone says what is shown, so links, reload and back all work.

import { base, decoded } from "./api.js";

export class Router {
  /** `routes` are pairs of a pattern, as "/queues/:queue", and the function that makes its view. */
  constructor(routes, open) {
    this.routes = routes.map(([pattern, view]) => [pattern.split("/").slice(1), view]);
    this.open = open;
    document.addEventListener("click", (event) => this.onClick(event));
    addEventListener("popstate", (event) => this.show({ moved: true, top: event.state?.top ?? 0 }));
    history.scrollRestoration = "manual";
  }

  /** The view and its parameters for a path below the base; null if no route matches. */
  match(pathname) {
    const parts = pathname.split("/").slice(1);
    for (const [pattern, view] of this.routes) {
      const params = matched(pattern, parts);
      if (params) return { view, params };
    }
    return null;
  }

  show({ moved = false, top = 0 } = {}) {
    const below = location.pathname.slice(base.length) || "/";
    this.open(this.match(below), { path: below, query: new URLSearchParams(location.search), moved, top });
  }

  /** Goes to an address of the dashboard, base included. */
  go(href) {
    history.replaceState({ ...history.state, top: scrollY }, "");
    history.pushState({ top: 0 }, "", href);
    this.show({ moved: true });
  }

  /** Notes filters in the address without leaving the view. */
  note(values) {
    const query = new URLSearchParams(location.search);
    for (const [name, value] of Object.entries(values)) {
      if (value === "" || value === null || value === undefined) query.delete(name);
      else query.set(name, value);
    }
    const text = query.toString();
    history.replaceState(history.state, "", location.pathname + (text ? `?${text}` : ""));
  }

  onClick(event) {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target.closest?.("a[data-link]");
    if (!link) return;
    event.preventDefault();
    this.go(link.getAttribute("href"));
  }
}

/** The values of a pattern's parameters, or null. */
export function matched(pattern, parts) {
  if (pattern.length !== parts.length) return null;
  const params = {};
  for (let at = 0; at < pattern.length; at++) {
    if (pattern[at].startsWith(":")) {
      if (!parts[at]) return null;
      try {
        params[pattern[at].slice(1)] = decoded(parts[at]);
      } catch {
        return null;
      }
    } else if (pattern[at] !== parts[at]) return null;
  }
  return params;
}
