// Requests to the server of this page.

/** Path of the server, without a trailing slash; usually empty. */
export const base = new URL("..", import.meta.url).pathname.replace(/\/$/, "");

/** A refusal, in the server's words; `status` 0 if it did not answer at all. */
export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

/** The server's description at the start: the user's rights, and the token for changes. */
export const facts = { write: false, rights: ["read"], refused: {}, csrf: "", kind: "", url: "", user: null, login: "none" };

/** Names that a browser would take for steps, with the segments that the server accepts for them. */
const STEPS = new Map([[".", "=Lg"], ["..", "=Li4"]]);
const encoded = (name) => STEPS.get(name) ?? encodeURIComponent(name);

/** The name in a segment of an address. */
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

/** Logs in or out; returns nothing. */
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

/** The queue in the address; empty if there is none. */
function hereQueue() {
  const [place, name] = location.pathname.slice(base.length + 1).split("/");
  try {
    return place === "queues" && name ? decoded(name) : "";
  } catch {
    return "";
  }
}

/** The reason why this page may not change anything; null if it may. */
export function forbidden() {
  if (!facts.write) return "this dashboard is read-only; start it with --write";
  const who = facts.user ? `user ${facts.user}` : "this login";
  const refused = facts.refused ?? {};
  if (!facts.rights.includes("operate")) return `${who} has no right to operate${refused[""] ? ` (${refused[""]})` : ""}`;
  const queue = hereQueue();
  return Object.hasOwn(refused, queue) ? `${who} may not operate queue ${queue} (${refused[queue]})` : null;
}
