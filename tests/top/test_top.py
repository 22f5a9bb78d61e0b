"""`interlock top`, driven by keys, against a real Redis and a real hub."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import redis
from textual.pilot import Pilot
from textual.widgets import Static

import interlock
from interlock import Retry, connect
from interlock.app import App
from interlock.cli import main
from interlock.client.admin.operator import Operator
from interlock.client.admin.server import Server
from interlock.client.faces.client import Client
from interlock.top.application import Top
from interlock.top.board import Board
from interlock.top.confirmation import Confirmation
from interlock.top.queue import QueueView
from interlock.top.queues import QueuesView
from interlock.top.text import course, one_line
from interlock.top.view import Table
from tests.hub.servers import needs_hub, redis_server

PATIENCE = 40.0
HELD = Retry(1, then="hold")
DEAD = Retry(1)
HOSTILE = "[bold]name[/bold]\x1b[31m"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with redis_server(tmp_path_factory.mktemp("top")) as (_, found):
        yield found


@pytest.fixture(params=["redis", "hub"])
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    if request.param == "hub":
        needs_hub()
        with (
            interlock.Hub(port=0, workers=1) as hub,
            connect(f"interlock://{hub.addresses[0]}") as made,
        ):
            yield made
    else:
        port = request.getfixturevalue("port")
        with redis.Redis(port=port) as server:
            server.flushall()
        with connect(f"redis://127.0.0.1:{port}") as made:
            yield made


def top(client: Client, *, write: bool = False) -> Top:
    return Top(Board(Operator(Server(client))), client.url, every=0.3, write=write)


async def wait_for(what: Callable[[], bool], why: str) -> None:
    until = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < until, why
        await asyncio.sleep(0.02)


def rows(app: Top, table: str) -> list[list[str]]:
    found = app.screen.query(f"#{table}")
    if not found:
        return []
    one = found.only_one(Table)
    return [[cell.plain for cell in one.get_row_at(at)] for at in range(one.row_count)]


def line(app: Top, name: str) -> str:
    found = app.screen.query(f"#{name}")
    return str(found.only_one(Static).render()) if found else ""


def notes(app: Top) -> str:
    return " ".join(note.message for note in app._notifications)


def spoiled(client: Client, queue: str, retry: Retry, count: int) -> list[int]:
    """Make messages that failed for good, as dead letters or held ones; return their ids."""
    app = App(client.url)

    @app.task(name="charge", queue=queue, keys="account:{number}", retry=retry)
    def charge(number: int) -> None: ...

    ids = [charge.send(number).id for number in range(count)]
    handle = client.queue(queue, bytes)
    for _ in ids:
        handle.get(timeout=30).nack(error=ValueError("no [money]"))
    app.close()
    return ids


def test_all_queues_are_shown_with_a_sparkline(client: Client) -> None:
    deep, other = client.queue("deep", bytes), client.queue(HOSTILE, bytes)
    deep.put_many([b"a", b"b", b"c"], keys="hot")
    other.put(b"x")

    async def look() -> None:
        app = top(client)
        async with app.run_test(size=(160, 40)) as pilot:
            await wait_for(lambda: len(rows(app, "queues")) == 2, "no rows")
            first, second = rows(app, "queues")
            assert first[0] == "deep" and first[2] == "3", "the most first"
            assert second[0] == one_line(HOSTILE) and "\x1b" not in second[0]
            assert "[bold]" in second[0], "no markup"
            assert "2 queues" in line(app, "head") and "read-only" in line(app, "head")
            for each in range(3):
                deep.put(b"%d" % each)
            await wait_for(lambda: rows(app, "queues")[0][2] == "6", "it is not live")
            assert len(set(rows(app, "queues")[0][1])) > 1, "the course of the depth"
            await pilot.press("o")
            await wait_for(lambda: rows(app, "queues")[0][0] == one_line(HOSTILE), "not by name")
            await pilot.press("q")

    asyncio.run(look())


def test_a_stalled_queue_is_marked(client: Client) -> None:
    queue = client.queue("orders", bytes)
    held = queue.put(b"x", keys="a", retry=HELD)
    queue.get(timeout=30).nack()
    queue.put_many([b"b", b"c"], keys="a")

    async def look() -> None:
        app = top(client)
        async with app.run_test(size=(160, 40)) as pilot:
            told = "stalled: orders: 2 messages blocked by 1 held message"
            await wait_for(lambda: line(app, "stalled") == told, "it is not told")
            await pilot.press("enter")
            told = f"stalled: 2 blocked by held message {held} (a)"
            await wait_for(lambda: line(app, "stalled") == told, "it is not told of the queue")
            queue.skip(held)
            await wait_for(lambda: line(app, "stalled") == "", "it is still told")
            await pilot.press("q")

    asyncio.run(look())


@pytest.mark.parametrize("client", ["redis"], indirect=True)
def test_actions_on_messages_ask_first(client: Client) -> None:
    dead, held = spoiled(client, "orders", DEAD, 2), spoiled(client, "orders", HELD, 3)
    queue = client.queue("orders", bytes)

    async def ask(app: Top, pilot: Pilot[None], key: str, question: str, answer: str) -> None:
        await pilot.press(key)
        await wait_for(lambda: line(app, "question") == question, f"not asked: {question}")
        await pilot.press(answer)
        await wait_for(lambda: isinstance(app.screen, QueueView), "it is still asked")

    async def shown(app: Top, table: str, ids: list[int]) -> None:
        wanted = [str(id) for id in ids]
        await wait_for(lambda: [row[0] for row in rows(app, table)] == wanted, f"{table}: {ids}")

    async def operate() -> None:
        app = top(client, write=True)
        async with app.run_test(size=(160, 50)) as pilot:
            await wait_for(lambda: bool(rows(app, "queues")), "no rows")
            await pilot.press("enter")
            await wait_for(lambda: len(rows(app, "held")) == 3, "the list is empty")
            assert rows(app, "held")[0][1:] == [
                "charge", "account:0", "1", "ValueError: no [money]",
            ]  # fmt: skip
            app.screen.query_one("#held").focus()
            await pilot.press("down")
            await ask(app, pilot, "r", f"Retry message {held[1]} of orders?", "n")
            assert queue.stats().held == 3, "no is no"
            for key, word, left in (("r", "retry", [0, 2]), ("s", "skip", [0]), ("b", "bury", [])):
                chosen = app.screen.query_one("#held", Table).chosen
                await ask(app, pilot, key, f"{word.capitalize()} message {chosen} of orders?", "y")
                await shown(app, "held", [held[at] for at in left])
                assert f"{word}: message {chosen}" in notes(app)
            await shown(app, "dead", [*dead, held[0]])
            app.screen.query_one("#dead").focus()
            await ask(app, pilot, "r", f"Requeue message {dead[0]} of orders?", "y")
            await shown(app, "dead", [dead[1], held[0]])
            await ask(app, pilot, "x", f"Discard message {dead[1]} of orders?", "y")
            await shown(app, "dead", [held[0]])
            await pilot.press("escape")
            await wait_for(lambda: isinstance(app.screen, QueuesView), "not back")

    asyncio.run(operate())
    stats = queue.stats()
    assert (stats.held, stats.dead, stats.skipped, stats.requeued) == (0, 1, 1, 1)
    assert stats.ready == 2, "one was retried, one put again"


@pytest.mark.parametrize("client", ["hub"], indirect=True)
def test_top_is_read_only_by_default(client: Client) -> None:
    spoiled(client, "orders", HELD, 1)

    async def operate() -> None:
        app = top(client)
        async with app.run_test(size=(160, 50)) as pilot:
            await wait_for(lambda: bool(rows(app, "queues")), "no rows")
            await pilot.press("enter")
            await wait_for(lambda: len(rows(app, "held")) == 1, "the list is empty")
            await pilot.press("r")
            await wait_for(lambda: "select a held or dead message first" in notes(app), "no advice")
            app.screen.query_one("#held").focus()
            await pilot.press("x")
            await wait_for(lambda: "not for what is held" in notes(app), "no advice")
            await pilot.press("r")
            await wait_for(lambda: "start it with --write" in notes(app), "not refused")
            assert not isinstance(app.screen, Confirmation)
            assert "held 1" in line(app, "states")

    asyncio.run(operate())
    assert client.queue("orders").stats().held == 1


def test_workers_and_what_they_do_are_shown(client: Client) -> None:
    queue = client.queue("orders", bytes)
    running = [{"id": 7, "task": "charge", "queue": "orders", "keys": ["a", "b"], "attempt": 2,
                "seconds": 61.5}]  # fmt: skip
    said = {"app": "shop:app", "state": "running", "concurrency": 4, "handled": 12, "failed": 1}
    queue._announce("host/1/a", 60.0, json.dumps({**said, "running": running}))
    queue._announce("host/2/b", 60.0, "no JSON [/]")
    queue.put(b"x")

    async def look() -> None:
        app = top(client)
        async with app.run_test(size=(160, 40)) as pilot:
            await wait_for(lambda: bool(rows(app, "queues")), "no rows")
            await pilot.press("w")
            await wait_for(lambda: len(rows(app, "workers")) == 2, "no workers")
            assert rows(app, "workers")[0][:7] == [
                "host/1/a", "orders", "shop:app", "running", "1/4", "12", "1",
            ]  # fmt: skip
            await wait_for(lambda: len(rows(app, "running")) == 1, "no handlers")
            assert rows(app, "running")[0] == ["7", "charge", "orders", "a, b", "2", "1 min 1 s"]
            app.screen.query_one("#workers").focus()
            await pilot.press("down")
            await wait_for(lambda: rows(app, "running") == [], "another's handlers")

    asyncio.run(look())


@pytest.mark.parametrize("client", ["redis"], indirect=True)
def test_a_worker_is_asked_for_its_stacks(client: Client) -> None:
    queue = client.queue("orders", bytes)
    queue.put(b"x")
    stack = {"id": 7, "task": "charge", "seconds": 2.5, "stack": "File [x.py], line 1\n  wait()"}
    queue._announce("host/1/a", 60.0, "{}")
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(0.05):
            for number, text in queue._announce("host/1/a", 60.0, "{}"):
                assert json.loads(text) == {"ask": "stacks"}
                told = {"answers": {str(number): {"stacks": [stack]}}}
                queue._announce("host/1/a", 60.0, json.dumps(told))
                return

    async def look() -> None:
        app = top(client, write=True)
        async with app.run_test(size=(160, 40)) as pilot:
            await wait_for(lambda: bool(rows(app, "queues")), "no rows")
            await pilot.press("w")
            await wait_for(lambda: len(rows(app, "workers")) == 1, "no workers")
            await pilot.press("k")
            await wait_for(lambda: "wait()" in line(app, "stacks"), "no answer")
            assert "message 7 charge for 2.5 s" in line(app, "stacks")
            assert "[x.py]" in line(app, "stacks")
            await pilot.press("escape")
            await wait_for(lambda: bool(app.screen.query("#workers")), "not back")

    worker = threading.Thread(target=work)
    worker.start()
    try:
        asyncio.run(look())
    finally:
        ended.set()
        worker.join()


def test_an_unreachable_engine_is_shown_and_waited_for(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    async def look(client: Client, stop: Callable[[], object]) -> None:
        app = top(client)
        async with app.run_test(size=(120, 30)) as pilot:
            await wait_for(lambda: bool(rows(app, "queues")), "no rows")
            stop()
            await wait_for(lambda: "127.0.0.1" in line(app, "trouble"), "not told")
            assert rows(app, "queues"), "what was seen stays"
            with redis_server(tmp_path_factory.mktemp("again"), wanted=number):
                await wait_for(lambda: line(app, "trouble") == "", "it did not go on")
            await pilot.press("q")

    server = redis_server(tmp_path_factory.mktemp("gone"))
    _, number = server.__enter__()
    with connect(f"redis://127.0.0.1:{number}") as client:
        client.queue("orders", bytes).put(b"x")
    with connect(f"redis://127.0.0.1:{number}?timeout=1") as client:
        asyncio.run(look(client, lambda: server.__exit__(None, None, None)))


def test_a_sparkline_is_scaled_from_zero_to_the_maximum() -> None:
    assert course([]) == "" and course([0, 0]) == "  "
    assert course([0, 1, 4, 8]) == " ▁▄█"
    assert len(course(list(range(100)))) == 20


def test_missing_packages_are_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [one for one in sys.modules if one.startswith("interlock.top.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.setitem(sys.modules, "textual.app", None)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["top", "--url", "redis://127.0.0.1:1"]) == 1
    assert "pip install '.[top]' in the clone" in capsys.readouterr().err


def test_without_a_terminal_the_command_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--url", "redis://127.0.0.1:1"]) == 2
    assert "needs a terminal" in capsys.readouterr().err
