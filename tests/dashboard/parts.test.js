// The parts of the pages that need no page: what events make of the diagram, figures, waits, addresses.

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { SourceTextModule } from "node:vm";

globalThis.location = { pathname: "/", search: "" };
globalThis.document = { documentElement: { dataset: {} } };

const { Tracks, workerOf } = await import("./static/diagram/tracks.js");
const { clock, firstSeen, held, ordered, shapeOf } = await import("./static/diagram/layout.js");
const { AXIS, Layout } = await import("./static/timeline/layout.js");
const { fitted } = await import("./static/timeline/text.js");
const { binned, byKey } = await import("./static/diagram/waits.js");
const { bytes, coarse, count, iso, lasting, rate, shorten } = await import("./static/format.js");
const { visible } = await import("./static/dom.js");
const { path } = await import("./static/api.js");
const { matched } = await import("./static/router.js");
const { Rates } = await import("./static/rates.js");
const { treeOf } = await import("./static/parts/chain.js");
const { isExact } = await import("./static/parts/payload.js");
const { mostText, optionText } = await import("./static/parts/options.js");
const { path: spark } = await import("./static/parts/spark.js");

test("every script parses", () => {
  const scripts = ["", "timeline/"].flatMap((folder) => readdirSync(`static/${folder}`, { recursive: true }).map((name) => folder + name)).filter((name) => name.endsWith(".js"));
  assert.ok(scripts.length > 30);
  for (const name of scripts) new SourceTextModule(readFileSync(`static/${name}`, "utf8"), { identifier: name });
});

test("text from outside shows what cannot be seen, and what reorders it", () => {
  assert.equal(visible("a\u202eb\u2066\u200f\u061c"), "a\\u202eb\\u2066\\u200f\\u061c");
  assert.equal(visible("\x1b[2J\r\0\x7f\x9b"), "\\x1b[2J\\x0d\\x00\\x7f\\x9b");
  assert.equal(visible("\u2028\u200b\ufeff\u{e0041}\ud800"), "\\u2028\\u200b\\ufeff\\U000e0041\\ud800");
  assert.equal(visible("größe 名 שלום 🎉\n\tb"), "größe 名 שלום 🎉\n\tb");
  assert.equal(visible(5), "5");
});

let number = 0;
const event = (seconds, kind, id, keys = ["a"], more = {}) => [
  ++number, seconds * 1e6, kind, String(id), more.attempt ?? 1, 1, more.consumer ?? "", more.error ?? "", keys, more.shared ?? []];
const told = (tracks, ...events) => tracks.add({ events, missed: 0 });

test("a message is drawn on each of its keys and on its worker, from its lease to its end", () => {
  const tracks = new Tracks();
  told(tracks, event(10, "put", 1, ["a", "b"]), event(11, "lease", 1, ["a", "b"], { consumer: "web/4/x/thread" }));
  const [a, b] = [tracks.keys.get("a"), tracks.keys.get("b")];
  assert.deepEqual(a.spans, b.spans);
  assert.deepEqual([a.spans[0].start, a.spans[0].end, a.spans[0].worker], [11, Infinity, "web/4/x"]);
  assert.equal(tracks.workers.get("web/4/x").open.size, 1);
  told(tracks, event(13, "ack", 1, ["a", "b"]));
  assert.deepEqual([a.spans[0].end, a.spans[0].outcome, a.here.size], [13, "acked", 0]);
  assert.equal(tracks.workers.get("web/4/x").open.size, 0);
  assert.deepEqual(tracks.waits, [{ wait: 1, key: "a" }]);
});

test("failures, backoff, holding and what an operator does about it", () => {
  const tracks = new Tracks();
  told(tracks, event(1, "put", 1), event(2, "lease", 1), event(3, "retry", 1, ["a"], { error: "E" }));
  const row = tracks.keys.get("a");
  assert.deepEqual(row.spans.map((span) => [span.kind, span.outcome]), [["leased", "failed"], ["backing_off", ""]]);
  told(tracks, event(5, "due", 1), event(6, "lease", 1), event(7, "hold", 1));
  assert.equal(tracks.messages.get("1").state, "held");
  told(tracks, event(8, "readied", 1), event(9, "lease", 1), event(10, "lease_expired", 1), event(10, "dead", 1));
  assert.equal(tracks.messages.size, 0);
  assert.equal(row.spans.at(-1).outcome, "lost");
  assert.ok(row.spans.every((span) => span.end < Infinity));
});

test("what waits is counted over time, and known from before by how deep the key was", () => {
  const tracks = new Tracks();
  told(tracks, event(1, "put", 5), event(2, "put", 6));
  const row = tracks.keys.get("a");
  assert.deepEqual(row.depth, [[1, 1], [2, 2]]);
  tracks.depths([{ key: "a", waiting: 12 }]);
  assert.equal(row.depthNow, 12);
  told(tracks, event(3, "lease", 2));
  assert.equal(row.depthNow, 11);
  told(tracks, event(4, "lease", 5));
  assert.equal(row.depthNow, 10);
});

test("a message waits for those before it on its keys", () => {
  const tracks = new Tracks();
  told(tracks, event(1, "put", 1, ["a"]), event(2, "put", 2, ["a", "b"]), event(3, "put", 3, ["b"]), event(4, "lease", 1, ["a"]));
  assert.deepEqual(tracks.blockers("2").map((one) => [one.key, one.message.id]), [["a", "1"]]);
  assert.deepEqual(tracks.blockers("3").map((one) => [one.key, one.message.id]), [["b", "2"]]);
  assert.deepEqual(tracks.blockers("1"), []);
});

test("events that come twice count once, and missed ones end what is not known any more", () => {
  const tracks = new Tracks();
  const put = event(1, "put", 1);
  told(tracks, put, put);
  assert.equal(tracks.keys.get("a").waiting, 1);
  tracks.add({ last: null, missed: 7, events: [] });
  assert.deepEqual([tracks.missed, tracks.messages.size, tracks.keys.get("a").waiting], [7, 0, 0]);
});

test("what held keys before is drawn from the beginning, once", () => {
  const tracks = new Tracks();
  tracks.seed([{ id: "7000000", state: "held", keys: ["a"] }, { id: "8", keys: ["b"], worker: "w", since: 20 }]);
  tracks.seed([{ id: "8", keys: ["b"] }]);
  assert.deepEqual(tracks.keys.get("a").spans.map((span) => [span.kind, span.start]), [["held", 7]]);
  assert.equal(tracks.messages.get("7000000").unsure, "up to ");
  assert.equal(tracks.keys.get("b").spans.length, 1);
  told(tracks, event(30, "ack", 8, ["b"]));
  assert.equal(tracks.keys.get("b").spans[0].end, 30);
});

test("readers of a key that overlap stand one above the other", () => {
  const tracks = new Tracks();
  for (const id of [1, 2, 3]) told(tracks, event(id, "lease", id, [], { shared: ["a"] }));
  const row = tracks.keys.get("a");
  assert.deepEqual([row.lanes, row.wide], [[0, 1, 2], 3]);
  told(tracks, event(4, "ack", 2, [], { shared: ["a"] }), event(5, "lease", 4, [], { shared: ["a"] }));
  assert.deepEqual(row.lanes, [0, 1, 2, 1]);
});

test("nothing grows beyond its bounds", () => {
  const tracks = new Tracks({ spans: 200, messages: 100, rows: 50 });
  for (let n = 0; n < 5000; n++) {
    told(tracks, event(n / 10, "put", n, [`k${n % 80}`]), event(n / 10, "lease", n, [`k${n % 80}`]));
    if (n % 3) told(tracks, event(n / 10 + 0.05, "ack", n, [`k${n % 80}`]));
  }
  assert.ok(tracks.spanCount <= 320 && tracks.messages.size <= 101 && tracks.keys.size <= 50);
  const spans = [...tracks.keys.values(), ...tracks.workers.values()].reduce((sum, row) => sum + row.spans.length, 0);
  assert.equal(spans, tracks.spanCount);
  assert.ok(tracks.waits.length <= 4096 && tracks.gone.size <= 100);
});

test("time and tracks have their places", () => {
  const layout = new Layout({ ...shapeOf("key"), width: 1200, height: 300, right: 120, from: 990, to: 1000, top: 48 });
  assert.equal(Math.round(layout.x(1000)), layout.end);
  assert.ok(Math.abs(layout.time(layout.x(995)) - 995) < 1e-9);
  assert.equal(layout.rowAt(layout.y(5) + 1), 5);
  assert.equal(layout.rowAt(AXIS - 1), -1);
  assert.deepEqual(layout.inSight(100), [2, 13]);
  assert.equal(layout.lowest(100), 100 * 24 - (300 - AXIS));
  const marks = layout.marks((time) => time);
  assert.ok(marks.every(({ x }) => x > layout.gutter - 1 && x <= layout.end));
  assert.deepEqual(marks.map(({ text }) => text), [990, 992, 994, 996, 998, 1000]);
  const row = { name: "a", depthNow: 0, spans: [{ start: 990, end: 994 }, { start: 999, end: Infinity }] };
  assert.equal(held(row, 992, 1000), 3);
  const idle = { name: "b", depthNow: 9, spans: [] };
  assert.deepEqual(ordered([idle, row], "busy", 992, 1000).map((one) => one.name), ["a", "b"]);
  assert.deepEqual(ordered([row, idle], "waiting", 992, 1000).map((one) => one.name), ["b", "a"]);
  assert.equal(firstSeen(Array.from({ length: 200 }, (_, n) => ({ end: 900 + n })), 990), 26);
  assert.equal(clock(1795478400.5, 1), "00:00:00");
});

test("the pointer finds the block under it, or the narrow messages beside it", () => {
  const layout = new Layout({ width: 1100, height: 300, gutter: 100, from: 0, to: 10, row: 40, inset: [4, 4] });
  const spans = [[1, 4, 0, 2, "lower"], [2, 3, 1, 2, "upper"], [5, 5.01, 0, 1, "brief"], [5.015, 5.02, 0, 1, "next"]];
  const rows = { count: 1, spans: (row, from, to, give) => spans.forEach(([start, end, place, places, item]) => give(start, end, 0, place, places, item)) };
  const [low, high] = [layout.y(0) + 30, layout.y(0) + 8];
  assert.equal(layout.under(rows, layout.x(2.5), low).exact, "lower");
  assert.equal(layout.under(rows, layout.x(2.5), high).exact, "upper");
  assert.deepEqual(layout.under(rows, layout.x(3.5), high).found, []);
  const brief = layout.under(rows, layout.x(5.01), low);
  assert.deepEqual([brief.exact, brief.found], [null, ["brief", "next"]]);
  assert.equal(layout.under(rows, 50, low).row, -1);
  assert.equal(layout.under(rows, layout.x(1), layout.y(1) + 1).row, -1);
});

test("a name in one line is cut in its middle, and never within a letter", () => {
  assert.equal(fitted("a\n b\u202ec", 20), "a b\\u202ec");
  assert.equal(fitted("ab🔑cdefgh", 6), "ab…gh");
  assert.equal(fitted("x".repeat(1e6), 9), "xxxx…xxxx");
});

test("waits fall into bars", () => {
  const bins = binned([0, 0.0005, 0.02, 1e9]);
  assert.deepEqual([bins[0], bins[3], bins.at(-1)], [2, 1, 1]);
  const rows = byKey([{ wait: 1, key: "a" }, { wait: 3, key: "a" }, { wait: 9, key: "b" }], 8);
  assert.deepEqual(rows.map((row) => [row.key, row.count, row.median, row.longest]), [["b", 1, 9, 9], ["a", 2, 3, 3]]);
});

test("figures and times have the same form everywhere", () => {
  assert.deepEqual([0, 7.89e-4, 0.0456, 1.234, 75, 7500, 273600].map(lasting), ["0 s", "789 µs", "45.6 ms", "1.23 s", "1 min 15 s", "2 h 5 min", "3 d 4 h"]);
  assert.deepEqual([0.2, 12.7, 60].map(coarse), ["< 1 s", "12 s", "1 min"]);
  assert.equal(iso(1795478401.25), "2026-11-24 00:00:01.250Z");
  assert.equal(iso("no time"), "–");
  assert.deepEqual([count(1234567), rate(0.01), rate(3.14159), rate(1240)], ["1,234,567", "0", "3.1", "1,240"]);
  assert.deepEqual([bytes(12), bytes(2048), bytes(5e6)], ["12 B", "2.0 KiB", "4.8 MiB"]);
  assert.equal(shorten("abcdefghij", 5), "ab…ij");
  assert.equal(lasting(100), "1 min 40 s");
  assert.deepEqual([optionText("first", "1000000"), optionText("factor", "2000"), optionText("then", "dead"), optionText("maxsize", "0")], ["1 s", "× 2", "dead", "no bound"]);
  assert.deepEqual([optionText("limits", "bank=4\x1ftenant:*=2"), optionText("limits", "")], ["bank=4, tenant:*=2", "none"]);
});

test("addresses carry any name", () => {
  assert.deepEqual(matched(["queues", ":queue"], ["queues", "a%2Fb%20%C3%A4"]), { queue: "a/b ä" });
  assert.equal(matched(["queues", ":queue"], ["queues", "%E0%A4%A"]), null);
  for (const name of [".", "..", "=Li4", "a/b", "constructor"]) {
    const address = path("queues", name);
    assert.equal(new URL(address, "http://a/").pathname, address);
    assert.deepEqual(matched(["queues", ":queue"], address.split("/").slice(1)), { queue: name });
  }
  assert.equal(matched(["queues", ":queue"], ["queues", ""]), null);
  assert.equal(workerOf("web/4/x/thread/7"), "web/4/x");
});

test("rates are of the last minute, and counters that restart give no rate", () => {
  const rates = new Rates();
  for (let second = 0; second < 100; second++) rates.add(second, { puts: second * 5, acks: second * 2 });
  assert.deepEqual([rates.recent("put"), rates.recent("done"), rates.series("put").length], [5, 2, 60]);
  rates.add(100, { puts: 0, acks: 0 });
  assert.ok(rates.series("put").every((value) => value >= 0));
  assert.ok(spark([0, 1, 2]).startsWith("M0.0 "));
});

test("an explanation becomes a tree in which each message stands once", () => {
  const node = (id, ...because) => ({ id, because: because.map(([key, ...holders]) => ({ key, holders, ahead: 1, exact: true })) });
  const top = treeOf([node("4", ["a", "3"], ["b", "2"]), node("3", ["c", "2"]), node("2", ["d", "9"])]);
  const [a, b] = top.why;
  assert.equal(a.holders[0].item.node.id, "3");
  assert.deepEqual(b.holders[0].item.node.id, "2");
  assert.deepEqual(a.holders[0].item.why[0].holders[0], { again: "2", known: true });
  assert.deepEqual(b.holders[0].item.why[0].holders[0], { again: "9", known: false });
});

test("whole numbers that a browser would round are not edited", () => {
  assert.ok(isExact([1, { a: 2 ** 53 - 1, b: 0.5 }, null, "x"]));
  assert.ok(!isExact({ a: [2 ** 53] }));
});

test("a limit is a number, a rate by the second, or a rate by longer times", () => {
  assert.equal(mostText({ most: 4, interval: null, burst: null }), "4");
  assert.equal(mostText({ most: null, interval: null, burst: null }), "any number");
  assert.equal(mostText({ most: null, interval: 0.1, burst: 20 }), "10 per s, 20 at once");
  assert.equal(mostText({ most: null, interval: 30, burst: 1 }), "1 per 30 s");
});

test("limits and weights are lists, rates in seconds", () => {
  assert.equal(optionText("limits", "api=10/1000000:20\x1fbank=4"), "api=10/1 s:20, bank=4");
  assert.equal(optionText("weights", "acme=3\x1ffree:*=1"), "acme=3, free:*=1");
});
