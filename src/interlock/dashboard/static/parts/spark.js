// A line of the last minute, small enough for a cell.

import { svg } from "../dom.js";

const WIDTH = 110;
const HEIGHT = 22;

/** An empty sparkline; `draw` gives it its figures. */
export function spark(label) {
  const area = svg("path", { class: "area" });
  const trace = svg("path", { class: "trace" });
  const element = svg("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label }, area, trace);
  element.draw = (values) => {
    const line = path(values);
    if (line === element.drawn) return;
    element.drawn = line;
    trace.setAttribute("d", line);
    area.setAttribute("d", `${line}V${HEIGHT}H0z`);
  };
  return element;
}

/** The path of values over the whole width, the largest at the top. */
export function path(values) {
  const most = Math.max(1e-9, ...values);
  const step = WIDTH / Math.max(1, values.length - 1);
  return values
    .map((value, at) => `${at ? "L" : "M"}${(at * step).toFixed(1)} ${(HEIGHT - 1.5 - (HEIGHT - 4) * Math.max(0, value / most)).toFixed(1)}`)
    .join("");
}
