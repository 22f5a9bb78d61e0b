// One track: the past leases on it, its messages now, and the number that waited over time.

const POINTS = 512;
/** Maximum spans stacked on a row. */
const LANES = 16;

export class Row {
  constructor(name, colour = 0) {
    this.name = name;
    this.colour = colour;
    this.spans = [];
    this.lanes = [];
    this.taken = [];
    this.wide = 1;
    this.here = new Map();
    this.open = new Map();
    this.waiting = 0;
    this.before = 0;
    this.depth = [];
  }

  /** Adds a span, which begins now, on the first free lane. Overlapping spans are readers, or a worker's. */
  begin(span) {
    let lane = this.taken.indexOf(null);
    if (lane < 0) lane = this.taken.length < LANES ? this.taken.push(null) - 1 : LANES - 1;
    this.taken[lane] = span;
    this.spans.push(span);
    this.lanes.push(lane);
    this.wide = Math.max(this.wide, lane + 1);
  }

  /** Frees the lane of a span that has ended. */
  end(span) {
    const lane = this.taken.indexOf(span);
    if (lane >= 0) this.taken[lane] = null;
  }

  /** Notes a message's state on this key; "" once it has left. */
  standing(message, state, time) {
    const was = this.here.get(message.id) ? message.state : "";
    if (state) this.here.set(message.id, message);
    else this.here.delete(message.id);
    const change = Number(state === "waiting") - Number(was === "waiting");
    if (!change) return;
    this.waiting += change;
    const last = this.depth.at(-1);
    if (last && time - last[0] < 0.02) last[1] = this.waiting;
    else this.depth.push([time, this.waiting]);
    if (this.depth.length > POINTS) this.depth.splice(0, this.depth.length - POINTS / 2);
  }

  /** The number of waiting messages, including those from before the page watched. */
  get depthNow() {
    return this.waiting + this.before;
  }

  /** The message on this key that keeps another one waiting; null if none is known. */
  inFront(message) {
    let first = null;
    for (const one of this.here.values()) {
      if (one === message) continue;
      if (one.span) return one;
      if (!first && one.state === "waiting" && before(one, message)) first = one;
    }
    return first;
  }

  /** The waiting messages, the first in line first, at most this many. */
  line(most) {
    const found = [];
    for (const one of this.here.values()) {
      if (one.state !== "waiting") continue;
      found.push(one);
      if (found.length >= most) break;
    }
    return found;
  }

  /** Drops the spans that ended before a time; returns how many. */
  trim(old) {
    const before = this.spans.length;
    if (before && this.spans.some((span) => span.end < old)) {
      const lanes = this.lanes;
      this.lanes = lanes.filter((_, at) => this.spans[at].end >= old);
      this.spans = this.spans.filter((span) => span.end >= old);
      this.wide = this.lanes.reduce((most, lane) => Math.max(most, lane + 1), 1);
    }
    let point = 0;
    while (point + 1 < this.depth.length && this.depth[point + 1][0] < old) point++;
    if (point) this.depth.splice(0, point);
    return before - this.spans.length;
  }

  isEmpty() {
    return !this.spans.length && !this.here.size && !this.open.size && !this.before;
  }
}

/** Ids are numbers as text: the shorter one is the smaller. */
const before = (one, other) => (one.id.length - other.id.length || (one.id < other.id ? -1 : 1)) < 0;
