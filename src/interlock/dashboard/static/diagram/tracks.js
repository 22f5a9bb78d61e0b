// The recent history of one queue: leases with their holders, and waiting messages. Made from
// events, of bounded size.

import { Row } from "./row.js";

export const SPANS = 20_000;
export const MESSAGES = 20_000;
export const ROWS = 2_000;
/** Seconds that are kept behind now. */
export const KEPT = 300;

const CLOSED = { ack: "acked", release: "released", defer: "deferred", lease_expired: "lost", retry: "failed", dead: "dead", hold: "held", skip: "skipped", cancel: "cancelled", message_expired: "expired", due: "over", readied: "over" };
/** The states in which a message closes its keys to others. */
export const HOLDS = new Set(["leased", "backing_off", "held"]);

export class Tracks {
  constructor({ spans = SPANS, messages = MESSAGES, rows = ROWS } = {}) {
    this.most = { spans, messages, rows };
    this.messages = new Map();
    this.keys = new Map();
    this.workers = new Map();
    this.numbers = new Map();
    this.last = null;
    this.missed = 0;
    this.latest = 0;
    this.spanCount = 0;
    this.waits = [];
    this.waitAt = 0;
    this.trimmed = 0;
    /** Messages that ended since the start: answers requested before are outdated for them. Null once those answers have arrived. */
    this.gone = new Set();
  }

  /** Adds the live stream's events: [number, time, kind, id, attempt, token, consumer, error, keys, shared]. */
  add({ events, missed = 0 }) {
    this.missed += missed;
    if (missed) this.forgetOpen();
    for (const event of events) {
      if (this.last !== null && event[0] <= this.last) continue;
      this.last = event[0];
      this.take(event);
    }
    this.trim();
  }

  take([, micros, kind, idGiven, attempt, , consumer, error, keys, shared]) {
    const id = String(idGiven);
    const time = Number(micros) / 1e6;
    this.latest = Math.max(this.latest, time);
    const message = this.messages.get(id) ?? this.enter(id, keys, shared, kind, time);
    message.attempt = Number(attempt) || message.attempt;
    if (error) message.error = error;
    switch (kind) {
      case "put": this.become(message, "waiting", time); break;
      case "due": case "readied": case "release": this.become(message, "waiting", time, CLOSED[kind]); break;
      case "lease":
        this.noteWait(message, time);
        message.worker = workerOf(consumer);
        this.become(message, "leased", time);
        break;
      case "lease_expired": this.close(message, time, CLOSED[kind]); break;
      case "retry": case "defer": this.become(message, "backing_off", time, CLOSED[kind]); break;
      case "hold": this.become(message, "held", time, CLOSED[kind]); break;
      default: this.leave(message, time, CLOSED[kind] ?? kind);
    }
  }

  /** A message seen for the first time; without a put event it existed before. */
  enter(id, keys, shared, kind, time) {
    const message = { id, keys: keys ?? [], shared: shared ?? [], state: "", since: time, unsure: "", attempt: 1, worker: "", error: "", span: null, rows: [], known: kind === "put" };
    for (const key of [...message.keys, ...message.shared]) {
      const row = this.row(this.keys, key);
      if (!row) continue;
      message.rows.push(row);
      if (kind !== "put" && row.before > 0) row.before--;
    }
    this.messages.set(id, message);
    return message;
  }

  row(rows, name) {
    let row = rows.get(name);
    if (!row && rows.size < this.most.rows) rows.set(name, row = new Row(name, this.number(rows, name)));
    return row;
  }

  /** A colour for each name, the same as long as the name is known. */
  number(rows, name) {
    if (rows !== this.workers) return 0;
    let number = this.numbers.get(name);
    if (number === undefined) {
      if (this.numbers.size > 4096) this.numbers.clear();
      this.numbers.set(name, number = this.numbers.size % 8);
    }
    return number;
  }

  become(message, state, time, outcome) {
    this.close(message, time, outcome);
    for (const row of message.rows) row.standing(message, state, time);
    message.state = state;
    message.since = time;
    message.unsure = "";
    if (!HOLDS.has(state)) return;
    const worker = state === "leased" && message.worker ? this.row(this.workers, message.worker) : null;
    const span = {
      id: message.id, start: time, end: Infinity, kind: state, outcome: "", attempt: message.attempt,
      worker: state === "leased" ? message.worker : "", colour: worker?.colour ?? 8, keys: message.keys, shared: message.shared,
    };
    message.span = span;
    for (const row of message.rows) this.draw(row, span);
    if (worker) {
      this.draw(worker, span);
      worker.open.set(message.id, message);
    }
  }

  draw(row, span) {
    row.begin(span);
    this.spanCount++;
  }

  /** Ends a message's spans. */
  close(message, time, outcome = "") {
    const span = message.span;
    if (!span) return;
    span.end = Math.max(span.start, time);
    span.outcome = outcome;
    message.span = null;
    const worker = this.workers.get(span.worker);
    worker?.open.delete(message.id);
    worker?.end(span);
    for (const row of message.rows) row.end(span);
  }

  leave(message, time, outcome) {
    this.close(message, time, outcome);
    for (const row of message.rows) row.standing(message, "", time);
    this.messages.delete(message.id);
    if (this.gone?.size >= this.most.messages) this.gone.clear();
    this.gone?.add(message.id);
  }

  /**
   * What held keys before anybody watched: [{id, state, keys, shared, worker, since, attempt, error}].
   * Without a `since` it is not known since when: what is leased is drawn from `now` on, else from its put.
   */
  seed(found, now = this.latest) {
    for (const { id, state = "leased", keys, shared = [], worker = "", since = null, attempt = 1, error = "" } of found) {
      if (this.messages.has(String(id)) || this.gone?.has(String(id))) continue;
      const message = this.enter(String(id), keys, shared, "seed", since);
      Object.assign(message, { worker, attempt, error });
      this.become(message, state, since ?? (state === "leased" && now ? now : Number(id) / 1e6));
      if (since === null) message.unsure = state === "leased" ? "at least " : "up to ";
    }
    this.gone = null;
  }

  /** The engine's counts of unsettled messages of keys: [{key, waiting}]. */
  depths(hot) {
    for (const { key, waiting } of hot) {
      const row = this.row(this.keys, key);
      if (row) row.before = Math.max(0, waiting - row.here.size);
    }
  }

  noteWait(message, time) {
    const from = message.state === "waiting" ? message.since : message.attempt === 1 && !message.known ? Number(message.id) / 1e6 : null;
    if (from === null || from > time || time - from > 1e8) return;
    this.waits[this.waitAt] = { wait: time - from, key: message.keys[0] ?? message.shared[0] ?? "" };
    this.waitAt = (this.waitAt + 1) % 4096;
  }

  /** After missed events, open spans are no longer known. */
  forgetOpen() {
    for (const message of [...this.messages.values()]) this.leave(message, this.latest, "unknown");
  }

  /** Removes spans that are too old or too many. */
  trim() {
    const full = this.spanCount > this.most.spans || this.messages.size > this.most.messages;
    if (!full && this.latest - this.trimmed < 1) return;
    this.trimmed = this.latest;
    const old = this.latest - KEPT;
    for (const rows of [this.keys, this.workers]) {
      for (const [name, row] of rows) {
        this.spanCount -= row.trim(old);
        if (row.isEmpty()) rows.delete(name);
      }
    }
    for (const [id, message] of this.messages) {
      if (this.messages.size <= this.most.messages) break;
      this.leave(message, this.latest, "unknown");
      this.messages.delete(id);
    }
    for (let part = KEPT / 2; this.spanCount > this.most.spans && part > 1; part /= 2) {
      for (const rows of [this.keys, this.workers]) for (const row of rows.values()) this.spanCount -= row.trim(this.latest - part);
    }
  }

  /** The messages that hold up this one, by key: those in front that close a key, else those before it. */
  blockers(id) {
    const message = this.messages.get(id);
    if (!message || message.state !== "waiting") return [];
    const found = [];
    for (const row of message.rows) {
      const before = row.inFront(message);
      if (before) found.push({ key: row.name, message: before });
    }
    return found;
  }
}

/** The worker in a consumer's name: host, process and a mark, without its thread's part. */
export const workerOf = (consumer) => String(consumer ?? "").split("/").slice(0, 3).join("/");
