// The last minute of each queue: puts and completions, one figure a second.

export const SECONDS = 60;

/** Counters of one queue converted to rates, in rings of a fixed size. */
export class Rates {
  constructor() {
    this.put = new Float32Array(SECONDS);
    this.done = new Float32Array(SECONDS);
    this.next = 0;
    this.known = 0;
    this.last = null;
  }

  /** Adds the counters of a time in seconds. A counter that fell was reset. */
  add(time, stats) {
    const now = { time, put: stats.puts ?? 0, done: stats.acks ?? 0 };
    const last = this.last;
    if (last && time - last.time < 0.25) return;
    this.last = now;
    if (!last) return;
    const seconds = time - last.time;
    this.put[this.next] = Math.max(0, now.put - last.put) / seconds;
    this.done[this.next] = Math.max(0, now.done - last.done) / seconds;
    this.next = (this.next + 1) % SECONDS;
    this.known = Math.min(SECONDS, this.known + 1);
  }

  /** The mean of the last three seconds. */
  recent(of) {
    const over = Math.min(3, this.known);
    let sum = 0;
    for (let back = 1; back <= over; back++) sum += this[of][(this.next - back + SECONDS) % SECONDS];
    return over ? sum / over : 0;
  }

  /** All of a ring, the oldest first; zeros before the first. */
  series(of) {
    const ring = this[of];
    const found = new Array(SECONDS);
    for (let n = 0; n < SECONDS; n++) found[n] = ring[(this.next + n) % SECONDS];
    return found;
  }
}
