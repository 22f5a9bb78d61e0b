// bullmq: BENCH_RATE jobs a second of all workers together, 8 at a time in each. What is done is removed. It is told what
// to do as rated.py is.

const { openSync, writeFileSync, writeSync } = require("node:fs");
const { Queue, Worker } = require("bullmq");

const broker = new URL(process.env.BENCH_BROKER);
const connection = { host: broker.hostname, port: Number(broker.port), maxRetriesPerRequest: null };
const job = (number) => ({ name: "noop", data: { number }, opts: { removeOnComplete: true } });

async function enqueue() {
  const queue = new Queue("load", { connection });
  await queue.addBulk([job(0)]);
  await new Promise((resume) => setTimeout(resume, 1000 * Number(process.env.BENCH_PAUSE)));
  const others = Number(process.env.BENCH_COUNT) - 1;
  await queue.addBulk(Array.from({ length: others }, (_, place) => job(place + 1)));
  await queue.close();
}

async function work() {
  const times = openSync(process.env.BENCH_TIMES, "a");
  const handle = async ({ data }) => {
    writeSync(times, `${process.hrtime.bigint()} ${data.number} .\n`);
  };
  const limiter = { max: Number(process.env.BENCH_RATE), duration: 1000 };
  const worker = new Worker("load", handle, { connection, concurrency: 8, limiter });
  await worker.waitUntilReady();
  writeFileSync(process.env.BENCH_READY, "");
}

process.argv[2] === "work" ? work() : enqueue();
