// The frame: the server's state, the navigation, the state of the connection.

import { base, facts, forbidden, get, page, session } from "./api.js";
import { h, say, setText, show, visible } from "./dom.js";
import { listen, showKeys } from "./keys.js";
import { Live } from "./live.js";
import { button, link, refusal, runTimes } from "./parts/basics.js";
import { Router } from "./router.js";
import { mark, nextTheme } from "./theme.js";
import { dead } from "./views/dead.js";
import { lists } from "./views/lists.js";
import { login } from "./views/login.js";
import { message } from "./views/message.js";
import { messages } from "./views/messages.js";
import { missing } from "./views/missing.js";
import { queue } from "./views/queue.js";
import { queues } from "./views/queues.js";
import { schedules } from "./views/schedules.js";
import { server } from "./views/server.js";
import { workers } from "./views/workers.js";

const NAVIGATION = [
  ["/", "Queues", (path) => path === "/" || path.startsWith("/queues")], ["/workers", "Workers"], ["/schedules", "Schedules"],
  ["/topics", "Topics"], ["/tables", "Tables"], ["/stores", "Stores"], ["/sources", "Sources"], ["/server", "Server"],
];
const main = document.getElementById("main");
const live = new Live();
let closing = new AbortController();

const router = new Router([
  ["/", queues], ["/queues", queues], ["/queues/:queue", queue], ["/queues/:queue/messages", messages],
  ["/queues/:queue/messages/:id", message], ["/queues/:queue/dead", dead], ["/workers", workers], ["/schedules", schedules],
  ["/server", server], ["/topics", lists("topics")], ["/tables", lists("tables")], ["/stores", lists("stores")], ["/sources", lists("sources")],
], open);

/** Shows a view: ends the previous one with its listeners and requests, and moves the focus. */
function open(found, { path, query, moved, top }) {
  closing.abort();
  closing = new AbortController();
  const { signal } = closing;
  navigation(path);
  const context = {
    params: found?.params ?? {}, query, signal, live, path,
    note: (values) => router.note(values), go: (href) => router.go(href), again: () => router.show(),
    lost: (what) => {
      // The view's listeners and timers end with it.
      closing.abort();
      closing = new AbortController();
      show(main, missing({ path, what, again: () => router.show() }).node);
    },
  };
  const view = (found?.view ?? missing)(context);
  live.want(view.wants ?? {});
  document.title = visible(`${view.title} · Interlock`);
  show(main, view.node);
  scrollTo(0, 0);
  if (moved) {
    (main.querySelector("h1") ?? main).focus({ preventScroll: true });
    if (top) Promise.resolve(view.ready).then(() => { if (!signal.aborted) scrollTo(0, top); });
  }
}

function navigation(path) {
  show(document.getElementById("nav"), NAVIGATION.map(([to, text, within = (at) => at === to]) =>
    link(base + to, { "aria-current": within(path) ? "page" : null }, text)));
}

/** The page's user and server, and whether it may change anything. */
function frame() {
  const source = document.getElementById("source");
  setText(source, facts.url);
  source.title = visible(`${facts.kind} ${facts.version ?? ""} at ${facts.url}${facts.user ? ` as ${facts.user}` : ""}`);
  const mode = document.getElementById("mode");
  const mayWrite = facts.write && facts.rights.includes("operate");
  mode.hidden = mayWrite;
  mode.textContent = "read only";
  mode.title = visible(forbidden() ?? "");
  const end = document.querySelector(".bar-end");
  end.querySelector("#leave")?.remove();
  if (facts.login !== "none") {
    end.append(h("button", { type: "button", id: "leave", class: "small", onclick: leave }, facts.user ? `Log out ${facts.user}` : "Log out"));
  }
}

async function leave() {
  await session("logout").catch(() => {});
  location.assign(`${base}/`);
}

function connection({ detail: { state, before, why } }) {
  const sign = document.getElementById("link");
  sign.dataset.state = state;
  const text = { live: "live", lost: "lost", paused: "stopped", connecting: "connecting" }[state];
  sign.lastElementChild.textContent = text;
  const banner = document.getElementById("banner");
  main.classList.toggle("stale", state === "lost");
  if (state === "lost") {
    show(banner, h("strong", {}, "Not live"), h("span", {}, `${why}. This page shows the last known state and reconnects by itself.`));
    banner.hidden = false;
  } else if (!banner.hidden && state === "live") {
    banner.hidden = true;
    say("Live again");
    if (before === "lost") refresh();
  }
}

/** After a lost connection: it may be another server, with another token for changes. */
async function refresh() {
  try {
    Object.assign(facts, await get("/server"));
    frame();
    router.show();
  } catch {
    // The stream reports the next failure.
  }
}

function pause() {
  live.pause(!live.paused);
  say(live.paused ? "Live view stopped" : "Live view continues");
}

function up() {
  const parts = location.pathname.slice(base.length).split("/").filter(Boolean);
  if (!parts.length) return;
  if (parts[0] === "queues" && parts.length >= 3) router.go(`${base}/${parts.slice(0, parts.length > 3 ? 3 : 2).join("/")}`);
  else router.go(`${base}/`);
}

function ways(key) {
  const to = { q: "/", w: "/workers", t: "/schedules", s: "/server" }[key];
  if (to) router.go(base + to);
  return Boolean(to);
}

async function start() {
  try {
    Object.assign(facts, await get("/server"));
  } catch (error) {
    if (error.status === 401) return;
    show(main, h("h1", { tabindex: "-1" }, "The dashboard cannot show anything yet"), refusal(error),
      h("p", { class: "soft" }, "Retrying every two seconds."), button("Try now", () => location.reload()));
    setTimeout(start, 2000);
    return;
  }
  frame();
  live.connect();
  router.show();
}

addEventListener("interlock:login", () => {
  closing.abort();
  closing = new AbortController();
  live.source?.close();
  show(main, login(closing.signal, () => location.reload()));
  main.querySelector("input")?.focus();
}, { once: true });

live.addEventListener("state", connection);
document.getElementById("theme").addEventListener("click", () => say(`Colours: ${nextTheme()}`));
document.getElementById("help").addEventListener("click", showKeys);
listen({ go: ways, up, pause, theme: () => say(`Colours: ${nextTheme()}`) });
runTimes(() => live.now());
mark();
start();

export { live, page };
