"""An engine that goes away and comes back: a worker waits for it and continues."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from interlock import current_lease
from interlock.app import App
from interlock.errors import EngineUnavailable
from interlock.worker.worker import SHORTEST_FLUSH
from tests.hub.servers import redis_server
from tests.worker.workers import wait_for

STORED = ("--appendonly", "yes", "--appendfsync", "always")


def test_a_worker_survives_an_engine_outage_and_settles_finished_messages_afterwards(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate, begun = threading.Event(), threading.Event()
    attempts: list[tuple[int, int]] = []
    app = App(send_timeout=3, audit=True)

    @app.task(keys="{number}")
    def f(number: int) -> None:
        begun.set()
        gate.wait(30)
        attempts.append((number, current_lease().attempt))

    with redis_server(tmp_path, *STORED) as (_, port):
        app.url = f"redis://127.0.0.1:{port}?timeout=3"
        worker = app.worker(threads=2).start()
        f.send(1)
        assert begun.wait(30)
    # It is gone; the handler ends meanwhile.
    gate.set()
    wait_for(lambda: "trying again in" in caplog.text, "it was not missed")
    with pytest.raises(EngineUnavailable):
        f.send(2)
    with redis_server(tmp_path, *STORED, wanted=port):
        wait_for(lambda: "engine reachable again" in caplog.text, "it did not come back")
        f.send(2)
        app._queue("default").join(30)
        assert worker.stop(30) is True
        assert app._queue("default").stats().acks == 2
    assert attempts == [(1, 1), (2, 1)]
    assert worker.figures().violations == 0 and worker.broken is None
    app.close()


def test_a_stop_meets_its_deadline_while_the_engine_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, begun = threading.Event(), threading.Event()
    with App(send_timeout=3) as app:

        @app.task
        def f() -> None:
            begun.set()
            gate.wait(30)

        with redis_server(tmp_path) as (_, port):
            app.url = f"redis://127.0.0.1:{port}?timeout=3"
            worker = app.worker(threads=2).start()
            f.send()
            assert begun.wait(30)
        gate.set()
        tried: list[float] = []
        end = worker._owner.end

        def noted(seconds: float) -> None:
            tried.append(seconds)
            end(seconds)

        monkeypatch.setattr(worker._owner, "end", noted)
        assert worker.stop(0.1) is False
    assert tried == [SHORTEST_FLUSH]


def test_messages_that_reached_no_handler_are_not_counted_as_delivered(
    app: App, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    def f() -> None: ...

    f.send()
    with App(url) as other, other.worker() as worker:
        # The second time that it was leased.
        wait_for(lambda: "it is returned in 1 s" in caplog.text, "it was not redelivered")
    assert worker.figures().handed == 0
    assert app._queue("default").stats().leases >= 2
