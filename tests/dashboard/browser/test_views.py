"""Each view, over Redis and over a hub, with messages that are there."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from interlock import App, Empty, Rate, Retry
from interlock.client.faces.queue import RemoteQueue
from tests.dashboard.browser.site import Site, announced, each_engine

# Each takes seconds: of a browser and what it shows.
pytestmark = pytest.mark.share(2)


def text_of(page: Page) -> str:
    return page.locator("main").inner_text()


def until(met: Callable[[], bool]) -> None:
    end = time.monotonic() + 15
    while not met():
        assert time.monotonic() < end
        time.sleep(0.02)


def failed(queue: RemoteQueue[Any], error: str, then: str = "nack") -> int:
    """Use up both attempts of the next message, or reject it."""
    lease = queue.get(timeout=30)
    if then == "reject":
        lease.reject(error)
        return lease.id
    lease.nack(error=error)
    again = queue.get(timeout=30)
    assert again.id == lease.id
    again.nack(error=error)
    return lease.id


@each_engine
def test_the_overview_shows_all_queues_with_their_counts(
    page: Page, site: Site, queue: RemoteQueue[Any]
) -> None:
    for number in range(12):
        queue.put(number, keys="a")
    queue.put("later", delay=600)
    failed(queue, "no truck", "reject")
    page.goto(site.at())
    row = page.locator("tbody tr", has_text=queue.name)
    cells = row.locator("td")
    expect(cells.nth(0)).to_have_text("1")  # ready
    expect(cells.nth(1)).to_have_text("10")  # waiting
    expect(cells.nth(3)).to_have_text("1")  # delayed
    expect(cells.nth(6)).to_have_text("1")  # dead
    expect(page.locator(".attention")).to_contain_text(f"{queue.name} 1 dead")
    expect(page.locator("#link")).to_have_text("live")
    # Live: what is put is counted without anybody asking again.
    queue.put("more", keys="b")
    expect(cells.nth(0)).to_have_text("2")
    page.get_by_role("searchbox", name="Find a queue").fill(queue.name[:6])
    expect(page.locator("tbody tr")).to_have_count(1)
    assert page.url.endswith(f"?q={queue.name[:6]}")
    page.get_by_role("searchbox", name="Find a queue").fill("no such")
    expect(page.locator("main")).to_contain_text("No queue's name contains")
    row.wait_for(state="detached")


@each_engine
def test_a_stalled_queue_has_a_red_banner(page: Page, site: Site, queue: RemoteQueue[Any]) -> None:
    held = queue.put("502", keys="a", retry=Retry(attempts=1, then="hold"))
    queue.get(timeout=30).nack(error="502")
    for _ in range(3):
        queue.put("behind", keys=["a", "b"])
    page.goto(site.at())
    told = "3 messages blocked by 1 held message"
    banner = page.locator(".stall")
    expect(banner).to_contain_text(f"Stalled: {queue.name}: {told}")
    expect(page.locator(".attention")).to_contain_text(f"{queue.name} stalled: {told}, 1 held")
    banner.get_by_role("link", name=queue.name).click()
    expect(banner).to_contain_text(f"held message {held} on a blocks 3 messages")
    queue.skip(held)
    expect(banner).to_be_hidden()


def test_queues_are_sorted_by_any_column(page: Page, site: Site, queue: RemoteQueue[Any]) -> None:
    for _ in range(3):
        queue.put("x")
    page.goto(site.at())
    head = page.get_by_role("columnheader", name=re.compile("^Ready"))
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "descending")
    assert "sort=ready&down=1" in page.url
    page.reload()
    expect(head).to_have_attribute("aria-sort", "descending")
    figures = page.locator("tbody tr td:nth-child(2)").all_inner_texts()
    values = [int(text.replace(",", "")) for text in figures]
    assert values == sorted(values, reverse=True) and values


@each_engine
def test_a_queue_page_is_updated_live(page: Page, site: Site, queue: RemoteQueue[Any]) -> None:
    before = queue.put("before", keys=["order:1", "truck:1"])
    held = queue.get(timeout=30)
    assert held.id == before
    page.goto(site.at("queues", queue.name))
    expect(page.get_by_role("heading", name=queue.name, level=1)).to_be_visible()
    # Leases from before the page was opened are drawn too.
    page.get_by_role("button", name="Table", exact=True).click()
    table = page.get_by_role("table", name="Keys: who holds them")
    row = table.get_by_role("row", name=re.compile("order:1"))
    expect(row).to_contain_text(f"{before} leased")
    waits = queue.put("waits", keys="order:1")
    expect(row).to_contain_text(str(waits))
    held.ack()
    lease = queue.get(timeout=30)
    expect(row).to_contain_text(f"{waits} leased")
    expect(page.get_by_text("the last 1 lease", exact=False)).to_be_visible()
    lease.ack()
    expect(row).to_contain_text("nobody")
    expect(page.locator("#diagram-words")).to_contain_text("0 of them held now")
    page.get_by_role("button", name="Table", exact=True).click()
    # It is drawn with the next frame; a copy is read, as the canvas is not one to read often.
    page.wait_for_function(
        "() => { const one = document.querySelector('canvas'); if (!one.width) return false;"
        " const copy = new OffscreenCanvas(one.width, one.height);"
        " const at = copy.getContext('2d', {willReadFrequently: true}); at.drawImage(one, 0, 0);"
        " return new Set(new Uint32Array(at.getImageData(0, 0, one.width, one.height).data.buffer))"
        ".size > 10; }"
    )
    page.get_by_role("button", name="Workers", exact=True).click()
    assert page.url.endswith("?by=worker")


def test_a_queue_page_shows_hot_and_paused_keys_and_options(
    page: Page, site: Site, queue: RemoteQueue[Any]
) -> None:
    for _ in range(5):
        queue.put("x", keys="busy:1")
    queue.put("x", keys="<b>key</b>")
    queue.pause("asleep:1")
    page.goto(site.at("queues", queue.name))
    hot = page.get_by_role("table", name="Keys with most messages")
    expect(hot.locator("tbody tr").first).to_contain_text("busy:1")
    expect(hot.locator("tbody tr").first).to_contain_text("5")
    expect(hot).to_contain_text("<b>key</b>")
    expect(page.get_by_role("table", name="Paused keys")).to_contain_text("asleep:1")
    expect(page.get_by_role("region", name="Options")).to_contain_text("attempts")


def test_messages_are_found_by_filters(page: Page, site: Site, queue: RemoteQueue[Any]) -> None:
    ids = [queue.put(number, keys=f"order:{number % 3}") for number in range(120)]
    page.goto(site.at("queues", queue.name, "messages"))
    # Redis returns more than were asked for, in pages of its own.
    expect(page.locator("tbody tr").nth(49)).to_be_visible()
    assert page.locator("tbody tr").count() < 120
    page.get_by_role("button", name="Show more").click()
    expect(page.locator("tbody tr").nth(99)).to_be_visible()
    page.get_by_role("searchbox", name="Key").fill("order:1")
    expect(page.locator("tbody tr")).to_have_count(40)
    assert "key=order" in page.url
    page.reload()
    expect(page.locator("tbody tr")).to_have_count(40)
    page.get_by_label("State").select_option("ready")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text(str(ids[1]))
    page.get_by_label("State").select_option("held")
    expect(page.locator("main")).to_contain_text("No message fits these filters")


@each_engine
def test_a_message_page_shows_the_chain_it_waits_for(
    page: Page, site: Site, queue: RemoteQueue[Any]
) -> None:
    first = queue.put("<img src=x onerror=alert(1)>", keys=["order:1", "truck:1"])
    second = queue.put("second", keys=["truck:1", "customer:1"])
    third = queue.put("third", keys="customer:1")
    lease = queue.get(timeout=30)
    page.goto(site.at("queues", queue.name, "messages", str(third)))
    chain = page.get_by_role("region", name="What it waits for")
    expect(chain).to_contain_text(
        re.compile(f"{third}.*customer:1.*{second}.*truck:1.*{first}", re.S)
    )
    expect(chain).to_contain_text("leased")
    expect(chain).to_contain_text("handled by")
    chain.get_by_role("link", name=str(first)).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Message {first}")
    expect(page.get_by_role("region", name="Payload")).to_contain_text(
        "<img src=x onerror=alert(1)>"
    )
    assert page.locator("main img").count() == 0
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Message {third}")
    # The heading comes before the answer; a page that never saw the message says it is not here.
    expect(chain).to_contain_text("handled by")
    lease.ack()
    queue.get(timeout=30).ack()
    queue.get(timeout=30).ack()
    expect(page.locator("main")).to_contain_text("It is settled")


def test_a_message_page_shows_arguments_and_tracebacks(page: Page, site: Site) -> None:
    app = App(site.engine)

    @app.task(queue="tasks", keys="order:{order}")
    def ship(order: int, street: str) -> None:
        raise ValueError(f"no truck for {order}")

    with app:
        job = ship.send(7, street="Main 1")
        page.goto(site.at("queues", "tasks", "messages", str(job.id)))
        payload = page.get_by_role("region", name="Payload")
        expect(payload).to_contain_text("ship")
        expect(payload).to_contain_text("Main 1")
        job.cancel()
        expect(page.locator("main")).to_contain_text("It is settled")


def test_dead_letters_and_held_messages_are_listed(
    page: Page, site: Site, queue: RemoteQueue[Any]
) -> None:
    queue.put("one", keys="a")
    queue.put("two", keys="b")
    gone = failed(queue, "ValueError: no truck\nTraceback:\n  line 7", "reject")
    dead = failed(queue, "boom")
    page.goto(site.at("queues", queue.name, "dead"))
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)
    page.get_by_label("Error contains").fill("truck")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text(str(gone))
    rows.get_by_role("link", name=str(gone), exact=True).click()
    expect(page.get_by_role("region", name="Failures")).to_contain_text("ValueError: no truck")
    expect(page.get_by_role("region", name="Failures").locator("pre")).to_contain_text("line 7")
    page.goto(site.at("queues", queue.name, "messages", str(dead)))
    expect(page.get_by_role("region", name="Failures").locator("summary")).to_have_count(2)
    page.goto(site.at("queues", queue.name, "dead", which="held"))
    expect(page.locator("main")).to_contain_text("Nothing is held")


def test_a_queue_page_shows_what_is_used_of_its_limits(
    page: Page, site: Site, queue: RemoteQueue[Any]
) -> None:
    for _ in range(3):
        queue.put("x", limit="bank")
    queue.configure(limits={"bank": 1, "api": Rate(10, burst=20)})
    lease = queue.get(timeout=30)
    with pytest.raises(Empty):
        queue.get_nowait()
    page.goto(site.at("queues", queue.name))
    rows = page.get_by_role("table", name="Limits").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_have_text(re.compile("bank112"))
    expect(rows.last).to_contain_text("10 per s, 20 at once")
    lease.ack()


def test_parked_messages_are_listed_with_their_reason_and_can_be_cancelled(
    page: Page, site: Site, queue: RemoteQueue[Any]
) -> None:
    stuck = queue.put("x", keys="a", retry=Retry(attempts=1, then="hold"))
    queue.get(timeout=30).nack()
    id = queue.put("y", keys=["a", "b"], behind="park")
    page.goto(site.at("queues", queue.name, "dead", which="parked"))
    row = page.locator("tbody tr")
    expect(row).to_contain_text(f"on a behind {stuck}")
    page.goto(site.at("queues", queue.name, "messages", str(id)))
    expect(page.get_by_role("region", name="What it waits for")).to_contain_text("on the key a")
    expect(page.get_by_role("region", name="What it waits for")).to_contain_text(str(stuck))
    page.goto(site.at("queues", queue.name, "dead", which="parked"))
    page.get_by_role("button", name=f"Cancel message {id}").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").last.click()
    expect(page.locator("main")).to_contain_text("Nothing is parked")
    assert [one.id for one in queue.messages()] == [stuck]


def test_workers_are_listed_with_what_they_do(
    page: Page, site: Site, queue: RemoteQueue[Any]
) -> None:
    running = [
        {
            "queue": queue.name,
            "id": "17",
            "task": "shop.ship",
            "keys": ["order:1"],
            "attempt": 2,
            "seconds": 75,
        }
    ]
    name = f"web-1/42/{queue.name}"
    queue.put("there is such a queue")
    with announced(
        queue, name, host="web-1", app="shop:app", concurrency=8, running=running, since=1
    ) as asked:
        page.goto(site.at("workers"))
        card = page.get_by_role("region", name=f"Worker {name}")
        expect(card).to_contain_text("shop.ship")
        expect(card).to_contain_text("order:1")
        expect(card).to_contain_text("1 min 1")
        card.get_by_role("button", name="Stacks").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.locator("pre")).to_contain_text("in ship <b>")
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        card.get_by_role("button", name="Drain").click()
        dialog.get_by_role("button", name="Drain").click()
        expect(page.locator("#toasts")).to_contain_text("was asked to drain")
        until(lambda: asked == ["stacks", "drain"])
        page.get_by_role("searchbox").fill("nobody")
        expect(page.locator("main")).to_contain_text("No worker fits")


def test_empty_lists_say_why_they_are_empty(page: Page, site: Site) -> None:
    page.goto(site.at("schedules"))
    heading = page.get_by_role("heading", level=1)
    for view in ("Schedules", "Topics", "Tables", "Stores", "Sources", "Server"):
        page.get_by_role("navigation", name="Main").get_by_role("link", name=view).click()
        expect(heading).to_have_text(view)
        expect(page.locator("main .empty, main .pairs, main tbody tr").first).to_be_visible()
        expect(page.locator("main")).not_to_contain_text("Refused")
    kind = "redis" if site.engine.startswith("redis") else "hub"
    expect(page.get_by_role("region", name="Engine")).to_contain_text(kind)


def test_a_missing_page_says_so(page: Page, site: Site) -> None:
    page.goto(site.at("queues", "no such queue"))
    expect(page.locator("main")).to_contain_text("there is no queue 'no such queue'")
    expect(page.get_by_role("button", name="Seal")).to_have_count(0)
    page.goto(site.at("workers", "x", "y"))
    expect(page.locator("main")).to_contain_text("No such page")
