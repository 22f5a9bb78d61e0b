// node node_redis.js PORT PROTOCOL NAME
"use strict";

const { createClient } = require("redis");
const { version } = require("redis/package.json");
const { say, message, serve, numbers, summary } = require("./driver.js");

const [port, protocol, name] = process.argv.slice(2);

function open() {
  const chosen = protocol === "default" ? {} : { RESP: Number(protocol) };
  const opened = createClient({ socket: { port: Number(port) }, name, ...chosen });
  // Without a listener the first would end the process.
  opened.on("error", (error) => say("trouble", error.message || error.code));
  return opened.connect();
}

// Its methods take several names and one listener.
async function each(names, subscribe) {
  for (const one of names) {
    await subscribe(one);
  }
}

async function main() {
  const [commands, subscriber] = await Promise.all([open(), open()]);
  const plain = (data, channel) => message("", channel, data);
  const matched = (pattern) => (data, channel) => message(pattern, channel, data);
  // Said once the server has confirmed every subscription of before.
  subscriber.on("ready", () => say("again"));

  await serve({
    version: () => version,
    ping: () => commands.ping(),
    id: () => commands.clientId(),
    name: () => commands.clientGetName(),
    info: async () => {
      const info = await commands.clientInfo();
      return `id=${info.id} name=${info.name} sub=${info.sub} db=${info.db} resp=${info.resp}`;
    },
    unknown: () => commands.sendCommand(["NONSENSE", "x"]),
    publish: (channel, data) => commands.publish(channel, data),
    spublish: (channel, data) => commands.sPublish(channel, data),
    pipeline: async (channel, count) => {
      const pipeline = commands.multi();
      numbers(count).forEach((number) => pipeline.publish(channel, number));
      return summary(await pipeline.execAsPipeline());
    },
    subscribe: (...channels) => subscriber.subscribe(channels, plain),
    psubscribe: (...patterns) => each(patterns, (one) => subscriber.pSubscribe(one, matched(one))),
    ssubscribe: (...channels) => subscriber.sSubscribe(channels, plain),
    unsubscribe: (...channels) => subscriber.unsubscribe(channels),
    punsubscribe: (...patterns) => subscriber.pUnsubscribe(patterns),
    sunsubscribe: (...channels) => subscriber.sUnsubscribe(channels),
    close: () => Promise.all([commands.close(), subscriber.close()]),
  });
}

main();
