"""Status and explain: what a relay reports, and what a row waits for."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from interlock.app import App
from interlock.cli import main
from interlock.client.admin.operator import Operator
from interlock.client.admin.server import Server
from interlock.client.faces.client import connect as connect_engine
from interlock.outbox import Outbox
from interlock.outbox import relay as relays
from interlock.outbox.exporter import OutboxExporter
from interlock.outbox.postgres import admin
from interlock.outbox.postgres.database import LOCK
from interlock.retry import Retry
from tests.hub.servers import HubProcess, needs_hub
from tests.outbox.conftest import Connect
from tests.worker.workers import wait_for

ME = f"{socket.gethostname()} pid {os.getpid()}"


class Place:
    """An app whose handlers wait until they may end."""

    def __init__(self, url: str, connect: Connect, engine: str = "memory://", window: int = 100
                 ) -> None:  # fmt: skip
        self.url = url
        self.app = App(engine, retry=Retry(attempts=1))
        self.outbox = Outbox(self.app, url, window=window)
        self.seen = connect(autocommit=True)
        self.go = threading.Event()
        self.begun = threading.Event()

        @self.app.task(keys="key:{n}", transaction=self.outbox)
        def work(db: Any, n: int) -> None:
            self.begun.set()
            self.go.wait(30)
            if n < 0:
                raise RuntimeError("below zero")

        @self.app.task(keys="block", transaction=self.outbox, retry=Retry(attempts=1, then="hold"))
        def block(db: Any, n: int) -> None:
            raise RuntimeError("below zero")

        self.work, self.block = work, block

    def send(self, n: int, **options: Any) -> int:
        return self.outbox.send(self.seen, self.work.options(**options), n).id

    def status(self) -> admin.Status:
        return admin.status(self.seen, "interlock")

    def until(self, id: int, text: str) -> str:
        """Wait until the explanation of a row has this text; return the explanation."""
        wait_for(lambda: text in str(self.outbox.explain(id)), f"not {text!r}")
        return str(self.outbox.explain(id))


@pytest.fixture
def place(database: str, connect: Connect) -> Iterator[Place]:
    made = Place(database, connect)
    yield made
    made.go.set()
    made.app.close()


def test_a_row_without_a_relay_waits_and_status_counts_it(place: Place) -> None:
    first, second = place.send(1), place.send(1)
    assert str(place.outbox.explain(second)) == (
        f"row {second}: number 2 waits for the relay behind 1 row; no relay works: start a worker "
        "of the app"
    )
    assert place.outbox.explain(first).ahead == 0
    found = place.status()
    assert (found.waiting, found.relayed, found.relay, found.reported) == (2, 0, None, None)
    assert found.oldest is not None and found.oldest >= 0


def test_a_row_that_is_not_there_is_handled_uncommitted_or_unknown(
    place: Place, connect: Connect
) -> None:
    place.go.set()
    with place.app.worker(threads=1):
        handled = place.send(1)
        wait_for(lambda: place.outbox.explain(handled).state == "missing", "not handled")
    assert "handled, or its transaction was rolled back" in place.outbox.explain(handled).reason
    db = connect()
    uncommitted = place.outbox.send(db, place.work, 1).id
    assert "or is in one of 1 open" in place.outbox.explain(uncommitted).reason
    assert "not given yet" in place.outbox.explain(uncommitted + 1).reason


def test_a_relayed_row_waits_in_the_engine_for_the_message_that_is_handled(place: Place) -> None:
    with place.app.worker(threads=2):
        place.send(1)
        second = place.send(1)
        assert place.begun.wait(30)
        text = place.until(second, "of queue 'default', waiting")
        found = place.outbox.explain(second)
        assert found.waits is not None
        assert [node.state for node in found.waits.nodes] == ["waiting", "leased"]
        assert found.message == found.waits.nodes[0].id
        assert f"is in the engine as message {found.message} of" in text
        wait_for(lambda: place.status().relayed == 2, "the relay does not report its position")
        status = place.status()
        assert (status.relay, status.waiting, status.waits) == (ME, 0, None)
        place.go.set()


def test_a_row_beyond_a_full_window_names_the_key_that_fills_it(
    database: str, connect: Connect
) -> None:
    place = Place(database, connect, window=2)
    with place.app.worker(threads=2):
        for n in (1, 1, 1):
            place.send(n)
        last = place.send(2)
        place.until(last, "behind 1 row; the window is full: key key:1 has 2 rows in it")
        assert place.status().waits == "the window is full"
        place.go.set()
    place.app.close()


def test_dead_and_held_rows_say_their_error_and_the_command(
    database: str, connect: Connect
) -> None:
    place = Place(database, connect)
    place.go.set()
    with place.app.worker(threads=1):
        dead = place.send(-1)
        held = place.outbox.send(place.seen, place.block, -2).id
        text = place.until(dead, "dead; `interlock outbox requeue")
        assert "attempt 1 failed: RuntimeError: below zero" in text
        text = place.until(held, "held; `interlock outbox requeue")
        assert "attempt 1 failed: RuntimeError: below zero" in text
        found = place.status()
        assert (found.dead, found.held) == (1, 1)
    place.app.close()


def test_the_command_explains_a_row_from_the_database_to_a_hub(
    database: str, connect: Connect, capsys: pytest.CaptureFixture[str]
) -> None:
    needs_hub()
    hub = HubProcess("--port", "0")
    where = ["--database", database]
    try:
        place = Place(database, connect, f"interlock://127.0.0.1:{hub.port}")
        with place.app.worker(threads=2):
            place.send(1)
            second, third = place.send(1), place.send(3, delay=1000.0)
            place.until(second, "waiting")
            url = ["--url", f"interlock://127.0.0.1:{hub.port}"]
            assert main(["postgres", "explain", str(second), *where, *url, "--json"]) == 0
            found = json.loads(capsys.readouterr().out)
            assert (found["state"], found["queue"]) == ("relayed", "default")
            assert [node["state"] for node in found["waits"]["nodes"]] == ["waiting", "leased"]
            place.until(third, "delayed")
            assert main(["postgres", "explain", str(third), *where]) == 0
            assert "name the engine" in capsys.readouterr().out
            place.go.set()
        place.app.close()
    finally:
        hub.process.kill()
        hub.process.communicate()
    assert main(["postgres", "explain", str(third), *where, *url]) == 1


def test_a_relay_without_an_engine_reports_that_it_waits(
    database: str, connect: Connect, capsys: pytest.CaptureFixture[str]
) -> None:
    needs_hub()
    hub = HubProcess("--port", "0")
    place = Place(database, connect, f"interlock://127.0.0.1:{hub.port}")
    with place.app.worker(threads=1):
        wait_for(lambda: place.status().relay == ME, "no relay")
        url = f"interlock://127.0.0.1:{hub.port}"
        with connect_engine(url) as client:
            operator = Operator(Server(client))
            wait_for(lambda: any(one.said.get("relay") for one in operator.workers("default")),
                     "not announced")  # fmt: skip
            (said,) = [one.said for one in operator.workers("default")]
        assert said["relay"].startswith("outbox interlock: position 0, 0 gaps")
        assert main(["worker", "list", "--url", url]) == 0
        assert "running, relays" in capsys.readouterr().out
        hub.process.kill()
        hub.process.communicate()
        wait_for(lambda: "the engine does not answer" in (place.status().waits or ""), "no reason")
        assert main(["postgres", "status", "--database", database]) == 0
        assert f"relay    {ME}, waits: the engine does not answer" in capsys.readouterr().out
    place.app.close()
    assert place.status().relay is None


def test_a_relay_whose_loop_does_not_turn_makes_its_worker_unhealthy(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = place.app.worker(threads=1)
    with worker:
        wait_for(lambda: place.status().relay == ME, "no relay")
        assert worker.answers(20)
        assert ["relays", [], 1] in worker.reading().gauges
        relay = worker._relay
        assert isinstance(relay, relays.Relay) and relay._report is not None
        entered, leave = threading.Event(), threading.Event()

        def stand(waits: str | None) -> None:
            entered.set()
            leave.wait(30)

        monkeypatch.setattr(relay._report, "write", stand)
        assert entered.wait(30)
        monkeypatch.setattr(relays, "LONGEST_TURN", time.monotonic() - relay._report.turned - 1)
        assert not worker.answers(20)
        leave.set()
    assert ["relays", [], 0] in worker.reading().gauges


def test_status_says_that_a_relay_stands_still_if_it_has_the_lock_and_does_not_report(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    with psycopg.connect(place.url, autocommit=True) as holder:
        holder.execute(f"select pg_advisory_lock({LOCK.format('%s')})".encode(),
                       ("interlock",))  # fmt: skip
        pid = holder.info.backend_pid
        assert place.status().relay == f"server process {pid}"
        holder.execute(
            "update interlock.outbox_meta set relay = 'host pid 1', session = pg_backend_pid(), "
            "reported = clock_timestamp() - interval '1 minute'"
        )
        assert main(["postgres", "status", "--database", place.url]) == 0
        assert "host pid 1 stands still" in capsys.readouterr().out


# -- An SQLite file -------------------------------------------------------------------------------


class FilePlace:
    """An app with an outbox in a file, whose handlers wait until they may end."""

    def __init__(self, path: Path, engine: str = "memory://", window: int = 100) -> None:
        self.url = f"sqlite:///{path}"
        self.app = App(engine, retry=Retry(attempts=1))
        self.outbox = Outbox(self.app, self.url, window=window)
        self.outbox.migrate()
        self.db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.go, self.begun = threading.Event(), threading.Event()

        @self.app.task(keys="key:{n}", result_ttl=60)
        def work(n: int) -> None:
            self.begun.set()
            self.go.wait(30)
            if n < 0:
                raise RuntimeError("below zero")

        self.work = work

    def send(self, n: int) -> int:
        return self.outbox.send(self.db, self.work, n).id

    def until(self, id: int, text: str) -> None:
        wait_for(lambda: text in str(self.outbox.explain(id)), f"not {text!r}")


def test_a_row_in_a_file_is_explained_from_its_transaction_to_its_result(tmp_path: Path) -> None:
    place = FilePlace(tmp_path / "bank.db", window=2)
    first, second, third = (place.send(1) for _ in range(3))
    text = str(place.outbox.explain(second))
    assert f"row {second}: number 2 waits for the relay behind 1 row; no relay works" in text
    with place.app.worker(threads=2):
        place.until(third, "behind 0 rows; the window is full: key key:1 has 2 rows in it")
        place.until(second, "is in the engine as message")
        found = place.outbox.explain(second)
        assert found.waits is not None
        assert [node.state for node in found.waits.nodes] == ["waiting", "leased"]
        place.go.set()
        dead = place.send(-1)
        place.until(dead, "dead; `interlock outbox requeue")
        place.until(first, "it was settled as acked; its result is kept")
        wait_for(lambda: place.outbox.job(place.work, third).state() == "acked", "not handled")
    assert "the id was not given yet" in place.outbox.explain(dead + 1).reason
    place.db.close()
    place.app.close()


def test_the_command_and_the_exporter_show_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    place = FilePlace(tmp_path / "bank.db")
    sent = place.send(1)
    assert main(["outbox", "explain", str(sent), "--database", place.url, "--url", ""]) == 0
    assert "no relay works" in capsys.readouterr().out
    assert main(["outbox", "explain", "9", "--database", place.url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "missing"
    exporter = OutboxExporter(place.url, "interlock")
    assert 'interlock_outbox_rows{state="waiting"} 1' in exporter.text()
    place.go.set()
    with place.app.worker(threads=1):
        place.outbox.job(place.work, sent).result(20)
        assert f'interlock_outbox_relay{{relay="{ME}"}} 1' in exporter.text()
        assert "interlock_outbox_results 1" in exporter.text()
    place.db.close()
    (tmp_path / "bank.db").rename(tmp_path / "gone.db")
    assert "interlock_outbox_up 0" in exporter.text()
    assert "does not exist" in caplog.text
