"""The page stays quick and small: many messages and updates, keyboard, small screens, readers."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from interlock.client.faces.client import connect
from interlock.client.faces.queue import RemoteQueue
from tests.dashboard.browser.site import Site

# Each takes seconds: of a browser and what it shows.
pytestmark = pytest.mark.share(2)

LONG = bool(os.environ.get("INTERLOCK_BROWSER"))
PENDING = 100_000 if LONG else 10_000
UPDATES = 36_000 if LONG else 3_000
"""Batches of events: ten a second for an hour, or for five minutes."""

CONTRAST = Path(__file__).with_name("contrast.js").read_text()
NAMES = Path(__file__).with_name("names.js").read_text()
FEED = Path(__file__).with_name("feed.js").read_text()


@pytest.fixture
def full(hub_url: str) -> Iterator[RemoteQueue[Any]]:
    """A queue with many messages on 1,000 keys."""
    with connect(hub_url) as client:
        queue: RemoteQueue[Any] = client.queue(f"f{uuid.uuid4().hex[:8]}", Any)
        for first in range(0, PENDING, 1000):
            queue.put_many(range(first, first + 1000), keys=lambda number: f"key:{number % 1000}")
        yield queue
        queue.drop(force=True)


def test_many_messages_are_drawn_quickly(
    page: Page, hub_site: Site, full: RemoteQueue[Any]
) -> None:
    page.goto(hub_site.at())
    expect(page.locator("tbody tr", has_text=full.name)).to_contain_text(f"{PENDING - 1000:,}")
    page.goto(hub_site.at("queues", full.name))
    expect(page.locator("canvas")).to_be_visible()
    hot = page.get_by_role("table", name="Keys with most messages")
    expect(hot.locator("tbody tr")).to_have_count(20)
    with full.get(timeout=30):
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
    page.evaluate(FEED)
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
    session = page.context.new_cdp_session(page)

    def heap() -> int:
        session.send("HeapProfiler.collectGarbage")
        return int(session.send("Runtime.getHeapUsage")["usedSize"])

    # Its arrays are full after five minutes of this, and what is full is cut now and then.
    full = 0
    for part in range(5):
        page.evaluate(f"() => feed(800, 5, Date.now() / 1000 + {80 * part})")
        full = max(full, heap())
    page.evaluate(f"() => feed({UPDATES}, 5, Date.now() / 1000 + 400)")
    after = heap()
    sizes = page.evaluate(
        "() => [chart.tracks.spanCount, chart.tracks.messages.size, chart.tracks.keys.size]"
    )
    assert sizes[0] <= 20_000 and sizes[1] <= 20_000 and sizes[2] <= 2_000
    assert after < 1.1 * full + 1_000_000
    assert drawn[0] < 2_000


def test_a_page_under_load_uses_bounded_memory(page: Page, hub_site: Site, hub_url: str) -> None:
    with connect(hub_url) as client:
        queue: RemoteQueue[Any] = client.queue(f"l{uuid.uuid4().hex[:8]}", Any)
        stop = threading.Event()

        def work() -> None:
            number = 0
            while not stop.is_set():
                for _ in range(20):
                    number += 1
                    queue.put(number, keys=[f"a:{number % 30}", f"b:{number % 7}"])
                    queue.get(timeout=30).ack()
                stop.wait(0.02)

        thread = threading.Thread(target=work, name="load")
        thread.start()
        try:
            page.goto(hub_site.at("queues", queue.name))
            # After some hundreds of leases the page is as large as its keys are many.
            page.wait_for_function(
                "() => Number(/the last ([\\d,]+) leases/.exec(document.body.textContent)?.[1]"
                ".replace(',', '')) > 500"
            )
            expect(page.locator(".listing tbody tr")).to_have_count(37)
            assert page.locator("*").count() < 1_500
        finally:
            stop.set()
            thread.join()
        queue.drop(force=True)


def test_every_control_is_reachable_by_keyboard(page: Page, hub_site: Site, hub_url: str) -> None:
    with connect(hub_url) as client:
        queue: RemoteQueue[Any] = client.queue(f"k{uuid.uuid4().hex[:8]}", Any)
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


def test_pages_fit_a_phone_have_contrast_and_accessible_names(
    page: Page, hub_site: Site, hub_url: str
) -> None:
    with connect(hub_url) as client:
        queue: RemoteQueue[Any] = client.queue("a-rather-long-name.of-a-queue/with:signs", Any)
        id = queue.put("x", keys=["order:1", "a-key-that-is-quite-long:4711-4712-4713-4714"])
        page.set_viewport_size({"width": 360, "height": 740})
        own = ("queues", queue.name)
        views = ((), own, (*own, "messages"), (*own, "dead"), (*own, "messages", str(id)))
        for where in (*views, ("workers",), ("server",)):
            page.goto(hub_site.at(*where))
            expect(page.locator("main h1")).to_have_count(1)
            expect(page.get_by_text("Looking …")).to_have_count(0)
            assert page.evaluate(NAMES) == [], where
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, where
            for theme in ("light", "dark"):
                page.evaluate(f"() => {{ document.documentElement.dataset.theme = '{theme}'; }}")
                assert page.evaluate(CONTRAST) == [], (where, theme)
        queue.drop(force=True)
