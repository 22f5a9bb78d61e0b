"""Roles: each part of a program does its work with the rights of the page, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from interlock.app import App
from interlock.cli import main
from interlock.outbox import Outbox
from interlock.outbox.postgres.rights import Part, grants
from interlock.retry import Retry
from tests.docs.running import ROOT
from tests.outbox.conftest import Connect
from tests.worker.workers import wait_for

PARTS: tuple[Part, ...] = ("producer", "reader", "worker", "relay", "monitor")
INSERT = (
    "insert into interlock.outbox (queue, task, payload, keys, shared, options) "
    "values ('q', 't', '', '{}', '{}', '{}')"
)
STATEMENTS = {
    "insert": INSERT,
    "delete": "delete from interlock.outbox where id = -1",
    "payload": "select payload from interlock.outbox",
    "place": "update interlock.outbox set batch = 1 where id = -1",
    "outcome": "update interlock.outbox set state = 'dead' where id = -1",
    "prefix": "update interlock.outbox_meta set prefix = 'x'",
    "report": "update interlock.outbox_meta set position = 1",
    "meta": "select prefix from interlock.outbox_meta",
    "draw": "select nextval('interlock.outbox_numbers')",
    "results": "select result from interlock.outbox_results",
    "result": "insert into interlock.outbox_results (id, sent, state, expires) "
    "values (1, 1, 'acked', now())",
    "drop": "drop table interlock.outbox",
}
ALLOWED = {
    "producer": {"insert"},
    "reader": {"results"},
    "worker": {"delete", "payload", "outcome", "result"},
    "relay": {"payload", "outcome", "meta", "report"},
    "monitor": {"payload", "meta", "results"},
}


class Roles:
    """A database whose roles have the rights of the page."""

    def __init__(self, url: str, owner: psycopg.Connection[Any]) -> None:
        self.owner, self._url = owner, url
        page = (ROOT / "docs" / "reference" / "outbox.md").read_text(encoding="utf-8")
        self.page = page.partition("```sql\n")[2].partition("```")[0]
        for name in PARTS:
            text = f"begin create role {name} login; exception when duplicate_object then end"
            owner.execute(f"do $$ {text} $$".encode())
        owner.execute(self.page.encode())

    def url(self, role: str) -> str:
        return self._url.replace("//bank@", f"//{role}@")

    def revoke(self, text: str) -> None:
        self.owner.execute(f"revoke {text}".encode())


@pytest.fixture
def roles(database: str, connect: Connect) -> Iterator[Roles]:
    made = Roles(database, connect(autocommit=True))
    yield made
    made.owner.execute("drop owned by producer, reader, worker, relay, monitor")


def app_of(roles: Roles) -> tuple[App, Outbox, Any]:
    app = App("memory://", retry=Retry(attempts=1))
    outbox = Outbox(app, roles.url("worker"), relay_url=roles.url("relay"))

    @app.task(keys="key", transaction=outbox, result_ttl=60)
    def work(db: Any, n: int) -> int:
        if n < 0:
            raise RuntimeError("below zero")
        return n

    return app, outbox, work


def rows(roles: Roles) -> list[Any]:
    query = "select state from interlock.outbox order by id"
    return [state for (state,) in roles.owner.execute(query)]


def test_the_parts_do_their_work_with_the_rights_of_the_page(
    roles: Roles, capsys: pytest.CaptureFixture[str]
) -> None:
    app, outbox, work = app_of(roles)
    with psycopg.connect(roles.url("producer")) as db:
        named = work.options(dedup="one", delay=0.01)
        assert not outbox.send(db, named, 1).known
        assert outbox.send(db, named, 2).known
        outbox.send(db, work, -3)
    with app.worker(threads=2):
        wait_for(lambda: rows(roles) == ["dead"], "not handled")
        where = ["--database", roles.url("monitor")]
        for words in (["status"], ["dead"], ["explain", "1"], ["explain", "3"]):
            assert main(["postgres", *words, *where]) == 0
    reader = Outbox(App("memory://"), roles.url("reader"))

    @reader.app.task(name="work", result_ttl=60)
    def stub(n: int) -> int:
        raise NotImplementedError

    assert reader.job(stub, 1).result(20) == 1
    assert (reader.job(stub, 3).state(), reader.job(stub, 4).state()) == ("dead", "gone")
    out = capsys.readouterr().out
    assert "dead     1" in out and "row 1: it was settled as" in out and "row 3: dead" in out


@pytest.mark.parametrize("part", PARTS)
def test_a_part_has_no_right_that_it_does_not_need(roles: Roles, part: Part) -> None:
    for name, statement in STATEMENTS.items():
        with psycopg.connect(roles.url(part)) as db:
            if name in ALLOWED[part]:
                db.execute(statement.encode())
            else:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    db.execute(statement.encode())
            db.rollback()


@pytest.mark.parametrize("part", PARTS)
def test_the_page_has_the_rights_that_errors_name(roles: Roles, part: Part) -> None:
    for one in grants(part, "interlock", part):
        right = one.replace('"', "").removesuffix(f" to {part};")
        assert any(line.startswith(right) and part in line for line in roles.page.splitlines())


def test_a_send_without_its_right_has_a_note_that_names_the_grant(roles: Roles) -> None:
    roles.revoke("insert on interlock.outbox from producer")
    sqlalchemy = pytest.importorskip("sqlalchemy")
    pytest.importorskip("asyncpg")
    from sqlalchemy.ext.asyncio import create_async_engine

    _, outbox, work = app_of(roles)
    url = roles.url("producer")

    def in_psycopg() -> None:
        with psycopg.connect(url) as db:
            outbox.send(db, work, 1)

    def in_sqlalchemy() -> None:
        engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
        try:
            with engine.begin() as db:
                outbox.send(db, work, 1)
        finally:
            engine.dispose()

    def in_asyncpg() -> None:
        async def send() -> None:
            engine = create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"))
            try:
                async with engine.begin() as db:
                    await outbox.asend(db, work, 1)
            finally:
                await engine.dispose()

        asyncio.run(send())

    for send in (in_psycopg, in_sqlalchemy, in_asyncpg):
        with pytest.raises(Exception, match="permission denied") as caught:
            send()
        (note,) = caught.value.__notes__
        assert (
            'grant insert, select (id, created, queue, dedup, state) on "interlock".outbox to'
            in note
        )


def test_a_worker_and_a_relay_without_a_right_log_the_grant(
    roles: Roles, caplog: pytest.LogCaptureFixture
) -> None:
    roles.revoke("update (position) on interlock.outbox_meta from relay")
    roles.revoke("delete on interlock.outbox from worker")
    app, outbox, work = app_of(roles)
    outbox.send(roles.owner, work, 1)
    with app.worker(threads=1):
        wait_for(lambda: "a relay needs: grant" in caplog.text, "not logged for the relay")
        roles.owner.execute(roles.page.partition("to worker;")[2].encode())
        wait_for(lambda: "a worker needs: grant" in caplog.text, "not logged for the worker")
        assert 'update (attempts, error, state), delete on "interlock".outbox to' in caplog.text
        roles.owner.execute(roles.page.encode())
        wait_for(lambda: rows(roles) == [], "not handled")


def test_the_command_without_a_right_names_the_grant(
    roles: Roles, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["postgres", "status", "--database", roles.url("worker")]) == 1
    error = capsys.readouterr().err
    assert "permission denied" in error and "a monitor needs: grant usage" in error
