"""Makes a worker of an app, with the parts that run for as long as it does."""

from __future__ import annotations

from typing import Any

from interlock.app.reach import served
from interlock.worker.pools.default_concurrency import usual_concurrency
from interlock.worker.settings import WorkerSettings
from interlock.worker.worker import Beside, Worker

__all__ = ["make"]


def make(app: Any, **settings: Any) -> Worker:
    """Return a worker; see ``App.worker``.

    Args:
        app: the ``App``.
        settings: those of ``WorkerSettings``, and ``timetable``. A ``concurrency`` of None is the
            usual one of the pool.
    """
    if settings["concurrency"] is None:
        settings["concurrency"] = usual_concurrency(settings["pool"])
    url = app._named() or "memory://"
    app._has_worker = True
    if url.startswith("memory://") and url != "memory://":
        served(url)
    beside: list[Beside] = []
    wanted = settings.pop("timetable", True)
    checked = WorkerSettings(**settings)
    schedules: list[str] = []
    if wanted:
        from interlock.app.timetable.runner import Runner

        runner = Runner(app.timetable, app.tasks, checked.queues, app._open, checked.lease)
        beside.append(runner)
        schedules = runner.names
    relay = None
    if app._outbox is not None:
        relay = app._outbox.relay(lambda: _same_engine(app))
        beside.append(relay)
    worker = Worker(app._as_tasks(), app._open, checked, url, beside, relay)
    if not url.startswith("memory:"):
        # No other process could look into an engine in memory.
        from interlock.worker.reports.announcing import Announcing

        beside.append(Announcing(worker, app._open, checked.reference, schedules))
    return worker


def _same_engine(app: Any) -> Any:
    """Return another client of the engine that the app uses."""
    app._open("default")
    return app._client._again()
