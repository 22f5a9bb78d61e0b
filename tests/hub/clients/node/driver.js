// Shared parts of both clients of Node: commands come in by lines, replies and events go out by lines.
// tests/hub/protocol/foreign.py says which.
"use strict";

const readline = require("node:readline");

function say(...words) {
  process.stdout.write(words.join("\t") + "\n");
}

function message(pattern, channel, data) {
  say("message", pattern, channel, data);
}

// Each verb is a method of the client that answers what to print. One ends before the next begins.
async function serve(client) {
  say("connected");
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [verb, ...words] = line.split(" ");
    try {
      say("=", await client[verb](...words));
    } catch (error) {
      say("!", error.constructor.name, error.message);
    }
  }
  await client.close();
}

function numbers(count) {
  return Array.from({ length: Number(count) }, (_, number) => String(number));
}

// How many were answered, and how many receivers they had in all.
function summary(receivers) {
  return [receivers.length, receivers.reduce((sum, one) => sum + one, 0)].join(" ");
}

module.exports = { say, message, serve, numbers, summary };
