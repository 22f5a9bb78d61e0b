// Requests to the server of this page.

/** The path under which the server stands, without a slash at its end; mostly empty. */
export const base = new URL("..", import.meta.url).pathname.replace(/\/$/, "");

/** The server's no, in its own words; `status` 0 where it did not answer at all. */
export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

/** What the server told of itself at the start: what may be done, and the token that goes with it. */
export const facts = { write: false, rights: ["read"], refused: {}, csrf: "", kind: "", url: "", user: null, login: "none" };

/** Names that a browser would take for steps; the server knows them by these segments. */
const STEPS = new Map([[".", "=Lg"], ["..", "=Li4"]]);
const encoded = (name) => STEPS.get(name) ?? encodeURIComponent(name);

/** The name that a segment of an address stands for. */
export function decoded(segment) {
  for (const [name, step] of STEPS) if (step === segment) return name;
  return decodeURIComponent(segment);
}

/** A path of segments, each escaped: `path("queues", name)`. */
export const path = (...segments) => `/${segments.map(encoded).join("/")}`;

/** The address of a page of the dashboard. */
export const page = (...segments) => base + path(...segments);

export async function get(where, { query = {}, signal } = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const search = given.length ? `?${new URLSearchParams(given)}` : "";
  return answer(fetch(`${base}/api${where}${search}`, { signal, headers: { Accept: "application/json" } }));
}

export async function post(where, body = {}, { signal } = {}) {
  return answer(send(`${base}/api${where}`, body, signal));
}

/** Logs in or out; answers nothing. */
export async function session(what, body = {}) {
  await answer(send(`${base}/${what}`, body));
}

const send = (url, body, signal) => fetch(url, {
  method: "POST",
  signal,
  headers: { "Content-Type": "application/json", Accept: "application/json", "X-Interlock-CSRF": facts.csrf },
  body: JSON.stringify(body),
});

async function answer(sent) {
  let response;
  try {
    response = await sent;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "the dashboard's server does not answer");
  }
  const text = await response.text();
  let value = null;
  try {
    value = text ? JSON.parse(text) : null;
  } catch {
    // A proxy in between may answer with a page.
  }
  if (!response.ok) {
    const why = value?.error ?? `${response.status} ${response.statusText}`.trim();
    if (response.status === 401 && value?.login) facts.login = value.login;
    if (response.status === 401) dispatchEvent(new CustomEvent("interlock:login"));
    throw new Refused(response.status, why);
  }
  return value;
}

/** The queue that the address names; empty where it names none. */
function hereQueue() {
  const [place, name] = location.pathname.slice(base.length + 1).split("/");
  try {
    return place === "queues" && name ? decoded(name) : "";
  } catch {
    return "";
  }
}

/** Why this page may not change anything; null where it may. */
export function forbidden() {
  if (!facts.write) return "this dashboard only reads; start it with --write";
  const who = facts.user ? `user ${facts.user}` : "this login";
  const refused = facts.refused ?? {};
  if (!facts.rights.includes("operate")) return `${who} has no right to operate${refused[""] ? ` (${refused[""]})` : ""}`;
  const queue = hereQueue();
  return Object.hasOwn(refused, queue) ? `${who} may not operate queue ${queue} (${refused[queue]})` : null;
}
