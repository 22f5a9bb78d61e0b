// The text next to the drawing: figures, legend, findings, and the chosen message. Ids and keys
// come from the trace: they only ever reach the page as text, never as markup.

const panel = document.getElementById("panel");
const tip = document.getElementById("tip");
const shownOfChain = 200;

/** An element with properties and children; a child may be a text. */
function make(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children.filter((child) => child !== null));
  return made;
}

const swatch = (shade) => {
  const made = make("i", { className: "swatch" });
  made.style.background = paint.fills[shade];
  return made;
};

function pairs(entries) {
  return make("dl", { className: "pairs" },
    ...entries.flatMap(([term, text]) => [make("dt", {}, term), make("dd", {}, text)]));
}

/** A button that chooses a message; its id, its keys, and one figure. */
function messageButton(i, figure, className = "row") {
  const keys = keyNames(i);
  return make("button", {
    type: "button", className, title: `${run.ids[i]}: ${keys || "no key"}`,
    onclick: () => choose(i, { follow: true }),
  }, swatch(colour.of[i]), make("b", {}, run.ids[i]), make("span", { className: "of" }, keys || "no key"),
  make("span", { className: "figure" }, figure));
}

function keyNames(i, most = 3) {
  const names = [];
  for (let h = held[i]; h < Math.min(held[i + 1], held[i] + most); h++) names.push(run.keys[holds[h] >> 1]);
  const more = held[i + 1] - held[i] - names.length;
  return names.join(", ") + (more > 0 ? ` and ${number.format(more)} more` : "");
}

function keyButton(key, figure, className = "row") {
  return make("button", {
    type: "button", className, title: run.keys[key], onclick: () => chooseKey(key),
  }, make("b", { className: "name" }, run.keys[key]), figure === null ? null : make("span", { className: "figure" }, figure));
}

function showFigures() {
  document.getElementById("title").textContent = run.title;
  const used = workerBusy.reduce((sum, busy) => sum + busy, 0) / (run.workers * run.seconds || 1);
  const near = run.limit > 0 ? (run.seconds / run.limit).toFixed(2) : "0";
  const entries = [
    ["messages", number.format(total)], ["keys", number.format(keyTotal)],
    ["workers", number.format(run.workers)], ["time", lasting(run.seconds)],
    ["limit", lasting(run.limit), "No schedule of these workers could be shorter: the larger of the critical path and all handler time divided by the workers"],
    ["times the limit", near, "Time divided by the limit"],
    ["utilisation", percent(used), "Share of all workers' time spent in handlers"],
  ];
  document.getElementById("figures").replaceChildren(...entries.map(([name, value, title = ""]) =>
    make("div", { title }, make("dt", {}, name), make("dd", {}, value))));
}

function showLegend() {
  const entry = (shade, text) => make("span", {}, swatch(shade), text);
  const most = 24;
  let entries;
  if (colour.by === "key") {
    entries = Array.from(keyOrder.subarray(0, colours), (key, n) => entry(n, shorten(run.keys[key], most)));
    if (keyTotal > colours) entries.push(entry(otherColour, "other keys"));
    if (unkeyed) entries.push(entry(noColour, "no key"));
  } else if (colour.by === "worker") {
    entries = Array.from({ length: Math.min(colours, run.workers) }, (_, n) => entry(n, `worker ${n}`));
    if (run.workers > colours) entries.push(make("span", {}, `then again from the first`));
  } else {
    entries = blockedSteps.map((bound, n) => entry(n,
      n === 0 ? "not at all" : bound === Infinity ? "longer" : `up to ${lasting(bound).replace(/\.0+ /, " ")}`));
  }
  entries.push(make("span", { className: "note" }, "narrow messages are gathered: height = how busy"));
  document.getElementById("legend").replaceChildren(...entries);
}

function showPanel(among = 0) {
  if (picked.message >= 0) showMessage(picked.message, among);
  else if (picked.key >= 0) showKey(picked.key);
  else showStart();
  panel.scrollTop = 0;
}

function showStart() {
  const heaviest = largest(1, (i) => (behind[i] < 0 ? 0 : chainBusy[i]));
  const waits = largest(8, blocked);
  panel.replaceChildren(
    make("p", { className: "hint" }, total ? "Click a message to see what it waited for." : "The run handled no message."),
    ...heaviest.flatMap((i) => [make("h2", {}, "Heaviest chain"), make("p", {},
      `${counted(chainLength[i], "message")} that waited for one another, ${lasting(chainBusy[i])} of handlers.`),
    messageButton(i, lasting(chainBusy[i]))]),
    ...(waits.length ? [make("h2", {}, "Waited longest behind their keys"),
      ...waits.map((i) => messageButton(i, lasting(blocked(i))))] : []),
    ...(keyTotal ? [make("h2", {}, "Busiest keys"), ...Array.from(keyOrder.subarray(0, 10), (key) =>
      keyButton(key, lasting(keyBusy[key])))] : []),
  );
}

function showKey(key) {
  panel.replaceChildren(
    closing("key"), make("h1", {}, run.keys[key]),
    pairs([["messages", number.format(keyCount[key])], ["handled", lasting(keyBusy[key])],
      ["of the whole time", percent(keyBusy[key] / lastEnd)], ["place", `${number.format(keyRank[key] + 1)} of ${number.format(keyTotal)}`]]),
    make("h2", {}, "Waited longest behind their keys"),
    ...largest(8, (i) => (picked.lit[i] ? blocked(i) : 0)).map((i) => messageButton(i, lasting(blocked(i)))),
  );
}

const closing = (kind) => make("div", { className: "kind" }, kind,
  make("button", { type: "button", title: "Clear the selection (Esc)", ariaLabel: "Clear the selection", onclick: () => chooseNothing() }, "×"));

function showMessage(i, among) {
  const chips = [];
  for (let h = held[i]; h < Math.min(held[i + 1], held[i] + 60); h++) {
    const chip = keyButton(holds[h] >> 1, holds[h] & 1 ? "shared" : null, "chip");
    chips.push(chip);
  }
  if (held[i + 1] - held[i] > 60) chips.push(make("span", { className: "more" }, `and ${held[i + 1] - held[i] - 60} more`));
  panel.replaceChildren(
    closing("message"), make("h1", {}, run.ids[i]),
    ...(among > 1 ? [make("p", { className: "hint" },
      `${counted(among, "message")} under the pointer; this one waited longest behind its keys. Zoom in to see each.`)] : []),
    make("div", { className: "chips" }, ...(chips.length ? chips : [make("span", { className: "more" }, "no key")])),
    pairs([["worker", String(workerOf[i])], ["put at", lasting(put[i])], ["started at", lasting(start[i])],
      ["waited", lasting(waited(i))], ["handled", lasting(end[i] - start[i])]]),
    splitBar(i), make("button", { type: "button", className: "wide", onclick: () => zoomTo(i) }, "Zoom to it"),
    make("h2", {}, "What it waited for"), chainList(i),
  );
}

/** The time from put to end in proportion: behind its keys, for a worker, handled. */
function splitBar(i) {
  const parts = [["behind its keys", blocked(i), "keys"], ["for a worker", waited(i) - blocked(i), "worker"],
    ["handled", end[i] - start[i], "handled"]];
  const whole = parts.reduce((sum, [, seconds]) => sum + seconds, 0) || 1;
  const bar = make("div", { className: "split", ariaHidden: "true" });
  for (const [, seconds, name] of parts.filter(([, seconds]) => seconds > 0)) {
    bar.append(make("i", { className: name }));
    bar.lastChild.style.flexGrow = String((100 * seconds) / whole);
  }
  return make("div", {}, bar, make("div", { className: "splits" }, ...parts.map(([text, seconds, name]) =>
    make("span", {}, make("i", { className: `swatch ${name}` }), `${text} ${lasting(seconds)}`))));
}

function chainList(i) {
  const { chain, links } = picked;
  if (chain.length === 1) return make("p", {}, "No earlier message conflicted with it any more: it waited for no message.");
  const entry = (n) => make("li", { className: n === chain.length - 1 ? "root" : "" },
    make("span", { className: "by" }, links[n - 1] >= 0 ? "on " : "", links[n - 1] >= 0 ? make("code", {}, run.keys[links[n - 1]]) : "a barrier"),
    messageButton(chain[n], lasting(end[chain[n]] - start[chain[n]])));
  const list = make("ol", { className: "chain" });
  const upTo = Math.min(chain.length, shownOfChain + 1);
  for (let n = 1; n < upTo; n++) list.append(entry(n));
  if (upTo < chain.length) {
    list.append(make("li", { className: "more" }, `${number.format(chain.length - upTo - 1)} more, and the root:`), entry(chain.length - 1));
  }
  return make("div", {}, make("p", {},
    `${counted(chain.length - 1, "message")} back to the root, ${lasting(chainBusy[i])} of handlers one after another.`), list);
}

function showTip(event) {
  const box = canvas.getBoundingClientRect();
  const [x, y] = [event.clientX - box.left, event.clientY - box.top];
  const { row, found } = under(x, y);
  canvas.style.cursor = found.length ? "pointer" : x < size.gutter ? "default" : "grab";
  if (!found.length && !(x < size.gutter && rowAt(y) >= 0 && rowAt(y) < views[look.view].count && y > size.axis)) {
    tip.hidden = true;
    return;
  }
  if (row < 0) tip.replaceChildren(make("b", {}, rowName(rowAt(y))));
  else if (found.length === 1) tipOf(found[0]);
  else tip.replaceChildren(make("b", {}, counted(found.length, "message")),
    make("span", {}, `longest wait behind its keys ${lasting(blocked(found[0]))}`), make("span", {}, "zoom in to see each"));
  tip.hidden = false;
  const left = Math.min(x + 14, size.width - tip.offsetWidth - 8);
  const below = y + 18 + tip.offsetHeight < size.height;
  tip.style.transform = `translate(${Math.max(4, left)}px, ${below ? y + 18 : y - tip.offsetHeight - 8}px)`;
}

function tipOf(i) {
  tip.replaceChildren(make("b", {}, run.ids[i]), make("span", { className: "of" }, keyNames(i) || "no key"),
    make("span", {}, `waited ${lasting(waited(i))}, handled ${lasting(end[i] - start[i])}, worker ${workerOf[i]}`),
    ...(behind[i] < 0 ? [] : [make("span", {}, `waited for ${run.ids[behind[i]]}`)]));
}
