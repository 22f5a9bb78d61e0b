// bullmq: one process, up to 50 tasks at a time, or BENCH_HANDLERS. What is done is removed. It is told what to do as
// the programs in Python are: see ../program.py and ../handled.py.

const { writeFileSync } = require("node:fs");
const { Queue, Worker } = require("bullmq");

const broker = new URL(process.env.BENCH_BROKER);
const connection = { host: broker.hostname, port: Number(broker.port), maxRetriesPerRequest: null };
const count = Number(process.env.BENCH_COUNT);

async function enqueue() {
  const queue = new Queue("load", { connection });
  await queue.waitUntilReady();
  const start = process.hrtime.bigint();
  for (let number = 0; number < count; number++) {
    await queue.add("noop", { number }, { removeOnComplete: true });
  }
  const seconds = Number(process.hrtime.bigint() - start) / 1e9;
  await queue.close();
  console.log(JSON.stringify({ seconds }));
}

function work() {
  const seen = new Set();
  let handled = 0;
  let first;
  new Worker(
    "load",
    async (job) => {
      if (handled++ === 0) first = process.hrtime.bigint();
      seen.add(job.data.number);
      if (handled === count) {
        const seconds = Number(process.hrtime.bigint() - first) / 1e9;
        const line = JSON.stringify({ seconds, handled: seen.size });
        writeFileSync(process.env.BENCH_DONE, line + "\n");
      }
    },
    { connection, concurrency: Number(process.env.BENCH_HANDLERS ?? 50) },
  );
}

process.argv[2] === "work" ? work() : enqueue();
