// The stream of events. One connection for the page, whatever it shows.

import { base } from "./api.js";
import { Rates } from "./rates.js";

const RETRY = [500, 1000, 2000, 4000];

export class Live extends EventTarget {
  /** Events: `stats`, `events`, `workers` with the parsed data as detail, `state` with live, lost or paused. */
  constructor() {
    super();
    this.queues = new Map();
    this.state = "connecting";
    this.why = "";
    this.offset = 0;
    this.paused = false;
    this.wanted = { queue: null, workers: false };
    this.source = null;
    this.failures = 0;
    this.timer = 0;
  }

  /** Sets the needs of the visible view; reconnects only if they changed. */
  want({ queue = null, workers = false } = {}) {
    if (this.source && this.wanted.queue === queue && this.wanted.workers === workers) return;
    this.wanted = { queue, workers };
    this.connect();
  }

  connect() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
    if (this.paused) return;
    const query = new URLSearchParams();
    if (this.wanted.queue !== null) query.set("queue", this.wanted.queue);
    if (this.wanted.workers) query.set("workers", "1");
    const source = new EventSource(`${base}/api/live${query.size ? `?${query}` : ""}`);
    this.source = source;
    source.addEventListener("stats", (event) => this.onStats(JSON.parse(event.data)));
    for (const kind of ["events", "workers"]) {
      source.addEventListener(kind, (event) => {
        this.alive();
        this.dispatchEvent(new CustomEvent(kind, { detail: JSON.parse(event.data) }));
      });
    }
    // The server's report that the engine is unreachable; the connection stays.
    source.addEventListener("lost", (event) => this.become("lost", JSON.parse(event.data).error));
    source.addEventListener("back", () => this.alive());
    source.onerror = () => {
      if (source !== this.source) return;
      this.become("lost", "the dashboard's server does not answer");
      source.close();
      this.source = null;
      this.timer = setTimeout(() => this.connect(), RETRY[Math.min(this.failures++, RETRY.length - 1)]);
    };
  }

  /** Pauses or resumes the stream. */
  pause(paused) {
    this.paused = paused;
    this.connect();
    this.become(paused ? "paused" : "connecting");
  }

  alive() {
    this.failures = 0;
    if (this.state !== "live" && !this.paused) this.become("live");
  }

  become(state, why = "") {
    if (state === this.state && why === this.why) return;
    const before = this.state;
    this.state = state;
    this.why = why;
    this.dispatchEvent(new CustomEvent("state", { detail: { state, before, why } }));
  }

  onStats({ time, queues, gone = [] }) {
    this.alive();
    // The smallest observed difference of the two clocks: a late message would only increase it.
    const offset = time - Date.now() / 1000;
    this.offset = this.offset === 0 || Math.abs(offset - this.offset) > 2 ? offset : Math.max(offset, this.offset - 0.001);
    for (const [name, stats] of queues) this.note(name, stats);
    for (const name of gone) this.queues.delete(name);
    for (const queue of this.queues.values()) queue.rates.add(time, queue.stats);
    this.dispatchEvent(new CustomEvent("stats", { detail: { time, changed: queues } }));
  }

  /** Adds or updates the data of a queue. */
  note(name, stats) {
    const known = this.queues.get(name);
    if (known) known.stats = stats;
    else this.queues.set(name, { name, stats, rates: new Rates() });
  }

  /** Forgets queues that are not among these names. */
  only(names) {
    for (const name of this.queues.keys()) if (!names.has(name)) this.queues.delete(name);
  }

  /** The engine's approximate time, in seconds since 1970. */
  now() {
    return Date.now() / 1000 + this.offset;
  }
}
