// A diagram with a stream of its own: `feed` gives it this number of batches of events, ten a
// second.
async () => {
  const { Chart } = await import("/static/diagram/chart.js");
  const live = new EventTarget();
  live.offset = 0;
  live.now = () => Date.now() / 1000;
  const chart = new Chart({ queue: "q", live, signal: new AbortController().signal, query: new URLSearchParams(), note() {} });
  document.getElementById("main").replaceChildren(chart.element);
  let number = 0;
  // Messages of one or two of 1,000 keys: put, leased a second later, settled after another.
  const line = [];
  window.feed = (batches, each, from) => {
    for (let batch = 0; batch < batches; batch++) {
      const time = Math.round(1e6 * (from + batch / 10));
      const events = [];
      for (let n = 0; n < each; n++) {
        const id = String(time + n);
        const keys = [`key:${(number * 7) % 1000}`, `key:${(number * 13) % 1000}`];
        line.push([id, keys]);
        events.push([++number, time, "put", id, 1, null, "", "", keys, []]);
        if (line.length <= 12 * each) continue;
        const [leased, on] = line[line.length - 6 * each];
        events.push([++number, time, "lease", leased, 1, 1, `host/${number % 9}/x/t`, "", on, []]);
        const [done, of] = line.shift();
        events.push([++number, time, "ack", done, 1, 1, "", "", of, []]);
      }
      live.dispatchEvent(new CustomEvent("events", { detail: { last: number, missed: 0, events } }));
    }
  };
  window.chart = chart;
}
