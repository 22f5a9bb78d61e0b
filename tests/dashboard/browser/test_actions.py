"""Each action, over Redis and over a hub; and that it is refused, with words, to who may not."""

from __future__ import annotations

import re
import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

import interlock
from interlock import App, Retry
from interlock.client.admin.operator import Operator
from interlock.client.admin.server import Server
from interlock.client.faces.client import connect
from interlock.client.faces.queue import RemoteQueue
from interlock.hub import passwords
from tests.dashboard.browser.conftest import dashboard
from tests.dashboard.browser.site import Site, each_engine
from tests.dashboard.browser.test_views import failed
from tests.hub.servers import needs_hub

# Each takes seconds: of a browser and what it shows.
pytestmark = pytest.mark.share(2)

REFUSED = """async ([queue, id]) => {
  const { facts, post, path } = await import("/ops/queues/static/api.js");
  facts.write = true;
  try {
    await post(path("queues", queue, "messages", id, "cancel"));
  } catch (error) {
    return `${error.status} ${error.message}`;
  }
}"""


def toast(page: Page, text: str) -> None:
    expect(page.locator("#toasts")).to_contain_text(text)


def confirm(page: Page, text: str) -> None:
    page.get_by_role("dialog").get_by_role("button", name=text, exact=True).click()


def paused(site: Site, queue: RemoteQueue[Any]) -> set[bytes]:
    with connect(site.engine) as client:
        return Operator(Server(client)).paused(queue.name)


def stats(site: Site, queue: RemoteQueue[Any]) -> dict[str, int]:
    with connect(site.engine) as client:
        return Operator(Server(client)).stats(queue.name)


@pytest.fixture
def holding(queue: RemoteQueue[Any]) -> RemoteQueue[Any]:
    """A queue on which messages are held."""
    policy = Retry(attempts=1, then="hold")
    for number in range(4):
        queue.put(number, keys=f"key:{number}", retry=policy)
        queue.get(timeout=30).nack(error=f"error {number}")
    return queue


def test_a_queue_is_paused_and_sealed(page: Page, site: Site, queue: RemoteQueue[Any]) -> None:
    queue.put("x")
    page.goto(site.at("queues", queue.name))
    page.get_by_role("button", name="Pause", exact=True).click()
    # It asks first, and does nothing if the answer is no.
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_focused()
    page.get_by_role("button", name="Pause", exact=True).click()
    confirm(page, "Pause")
    toast(page, "is paused")
    expect(page.locator("h1 + .marks")).to_contain_text("paused")
    assert paused(site, queue) == {b""}
    page.get_by_role("button", name="Resume", exact=True).click()
    toast(page, "is resumed")
    assert paused(site, queue) == set()
    page.get_by_role("button", name="Seal", exact=True).click()
    confirm(page, "Seal")
    toast(page, "is sealed")
    assert stats(site, queue)["sealed"] == 1
    page.get_by_role("button", name="Reopen", exact=True).click()
    toast(page, "accepts messages again")
    assert stats(site, queue)["sealed"] == 0


def test_keys_can_be_paused_and_resumed(page: Page, site: Site, queue: RemoteQueue[Any]) -> None:
    queue.put("x", keys="order:1")
    page.goto(site.at("queues", queue.name))
    page.get_by_role("button", name="Pause key order:1").click()
    toast(page, "Key order:1 is paused")
    page.get_by_label("Key to pause").fill("order:2")
    page.keyboard.press("Enter")
    toast(page, "Key order:2 is paused")
    assert paused(site, queue) == {b"order:1", b"order:2"}
    page.get_by_role("button", name="Resume key order:2").click()
    toast(page, "Key order:2 is resumed")
    assert paused(site, queue) == {b"order:1"}


@each_engine
def test_held_messages_are_retried_skipped_and_buried_one_by_one(
    page: Page, site: Site, holding: RemoteQueue[Any]
) -> None:
    ids = sorted(one.id for one in holding.messages())
    page.goto(site.at("queues", holding.name, "dead", which="held"))
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(4)
    page.get_by_role("button", name=f"Retry message {ids[0]}").click()
    toast(page, f"Message {ids[0]} is ready again")
    expect(rows).to_have_count(3)
    page.get_by_role("button", name=f"Skip message {ids[1]}").click()
    confirm(page, "Skip")
    toast(page, f"Message {ids[1]} was skipped")
    page.get_by_role("button", name=f"Bury message {ids[2]}").click()
    toast(page, f"Message {ids[2]} is a dead letter now")
    expect(rows).to_have_count(1)
    stats = holding.stats()
    assert (stats.ready, stats.held, stats.dead, stats.skipped) == (1, 1, 1, 1)


def test_an_action_applies_to_all_matching_messages(
    page: Page, site: Site, holding: RemoteQueue[Any]
) -> None:
    page.goto(site.at("queues", holding.name, "dead", which="held", error="error 2"))
    page.get_by_role("button", name="Bury all that match").click()
    expect(page.get_by_role("dialog")).to_contain_text('error "error 2"')
    confirm(page, "Bury")
    toast(page, "Bury: 1 message")
    page.get_by_label("Error contains").fill("")
    expect(page.locator("tbody tr")).to_have_count(3)
    page.get_by_role("button", name="Bury all that match").click()
    expect(page.get_by_role("dialog")).to_contain_text("no filter is set")
    confirm(page, "Bury")
    toast(page, "Bury: 3 messages")
    page.get_by_role("button", name="Dead letters").click()
    expect(page.locator("tbody tr")).to_have_count(4)
    page.get_by_label("Error contains").fill("error 1")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("button", name="Requeue all that match").click()
    confirm(page, "Requeue")
    toast(page, "Requeue: 1 message")
    page.get_by_label("Error contains").fill("")
    expect(page.locator("tbody tr")).to_have_count(3)
    page.get_by_role("button", name="Discard all that match").click()
    confirm(page, "Discard")
    toast(page, "Discard: 3 messages")
    expect(page.locator("main")).to_contain_text("No dead letter")
    assert (holding.stats().dead, holding.stats().requeued) == (0, 1)


def test_a_dead_letter_is_requeued(page: Page, site: Site, queue: RemoteQueue[Any]) -> None:
    queue.put("one", keys="a")
    queue.put("two", keys="b")
    first, second = failed(queue, "bad", "reject"), failed(queue, "bad", "reject")
    page.goto(site.at("queues", queue.name, "dead"))
    page.get_by_role("button", name=f"Requeue message {first}").click()
    toast(page, f"Message {first} was requeued as ")
    page.get_by_role("button", name=f"Discard message {second}").click()
    confirm(page, "Discard")
    expect(page.locator("main")).to_contain_text("No dead letter")
    assert (queue.stats().ready, queue.stats().dead) == (1, 0)


def test_a_dead_letter_is_edited_and_requeued(page: Page, site: Site) -> None:
    app = App(site.engine)
    name = f"t{uuid.uuid4().hex[:8]}"

    @app.task(queue=name, keys="order:{order}")
    def ship(order: int, street: str) -> None: ...

    with app, connect(site.engine) as client:
        ship.send(7, street="Mian 1")
        queue = client.queue(name, bytes)
        lease = queue.get(timeout=30)
        lease.reject("no such street")
        page.goto(site.at("queues", name, "dead"))
        page.get_by_role("link", name=f"Edit message {lease.id}").click()
        args = page.get_by_label("Arguments, a JSON list")
        expect(args).to_be_focused()
        args.fill("[7")
        page.get_by_role("button", name="Requeue edited").click()
        expect(page.locator("#edit").get_by_role("alert")).to_contain_text("Arguments")
        args.fill("[7]")
        page.get_by_label("Named arguments, a JSON object").fill('{"street": "Main 1"}')
        page.get_by_role("button", name="Requeue edited").click()
        # No worker is there to compute the keys, so they are asked for.
        asked = page.get_by_role("dialog")
        expect(asked).to_contain_text("order:7")
        asked.get_by_role("button", name="Requeue").click()
        expect(asked).to_contain_text("State the new keys")
        asked.get_by_label("New keys, one per line", exact=True).last.fill("order:8")
        asked.get_by_role("button", name="Requeue").click()
        expect(page.get_by_role("dialog")).to_contain_text("order:8")
        confirm(page, "Requeue")
        toast(page, "Requeued as")
        expect(page.get_by_role("region", name="Payload")).to_contain_text("Main 1")
        assert (queue.stats().ready, queue.stats().dead) == (1, 0)
        (put,) = queue.messages()
        assert put.keys == {b"order:8"}
        queue.drop(force=True)


def test_a_message_offers_the_actions_of_its_state(
    page: Page, site: Site, queue: RemoteQueue[Any]
) -> None:
    id = queue.put("x", keys="a")
    lease = queue.get(timeout=30)
    page.goto(site.at("queues", queue.name, "messages", str(id)))
    page.get_by_role("button", name="Revoke").click()
    confirm(page, "Revoke")
    toast(page, f"Message {id}: done")
    expect(page.locator("h1 + .marks")).to_have_text("ready")
    with pytest.raises(interlock.LeaseLost):
        lease.ack()
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").last.click()
    expect(page.locator("main")).to_contain_text("It is settled")
    assert queue.stats().cancelled == 1


def test_a_read_only_dashboard_explains_disabled_actions(
    page: Page, reading: Site, hub_url: str
) -> None:
    with connect(hub_url) as client:
        queue: RemoteQueue[Any] = client.queue(f"r{uuid.uuid4().hex[:8]}", Any)
        id = queue.put("x", keys="a")
        page.goto(reading.at("queues", queue.name))
        expect(page.locator("#mode")).to_have_text("read only")
        page.get_by_role("button", name="Pause", exact=True).press("Enter")
        toast(page, "Pause: not allowed")
        toast(page, "this dashboard is read-only; start it with --write")
        page.goto(reading.at("queues", queue.name, "messages", str(id)))
        cancel = page.get_by_role("button", name="Cancel", exact=True)
        expect(cancel).to_have_attribute("aria-disabled", "true")
        # A page that asks all the same is refused by the server, not by its own politeness.
        told = page.evaluate(REFUSED, [queue.name, str(id)])
        assert told == "403 this dashboard is read-only; start it with --write"
        assert queue.stats().cancelled == 0
        queue.drop(force=True)


def test_a_login_asks_for_a_token(page: Page, hub_url: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a secret of the tests")
    with dashboard(hub_url, "--token-file", str(token)) as (address, _):
        page.goto(f"{address}/workers")
        page.get_by_label("Token of the dashboard").fill("nothing of the sort")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert").first).to_contain_text("wrong token")
        page.get_by_label("Token of the dashboard").fill("a secret of the tests")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Workers")
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_label("Token of the dashboard")).to_be_visible()


def test_the_page_reconnects_when_the_server_is_back(page: Page, hub_url: str) -> None:
    with dashboard(hub_url) as (address, process):
        port = address.rpartition(":")[2]
        page.goto(address)
        expect(page.locator("#link")).to_have_text("live")
        process.terminate()
        process.wait(timeout=20)
        expect(page.locator("#banner")).to_contain_text("the dashboard's server does not answer")
        command = [*process.args] if isinstance(process.args, list) else []
        command[command.index("--port") + 1] = port
        again = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            expect(page.locator("#banner")).to_be_hidden(timeout=30_000)
            expect(page.locator("#link")).to_have_text("live")
        finally:
            again.terminate()
            again.communicate(timeout=20)


def test_a_denied_action_shows_the_engine_s_error(page: Page) -> None:
    needs_hub()
    word = [passwords.hashed("secret")]
    users: list[dict[str, Any]] = [
        {"name": "boss", "passwords": word, "commands": ["@all"], "queues": ["*"]},
        {"name": "eyes", "passwords": word, "commands": ["@read", "@connection"], "queues": ["*"]},
    ]
    with interlock.Hub(port=0, workers=1, user=users) as hub:
        engine = f"interlock://127.0.0.1:{hub.port}"
        with connect(engine.replace("://", "://boss:secret@")) as client:
            queue: RemoteQueue[Any] = client.queue("theirs", Any)
            queue.put("x", keys="a")
            with dashboard(engine, "--write", "--login", "engine") as (address, _):
                page.goto(f"{address}/queues/theirs")
                page.get_by_label("User of the engine").fill("eyes")
                page.get_by_label("Password").fill("secret")
                page.get_by_role("button", name="Log in").click()
                expect(page.get_by_role("button", name="Log out eyes")).to_be_visible()
                seal = page.get_by_role("button", name="Seal", exact=True)
                expect(seal).to_have_attribute("aria-disabled", "true")
                # It is not even asked about.
                seal.click(force=True)
                toast(page, "Seal: not allowed")
                toast(page, "NOPERM")
                page.get_by_role("button", name="Pause key a").click(force=True)
                toast(page, "Pause: not allowed")
                page.goto(f"{address}/queues/theirs/messages?key=a")
                page.get_by_role("link", name=re.compile(r"^\d{16}$")).click()
                page.get_by_role("button", name="Cancel", exact=True).click(force=True)
                toast(page, "Cancel: not allowed")
                page.goto(f"{address}/server")
                told = page.get_by_role("region", name="This login")
                expect(told).to_contain_text("user eyes has no right to operate")
            assert queue.stats().unsettled == 1
