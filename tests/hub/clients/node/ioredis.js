// node ioredis.js PORT PROTOCOL NAME
"use strict";

const Redis = require("ioredis");
const { version } = require("ioredis/package.json");
const { say, message, serve, numbers, summary } = require("./driver.js");

const [port, protocol, name] = process.argv.slice(2);

function open() {
  const chosen = protocol === "default" ? {} : { protocol: Number(protocol) };
  const opened = new Redis({ port: Number(port), connectionName: name, ...chosen });
  // Without a listener it prints them itself.
  opened.on("error", (error) => say("trouble", error.message));
  return new Promise((done) => opened.once("ready", () => done(opened)));
}

async function main() {
  const [commands, subscriber] = await Promise.all([open(), open()]);
  subscriber.on("message", (channel, data) => message("", channel, data));
  subscriber.on("pmessage", message);
  subscriber.on("smessage", (channel, data) => message("", channel, data));
  // It subscribes again unasked, and says nothing of it: what is asked after that is answered last.
  subscriber.on("ready", () => subscriber.ping().then(() => say("again")));

  await serve({
    version: () => version,
    ping: () => commands.ping(),
    id: () => commands.client("ID"),
    name: () => commands.client("GETNAME"),
    info: async () => (await commands.client("INFO")).trim(),
    unknown: () => commands.call("NONSENSE", "x"),
    publish: (channel, data) => commands.publish(channel, data),
    spublish: (channel, data) => commands.spublish(channel, data),
    pipeline: async (channel, count) => {
      const pipeline = commands.pipeline();
      numbers(count).forEach((number) => pipeline.publish(channel, number));
      const replies = await pipeline.exec();
      return summary(replies.map(([error, receivers]) => (error ? Promise.reject(error) : receivers)));
    },
    subscribe: (...channels) => subscriber.subscribe(...channels),
    psubscribe: (...patterns) => subscriber.psubscribe(...patterns),
    ssubscribe: (...channels) => subscriber.ssubscribe(...channels),
    unsubscribe: (...channels) => subscriber.unsubscribe(...channels),
    punsubscribe: (...patterns) => subscriber.punsubscribe(...patterns),
    sunsubscribe: (...channels) => subscriber.sunsubscribe(...channels),
    close: () => Promise.all([commands.quit(), subscriber.quit()]),
  });
}

main();
