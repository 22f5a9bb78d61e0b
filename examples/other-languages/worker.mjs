// node worker.mjs PORT: puts three messages with keys, then handles what is in the queue.
import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";
import Redis from "ioredis";

const QUEUE = "il:{orders}";
const me = `node-${randomUUID()}`; // never used before, nor by anybody else
const LEASE = 30_000_000; // µs
const WAIT = 5_000_000;

const redis = new Redis(Number(process.argv[2]));
const sleeper = redis.duplicate(); // BLPOP keeps a connection to itself
for (const client of [redis, sleeper]) client.on("error", (error) => console.error(error.message));
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

// A call that is sent again after a lost connection has the same number, so it is done once.
let number = 0;
const call = (name, ...words) => redis.fcall(name, 1, QUEUE, me, ++number, ...words);

const message = (payload, ...keys) => [payload, keys.length, 0, 0, ...keys];

async function lease(count) {
  const reply = await call("il1_lease", WAIT, count, LEASE, "any");
  const [token, , next, found] = reply;
  const messages = [];
  for (let at = 4; messages.length < Number(found); ) {
    const [id, , attempt, payload, exclusive, shared] = reply.slice(at, at + 6);
    messages.push({ token, id, attempt, payload });
    at += 6 + Number(exclusive) + Number(shared);
  }
  return { messages, next };
}

// Redis answers at once. Its functions push an element when a message may be ready.
async function sleep(next) {
  const due = next === "" ? WAIT : Math.min(Number(next), WAIT);
  if (due > 0) await sleeper.blpop(`${QUEUE}:wake:any`, Math.max(due / 1e6, 0.001));
}

async function settle(...settlement) {
  const [answer] = await call("il1_settle", ...settlement);
  if (answer === "LEASELOST") return "lost: somebody else has it now, so nothing was settled";
  return answer;
}

// Stands for the work: takes until a line is typed. "fail" fails; the end of input ends the worker.
async function handle({ id, attempt, payload }) {
  console.log(`handling ${id} ${payload} attempt ${attempt}`);
  const { value, done } = await lines.next();
  if (done) process.exit(0);
  if (value === "fail") throw new Error("told to fail");
}

const [, , ...features] = await redis.fcall("il1_version", 0);
const parks = features.includes("parks"); // then il1_lease itself waits

const put = await call("il1_put", 0,
  ...message("open ann", "account:ann"),
  ...message("ann to bob", "account:ann", "account:bob"),
  ...message("close bob", "account:bob"));
console.log(`put ${put[0]} ${put[2]} ${put[4]}`);

for (;;) {
  const { messages, next } = await lease(1);
  if (next === "sealed") process.exit(0); // by an operator, and all is settled
  if (messages.length === 0 && !parks) await sleep(next);
  for (const one of messages) {
    try {
      await handle(one);
      console.log(await settle("ACK", one.token, one.id));
    } catch (error) {
      // An empty delay: the backoff of the retry policy.
      console.log(await settle("NACK", one.token, one.id, "", error.message));
    }
  }
}
