"""A standby that lost the last transactions takes the place of its primary."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import interlock
from interlock.app import App
from interlock.outbox import Outbox
from interlock.outbox.postgres import schema
from interlock.retry import Retry
from tests.hub.servers import needs_hub
from tests.worker.process.postgresql import Server, Standby
from tests.worker.workers import wait_for

LOST = 100
"""A sequence may be up to 32 values ahead on a standby; so some ids are given a second time."""


class Pair:
    """A primary with its standby, and an app with a worker whose URL names both."""

    def __init__(self, primary: Server, standby: Standby, port: int) -> None:
        self.primary, self.standby = primary, standby
        self.db = psycopg.connect(primary.url, autocommit=True)
        schema.migrate(self.db, "interlock")
        self.db.execute("create table effect (at bigint generated always as identity, n int)")
        self._stack = contextlib.ExitStack()
        standby.__enter__()
        self._stack.push(standby)
        self.follower = psycopg.connect(standby.url, autocommit=True)
        ports = [one.url.rpartition(":")[2].partition("/")[0] for one in (primary, standby)]
        url = (
            f"postgresql://bank@/postgres?host=127.0.0.1,127.0.0.1&port={','.join(ports)}"
            "&target_session_attrs=read-write"
        )
        self.app = App(f"interlock://127.0.0.1:{port}", retry=Retry(attempts=None, first=0.01))
        self.outbox = Outbox(self.app, url)
        self.stops, self.goes_on = threading.Event(), threading.Event()
        """The call -2 waits in its transaction."""

        @self.app.task(keys="key", transaction=self.outbox)
        def note(db: Any, n: int) -> None:
            db.execute("insert into effect (n) values (%s)", (n,))
            if n == -2 and not self.goes_on.is_set():
                self.stops.set()
                assert self.goes_on.wait(60)

        self.note = note
        self.client = self._stack.enter_context(interlock.connect(self.app.url))
        self.queue = self.client.queue("default")

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        self.goes_on.set()
        self.follower.close()
        self.db.close()
        self._stack.close()
        self.app.close()

    def send(self, *calls: int) -> None:
        for n in calls:
            self.outbox.send(self.db, self.note, n)

    def detach(self) -> None:
        """Let the standby have what was committed until now, and nothing later."""
        (end,) = self.db.execute("select pg_current_wal_flush_lsn()").fetchone() or ()
        query = "select pg_last_wal_replay_lsn() >= %s::pg_lsn"
        wait_for(lambda: self.follower.execute(query, (end,)).fetchone() == (True,), "not replayed")
        self.follower.execute("alter system set primary_conninfo = ''")
        self.follower.execute("select pg_reload_conf()")
        query = "select count(*) from pg_stat_wal_receiver"
        wait_for(lambda: self.follower.execute(query).fetchone() == (0,), "still receives")

    def fail_over(self) -> None:
        self.db.close()
        self.primary.kill()
        self.follower.execute("select pg_promote()")
        self.db = self.follower

    def effects(self) -> list[int]:
        return [n for (n,) in self.db.execute("select n from effect order by at").fetchall()]

    def wait_for_rows(self, count: int) -> None:
        query = "select count(*) from interlock.outbox"
        wait_for(lambda: self.db.execute(query).fetchone() == (count,), "rows are left")


@pytest.fixture
def pair() -> Iterator[Pair]:
    needs_hub()
    with (
        Server("-c", "fsync=off") as primary,
        interlock.Hub(port=0, workers=1) as hub,
        Pair(primary, Standby(primary), int(hub.addresses[0].rpartition(":")[2])) as found,
    ):
        yield found


def test_calls_of_transactions_that_a_failover_lost_do_nothing_although_their_ids_are_used_again(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "interlock.outbox")
    with pair.app.worker(threads=2):
        pair.send(0)
        pair.wait_for_rows(0)
        pair.queue.pause()
        pair.send(1, 2)
        pair.detach()
        pair.send(*range(1000, 1000 + LOST))
        wait_for(lambda: pair.queue.stats().unsettled == 2 + LOST, "not all are put")
        pair.fail_over()
        pair.send(*range(3, 3 + LOST))
        # All rows that are left, as of the new primary, beside what the old one gave.
        wait_for(lambda: pair.queue.stats().unsettled == 4 + 2 * LOST, "not all are put again")
        pair.queue.resume()
        pair.wait_for_rows(0)
        wait_for(lambda: pair.queue.stats().unsettled == 0, "not all are settled")
    assert pair.effects() == list(range(3 + LOST))
    assert caplog.text.count("has no row") == 2 + LOST


def test_calls_whose_effects_a_failover_lost_are_handled_again_before_those_behind_them(
    pair: Pair,
) -> None:
    pair.send(-1, -2, -3)
    # Before a worker handles the first, whose effect the standby is not to have.
    pair.detach()
    with pair.app.worker(threads=2):
        assert pair.stops.wait(60)
        # On the old primary the first was handled; the second is.
        assert pair.effects() == [-1]
        assert pair.follower.execute("select count(*) from effect").fetchone() == (0,)
        pair.fail_over()
        pair.goes_on.set()
        pair.wait_for_rows(0)
        wait_for(lambda: pair.queue.stats().unsettled == 0, "not all are settled")
    assert pair.effects() == [-1, -2, -3]
