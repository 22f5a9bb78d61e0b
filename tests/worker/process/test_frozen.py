"""A worker that was frozen beyond its lease wakes and writes: harm, unless the store fences."""

from __future__ import annotations

import signal
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

import interlock
from tests.docs.running import ROOT
from tests.hub.servers import needs_hub
from tests.worker.apps import bank
from tests.worker.process.postgresql import postgresql
from tests.worker.workers import PATIENCE, Workers, wait_for

pytestmark = pytest.mark.watchdog(180)


@pytest.fixture(params=["redis", "hub"])
def url(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """URL of an empty engine that outlives its workers."""
    with ExitStack() as stack:
        if request.param == "redis":
            port = request.getfixturevalue("worker_port")
            stack.enter_context(redis.Redis(port=port)).flushall()
            found = f"redis://127.0.0.1:{port}"
        else:
            needs_hub()
            hub = stack.enter_context(interlock.Hub(port=0, workers=2))
            found = f"interlock://{hub.addresses[0]}"
        monkeypatch.setenv("INTERLOCK_URL", found)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        monkeypatch.setattr(bank.app, "url", found)
        yield found
        bank.app.close()


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    with postgresql() as found:
        yield found


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of the accounts' database."""
    if request.param == "sqlite":
        path = str(tmp_path / "bank.db")
        with sqlite3.connect(path) as opened:
            opened.executescript(f"pragma journal_mode = wal; {bank.TABLE}")
        opened.close()
        return path
    found = str(request.getfixturevalue("cluster"))
    bank.psql(found, bank.TABLE)
    return found


def account(store: str, name: str) -> tuple[int, int]:
    """Its cents, and the token that wrote them."""
    query = f"select cents, token from account where name = '{name}'"
    if store.startswith("postgresql:"):
        cents, token = bank.psql(store, query).strip().split("|")
        return int(cents), int(token)
    opened = sqlite3.connect(store)
    ((cents, token),) = opened.execute(query)
    opened.close()
    return int(cents), int(token)


@pytest.mark.parametrize("fenced", [True, False], ids=["fenced", "unfenced"])
def test_a_late_write_of_a_frozen_worker_is_refused_by_a_fence(
    workers: Workers, store: str, fenced: bool, tmp_path: Path
) -> None:
    name = uuid.uuid4().hex
    gate = tmp_path / "gate"
    # With one handler it asks for no second message, which would then be frozen with it.
    flags = ("--lease", "2", "--concurrency", "1")
    frozen = workers.start(*flags, app="tests.worker.apps.bank:app", BANK=store).ready()
    bank.deposit.send(name, 100, fenced, str(gate))
    # Its row is written, and that database closed: one frozen within that would keep it locked.
    wait_for(Path(f"{gate}.begun").exists, "not begun")
    assert rows(workers, "begun") == [(100, 1)]
    frozen.signal(signal.SIGSTOP)
    other = workers.start(*flags, app="tests.worker.apps.bank:app", BANK=store).ready()
    bank.deposit.send(name, 250, fenced, "")
    queue = bank.app._queue("default")
    queue.join(PATIENCE)
    # The message was redelivered at its place, and the next one after it. (On a machine that is too
    # busy a lease of the other one may run out as well, so neither is counted.)
    done = rows(workers, "done")
    assert list(dict.fromkeys(cents for cents, _ in done)) == [100, 250]
    written = account(store, name)
    assert written[0] == 250
    before = rows(workers, "refused"), done
    gate.touch()
    frozen.signal(signal.SIGCONT)

    def went_on() -> bool:
        return (rows(workers, "refused"), rows(workers, "done")) != before

    wait_for(went_on, "the frozen handler did not go on")
    assert (len(rows(workers, "refused")) > len(before[0])) is fenced
    assert frozen.stopped() == 0, frozen.output
    assert other.stopped() == 0, other.output
    assert queue.stats().acks == 2, "what the frozen one settled was refused"
    if fenced:
        assert account(store, name) == written
    else:
        assert account(store, name)[0] == 100, "the older write stands above the newer one"


def rows(workers: Workers, table: str) -> list[tuple[object, ...]]:
    try:
        return workers.rows(f"select number, attempt from {table} order by rowid")
    except sqlite3.OperationalError:
        return []  # no handler has made the table yet


def test_the_page_about_fencing_has_the_statements_tested_here() -> None:
    page = (ROOT / "docs" / "explanation" / "idempotence-and-fencing.md").read_text()
    for statement in (bank.TABLE, bank.FENCED_POSTGRESQL, bank.FENCED_SQLITE):
        assert "\n".join(statement.splitlines()) in page
