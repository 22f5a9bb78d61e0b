"""One worker as a process: signals, readiness, reports to the service manager, its end."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import queue
import signal
import sys
import threading
import time
import traceback
from typing import Any, NoReturn

from interlock.app.app import App
from interlock.cli.queue.subcommand import count
from interlock.cli.worker.log import say, set_up
from interlock.cli.worker.metrics import of_worker
from interlock.cli.worker.ready_file import ReadyFile
from interlock.errors import WorkerBroken
from interlock.runtime.systemd import Notifier
from interlock.worker.message.meter import Reading
from interlock.worker.process.app_reference import NoApp
from interlock.worker.process.mailbox import Mailbox
from interlock.worker.process.module_changes import Changes
from interlock.worker.process.supervisor import MEASURED, VARIABLE, tell_supervisor
from interlock.worker.reports.stacks import Answering
from interlock.worker.settings import Recording
from interlock.worker.worker import Worker

_log = logging.getLogger("interlock.worker")


class WorkerProcess:
    """From the first line to the exit code."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self._environment = dict(os.environ)
        self._notifier = Notifier.of(os.environ)
        self._events: Mailbox[str] = Mailbox()
        # Under a supervisor the supervisor demands a fast stop; a signal only requests a stop.
        word = "stop" if VARIABLE in os.environ else "signal"
        self._events.tell_of((signal.SIGINT, signal.SIGTERM), word)
        self._worker: Worker | None = None
        self._is_ready = self._is_ending = False
        self._measured = os.environ.pop(MEASURED, "") != ""
        self._ready = tell_supervisor(self._events.put, self._reading)
        self._changes: Changes | None = None
        if given.watch:
            # Before the app is imported: changes from then on are noticed.
            self._changes = Changes(self._changed, likely(given.app))

    def prepare(self, app: App) -> None:
        """Create the worker. Raises NoApp and ValueError if the flags do not fit the app."""
        given = self._given
        set_up(given)
        if given.url is not None:
            app.url = given.url
        if not app.tasks:
            raise NoApp(f"{given.app} has no tasks; are the modules that declare them imported?")
        url = app.url or os.environ.get("INTERLOCK_URL") or "memory://"
        if url.startswith("memory:"):
            raise NoApp(
                f"the engine of {given.app} is {url}, which is in this process, so no other "
                "process could send to it; give --url, or set INTERLOCK_URL"
            )
        known = {task.declared.queue for task in app.tasks.values()}
        wanted = [name.strip() for name in (given.queues or "").split(",") if name.strip()]
        for name in wanted:
            if name not in known:
                raise NoApp(
                    f"--queues names {name!r}, but no task of {given.app} uses it; allowed: "
                    f"{', '.join(sorted(known))}"
                )
        self._app = app
        self._worker = app._worker(
            queues=tuple(wanted or sorted(known)),
            concurrency=given.concurrency,
            pool=given.pool,
            unkeyed=given.unkeyed,
            audit=given.audit or app.audit,
            reference=given.app,
            lease=given.lease,
            timetable=not given.no_timetable,
            record=recording(given),
        )
        self._worker.on_broken = lambda: self._events.put("broken")
        self._worker.on_drain = lambda: self._events.put("drain")
        if self._measured:
            self._worker.measure()

    def run(self) -> int:
        """Run until a signal, a change or a fault; return the exit code."""
        assert self._worker is not None
        worker, given = self._worker, self._given
        with contextlib.ExitStack() as stack:
            try:
                # First: a port in use is found before the first message.
                address = stack.enter_context(
                    of_worker(given.metrics, worker, lambda: self._is_ready)
                )
            except (ValueError, OSError, ImportError) as error:
                print(f"interlock: {error}", file=sys.stderr, flush=True)
                return 2
            code = self._begin(worker)
            if code is not None:
                return code
            if address:
                say(given, f"metrics on http://{address}/metrics", data=True)
            if self._changes is not None:
                self._changes.start()
            stack.enter_context(Answering(self._tell))
            ready_file = stack.enter_context(ReadyFile(given.ready_file))
            threading.Thread(target=self._say_when_ready, args=(ready_file,), daemon=True).start()
            what = self._events.get()
            self._is_ready, self._is_ending = False, True
            self._notifier.stopping("waiting for running handlers")
            if what != "broken":
                say(given, "stopping")
            else:
                # To the same place as the program's log.
                print(f"interlock: the worker is broken: {worker.broken}", file=sys.stderr)
            code = self._end(worker, what)
        if self._changes is not None:
            self._changes.stop()
        self._app.close()
        if what.startswith("changed") and code is not None:
            self._again()
        if violations := worker.figures().violations:
            say(given, f"the auditor found {count(violations, 'violation')}")
            code = code or 1
        if code:
            # Hung handlers would keep the interpreter from ending.
            _leave(code)
        return code

    def _begin(self, worker: Worker) -> int | None:
        """Start it; return the exit code if the start fails.

        On a thread: a program's start may hang, and signals must work then.
        """
        failed: list[BaseException] = []
        early: list[str] = []

        def start() -> None:
            try:
                worker.start()
            except BaseException as error:
                failed.append(error)
            self._events.put("begun")

        threading.Thread(target=start, name="interlock-start", daemon=True).start()
        while (said := self._events.get()) != "begun":
            if said in ("signal", "stop", "hurry"):
                say(self._given, "stopped before it started")
                _leave(0)
            if said.startswith("changed"):
                self._again()
            early.append(said)
        for said in early:
            self._events.put(said)
        if not failed:
            return None
        if worker.broken is None:
            print(f"interlock: {failed[0]}", file=sys.stderr, flush=True)
            return 2
        traceback.print_exception(failed[0])
        print("interlock: the worker cannot start", file=sys.stderr, flush=True)
        if self._changes is not None:
            return self.wait_for_change()
        # Its threads may keep the interpreter from ending.
        _leave(1)

    def wait_for_change(self) -> int:
        """Wait until the files of an app that cannot be imported change, and start over."""
        assert self._changes is not None
        self._changes.start()
        say(self._given, "waiting for a change")
        if self._events.get().startswith("changed"):
            self._again()
        return 0

    def _end(self, worker: Worker, what: str) -> int:
        worker.quiesce()

        def wait() -> None:
            worker.wait()
            self._events.put("idle")

        threading.Thread(target=wait, daemon=True).start()
        until = time.monotonic() + self._given.drain_timeout
        why = ""
        while not why:
            try:
                said = self._events.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                why = "the drain timeout is over"
                continue
            if said == "idle":
                why = "idle"
            elif said in ("signal", "hurry"):
                why = "a second signal"
        left = len([each for each in worker.holding() if each.started is not None])
        whole = worker.hand_back()
        if why != "idle" and left:
            were = "was still running, and its message goes" if left == 1 else (
                "were still running, and their messages go"
            )  # fmt: skip
            say(self._given, f"{why}: {count(left, 'handler')} {were} back")
        return 0 if whole and what != "broken" else 1

    def _say_when_ready(self, ready_file: ReadyFile) -> None:
        assert self._worker is not None
        worker = self._worker
        try:
            # A call gives up only after seconds, and nothing else would be logged until then.
            if not worker.wait_until_ready(SOON) and not self._is_ending:
                say(self._given, f"waiting for {worker.waits_for}")
            if not worker.wait_until_ready():
                return
        except WorkerBroken:
            return
        settings = worker.settings
        queues = "queue" if len(settings.queues) == 1 else "queues"
        line = (
            f"{self._given.app} on {worker.url}, {queues} {', '.join(settings.queues)}, "
            f"{count(settings.concurrency, 'handler')} ({settings.pool})"
            + (
                f", {settings.unkeyed} of them for messages without keys"
                if settings.unkeyed
                else ""
            )
        )
        try:
            ready_file.write()
        except OSError as error:
            _log.error("the ready file cannot be written: %s", error)
        say(self._given, f"ready, {line}", data=True, **self._facts())
        self._notifier.ready(line)
        self._is_ready = True
        self._ready()
        period = self._notifier.watchdog
        while period is not None:
            # Blocks if the worker's lock is held: a hung worker then sends no sign of life.
            worker.holding()
            self._notifier.alive()
            time.sleep(period / 2)

    def _reading(self) -> Reading:
        return Reading([], [], []) if self._worker is None else self._worker.reading()

    def _tell(self) -> dict[str, Any]:
        assert self._worker is not None
        return {**self._facts(), "handlers": self._worker.stacks()}

    def _facts(self) -> dict[str, Any]:
        assert self._worker is not None
        settings = self._worker.settings
        return {
            "process": os.getpid(),
            "app": self._given.app,
            "queues": list(settings.queues),
            "concurrency": settings.concurrency,
            "pool": settings.pool,
            "unkeyed": settings.unkeyed,
        }

    def _changed(self, path: str) -> None:
        say(self._given, f"{path} has changed")
        self._events.put("changed")

    def _again(self) -> None:
        """Re-execute the command in this process."""
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], self._environment)


def _leave(code: int) -> NoReturn:
    """End the process, whatever its threads do."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def recording(given: argparse.Namespace) -> Recording | None:
    """Return the recording that the flags request."""
    if given.record is None:
        return None
    return Recording(
        # The pool's processes, or a handler, may change their working directory.
        os.path.abspath(given.record),
        given.record_limit * 2**20,
        given.record_sample,
        given.record_payloads,
    )


def likely(reference: str) -> set[str]:
    """Return the possible files of the app's module, wherever it is searched."""
    module = reference.partition(":")[0].replace(".", os.sep)
    return {
        os.path.join(folder or os.getcwd(), file)
        for folder in sys.path
        for file in (f"{module}.py", os.path.join(module, "__init__.py"))
    }


SOON = 1.0
"""Seconds within which a reachable engine answers."""
