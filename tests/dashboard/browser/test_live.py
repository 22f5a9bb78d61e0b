"""What stays quick and small: many messages, many updates, the keyboard, small screens, readers."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from interlock.engine.client import connect
from interlock.engine.queue import RemoteQueue
from tests.dashboard.browser.site import Site

LONG = bool(os.environ.get("INTERLOCK_LONG"))
PENDING = 100_000 if LONG else 10_000
UPDATES = 36_000 if LONG else 3_000
"""Batches of events: ten a second for an hour, or for five minutes."""

CONTRAST = """() => {
  const light = (c) => [0.2126, 0.7152, 0.0722].reduce((sum, weight, n) => {
    const part = c[n] / 255;
    return sum + weight * (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  }, 0.05);
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const parse = (text) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour[3] > 250) return colour;
    }
    return parse(getComputedStyle(document.documentElement).backgroundColor);
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.checkVisibility({ visibilityProperty: true }) || element.closest(".unseen, .zero, :disabled, .skip")) continue;
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(ground(element))];
    const ratio = Math.max(a, b) / Math.min(a, b);
    if (ratio < 4.5) found.push(`${element.tagName}.${element.className} ${element.textContent.slice(0, 30)}: ${ratio.toFixed(2)}`);
  }
  return found;
}"""


@pytest.fixture
def full(hub_url: str) -> Iterator[RemoteQueue[Any]]:
    """A queue with many messages on 1,000 keys."""
    with connect(hub_url) as client:
        queue = client.queue(f"f{uuid.uuid4().hex[:8]}", Any)
        for first in range(0, PENDING, 1000):
            queue.put_many(range(first, first + 1000), keys=lambda number: f"key:{number % 1000}")
        yield queue
        queue.drop(force=True)


def test_many_messages_are_drawn_soon(page: Page, hub_site: Site, full: RemoteQueue[Any]) -> None:
    page.goto(hub_site.at())
    expect(page.locator("tbody tr", has_text=full.name)).to_contain_text(f"{PENDING - 1000:,}")
    page.goto(hub_site.at("queues", full.name))
    expect(page.locator("canvas")).to_be_visible()
    hot = page.get_by_role("table", name="Keys with most messages")
    expect(hot.locator("tbody tr")).to_have_count(20)
    with full.get(timeout=5):
        expect(page.locator("#diagram-words")).to_contain_text("1 of them held now")
    page.goto(hub_site.at("queues", full.name, "messages"))
    expect(page.locator("tbody tr")).to_have_count(50)
    page.get_by_role("searchbox", name="Key").fill("key:999")
    expect(page.locator("tbody tr").first).to_contain_text("key:999")


def test_a_thousand_keys_are_drawn_in_two_seconds_and_nothing_grows(
    page: Page, hub_site: Site
) -> None:
    """Events as the stream tells them, given to the diagram: an hour of them, or a part of it."""
    page.goto(hub_site.at("server"))
    page.evaluate(
        """async () => {
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
        }"""
    )
    drawn = page.evaluate(
        """() => {
          feed(200, 50, Date.now() / 1000 - 20);
          const begin = performance.now();
          chart.resort(true);
          chart.draw();
          return [performance.now() - begin, chart.rows.length];
        }"""
    )
    assert drawn[1] == 1000
    page.evaluate(
        "() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))"
    )
    session = page.context.new_cdp_session(page)

    def heap() -> int:
        session.send("HeapProfiler.collectGarbage")
        return int(session.send("Runtime.getHeapUsage")["usedSize"])

    # Its arrays are full after five minutes of this, and stay so.
    page.evaluate("() => feed(3000, 10, Date.now() / 1000)")
    before = heap()
    page.evaluate(f"() => feed({UPDATES}, 10, Date.now() / 1000 + 300)")
    after = heap()
    sizes = page.evaluate(
        "() => [chart.tracks.spanCount, chart.tracks.messages.size, chart.tracks.keys.size]"
    )
    assert sizes[0] <= 20_000 and sizes[1] <= 20_000 and sizes[2] <= 2_000
    assert after < 1.1 * before + 1_000_000
    assert drawn[0] < 2_000


def test_a_page_under_load_keeps_its_size(page: Page, hub_site: Site, hub_url: str) -> None:
    with connect(hub_url) as client:
        queue = client.queue(f"l{uuid.uuid4().hex[:8]}", Any)
        stop = threading.Event()

        def work() -> None:
            number = 0
            while not stop.is_set():
                for _ in range(20):
                    number += 1
                    queue.put(number, keys=[f"a:{number % 30}", f"b:{number % 7}"])
                    queue.get(timeout=5).ack()
                stop.wait(0.02)

        thread = threading.Thread(target=work, name="load")
        thread.start()
        try:
            page.goto(hub_site.at("queues", queue.name))
            words = page.get_by_text("the last 1,", exact=False)
            expect(words).to_be_visible(timeout=40_000)
            nodes = page.locator("*").count()
            expect(page.get_by_text("the last 2,", exact=False)).to_be_visible(timeout=40_000)
            assert page.locator("*").count() < nodes + 60
        finally:
            stop.set()
            thread.join()
        queue.drop(force=True)


def test_the_keyboard_reaches_all(page: Page, hub_site: Site, hub_url: str) -> None:
    with connect(hub_url) as client:
        queue = client.queue(f"k{uuid.uuid4().hex[:8]}", Any)
        queue.put("x")
        page.goto(hub_site.at(q=queue.name))
        expect(page.locator("tbody tr")).to_have_count(1)
        page.keyboard.press("/")
        expect(page.get_by_role("searchbox")).to_be_focused()
        page.keyboard.press("Escape")
        page.keyboard.press("j")
        expect(page.get_by_role("link", name=queue.name).last).to_be_focused()
        page.keyboard.press("Enter")
        heading = page.get_by_role("heading", level=1)
        expect(heading).to_have_text(queue.name)
        expect(heading).to_be_focused()
        expect(page).to_have_title(f"{queue.name} · Interlock")
        page.keyboard.press("g")
        page.keyboard.press("w")
        expect(heading).to_have_text("Workers")
        page.go_back()
        expect(heading).to_have_text(queue.name)
        page.keyboard.press("u")
        expect(heading).to_have_text("Queues")
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_contain_text("next and previous row")
        page.keyboard.press("Escape")
        page.keyboard.press(".")
        expect(page.locator("#link")).to_have_text("stopped")
        page.keyboard.press(".")
        expect(page.locator("#link")).to_have_text("live")
        page.keyboard.press("t")
        assert page.evaluate("localStorage.getItem('interlock.theme')") == "light"
        page.keyboard.press("t")
        page.reload()
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        queue.drop(force=True)


def test_text_stands_out_and_fits_a_phone(page: Page, hub_site: Site, hub_url: str) -> None:
    with connect(hub_url) as client:
        queue = client.queue("a-rather-long-name.of-a-queue/with:signs", Any)
        id = queue.put("x", keys=["order:1", "a-key-that-is-quite-long:4711-4712-4713-4714"])
        page.set_viewport_size({"width": 360, "height": 740})
        for where in ((), ("queues", queue.name), ("queues", queue.name, "messages"), ("queues", queue.name, "dead"),
                      ("queues", queue.name, "messages", str(id)), ("workers",), ("server",)):  # fmt: skip
            page.goto(hub_site.at(*where))
            expect(page.locator("main h1")).to_be_visible()
            expect(page.get_by_text("Looking …")).to_have_count(0)
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, where
            for theme in ("light", "dark"):
                page.evaluate(f"() => {{ document.documentElement.dataset.theme = '{theme}'; }}")
                assert page.evaluate(CONTRAST) == [], (where, theme)
        queue.drop(force=True)


def test_readers_of_the_screen_find_their_way(page: Page, hub_site: Site, hub_url: str) -> None:
    with connect(hub_url) as client:
        queue = client.queue(f"s{uuid.uuid4().hex[:8]}", Any)
        id = queue.put("x", keys="order:1")
        for where in ((), ("queues", queue.name), ("queues", queue.name, "messages"),
                      ("queues", queue.name, "messages", str(id)), ("workers",)):  # fmt: skip
            page.goto(hub_site.at(*where))
            expect(page.locator("main h1")).to_have_count(1)
            expect(page.get_by_text("Looking …")).to_have_count(0)
            wrong = page.evaluate(
                """() => [
                  ...[...document.querySelectorAll("button, a[href], input, select, textarea, canvas")]
                    .filter((one) => one.checkVisibility() && !(one.textContent.trim() || one.getAttribute("aria-label") || one.labels?.length))
                    .map((one) => `no name: ${one.outerHTML.slice(0, 80)}`),
                  ...[...document.querySelectorAll("th")].filter((one) => !one.scope).map((one) => `no scope: ${one.textContent}`),
                  ...[...document.querySelectorAll("table")].filter((one) => !one.caption).map(() => "no caption"),
                  ...["banner", "main", "navigation"].filter((role) => !document.querySelector({ banner: "header", main: "main", navigation: "nav[aria-label]" }[role])),
                ]"""
            )
            assert wrong == [], where
        queue.drop(force=True)
