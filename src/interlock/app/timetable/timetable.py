"""The entries of an app's timetable: those that it declares, and those stored at run time."""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from interlock.app.timetable import timer as timers
from interlock.app.timetable.entry import (
    MOST_COPIES,
    Definition,
    Entry,
    Missed,
    check_arguments,
)
from interlock.app.timetable.schedule import Cron, Every
from interlock.app.timetable.timer import Timer
from interlock.client.wire import admin as wire

if TYPE_CHECKING:
    from interlock.app.app import App
    from interlock.client.request import Request
    from interlock.client.wire.records import Stored
    from interlock.retry import Seconds

__all__ = ["Timetable"]


class Timetable(Mapping[str, Entry]):
    """The declared entries by their names; and ``add``, ``change``, ``remove`` of stored ones.

    A stored entry is in the engine, next to the messages of its task's queue, and belongs to no
    release: all workers of that queue that know its task send its calls, until it is removed. Any
    process that has the app may change it; the changes of one entry apply in their order. A worker
    that begins to serve the timetable of a queue notices its first stored entry within ten
    seconds.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self.declared: dict[str, Entry] = {}
        self.runners: weakref.WeakSet[Any] = weakref.WeakSet()
        """The ``Runner`` of each worker in this process, which looks at once for a change."""

    def __getitem__(self, name: str) -> Entry:
        return self.declared[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.declared)

    def __len__(self) -> int:
        return len(self.declared)

    def add(
        self,
        name: str,
        task: Any,
        *,
        cron: str | None = None,
        every: Seconds | str | None = None,
        tz: str = "UTC",
        missed: Missed = "once",
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] = MappingProxyType({}),
        copies: int | None = None,
    ) -> bool:
        """Store an entry. Returns False if the same one exists.

        Args:
            name: name of the entry, up to 200 bytes.
            task: a task of this app.
            cron, every: its schedule, one of both; see ``App.cron`` and ``App.every``.
            tz: the time zone of ``cron``. Default UTC.
            missed: policy for ticks at which no worker ran, as for ``App.cron``. Default
                ``"once"``.
            args, kwargs: the arguments of each call, values of JSON. Default: none.
            copies: maximum calls that may be unsettled at once, as for ``App.cron``. Default None.

        Raises:
            TypeError, ValueError: an argument is of a wrong type or out of its range, the task does
                not take these arguments, or another entry has this name.
            EngineUnavailable: the engine did not answer.
        """
        entry = self._entry("add()", name, task, cron, every, tz, missed, args, kwargs, copies)
        if name in self.declared:
            raise ValueError(f"add(): the app declares an entry {name!r}; choose another name")
        new = timers.timer(entry, 0)
        for queue in self._queues():
            known = _current(_on_key(self._open(queue), name))
            if known is not None and queue == entry.queue and _same(known, new):
                return False
            if known is not None:
                raise ValueError(
                    f"add(): there is an entry {name!r} ({known.schedule}, task {known.task}); "
                    "`change` replaces it"
                )
        self._set(entry)
        return True

    def change(
        self,
        name: str,
        task: Any,
        *,
        cron: str | None = None,
        every: Seconds | str | None = None,
        tz: str = "UTC",
        missed: Missed = "once",
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] = MappingProxyType({}),
        copies: int | None = None,
    ) -> None:
        """Replace a stored entry as a whole; the arguments are those of ``add``.

        Ticks that the old one would have had until now are not made up for.

        Raises:
            KeyError: there is no stored entry of this name.
            TypeError, ValueError, EngineUnavailable: as ``add``.
        """
        entry = self._entry("change()", name, task, cron, every, tz, missed, args, kwargs, copies)
        queues = self._queues_of(name)
        if not queues:
            raise KeyError(f"change(): there is no stored entry {name!r}; add() stores one")
        self._set(entry)
        for queue in queues:
            if queue != entry.queue:
                self._unset(queue, name)

    def remove(self, name: str, *, queue: str | None = None) -> bool:
        """Remove a stored entry. Returns False if there is none of this name.

        A call that was sent already stays in its queue.

        Args:
            name: name of the entry.
            queue: the queue of its task, if no task of this app is on it. Default: the queues of
                the app's tasks.

        Raises:
            EngineUnavailable: the engine did not answer.
        """
        queues = self._queues_of(name, queue)
        for queue in queues:
            self._unset(queue, name)
        return bool(queues)

    def stored(self, queue: str | None = None) -> list[Timer]:
        """Return the stored entries, by their names; ``tick`` is 0 until a worker has seen one.

        Args:
            queue: only those of tasks on this queue, which need not be a queue of the app. Default:
                those of the queues of the app's tasks.

        Raises:
            EngineUnavailable: the engine did not answer.
        """
        found: dict[str, Timer] = {}
        for each in self._queues() if queue is None else [queue]:
            own: dict[str, list[tuple[Stored, Timer]]] = {}
            for one in listed(self._open(each)):
                own.setdefault(one[1].name, []).append(one)
            # A change to a task of another queue is a removal in this one.
            current = {name: _current(some) for name, some in own.items()}
            found |= {name: one for name, one in current.items() if one is not None}
        return [found[name] for name in sorted(found)]

    def other_queues(self) -> list[str]:
        """Return the queues whose timetable the engine has, and on which no task of this app is.

        Raises:
            EngineUnavailable: the engine did not answer.
        """
        from interlock.client.admin.operator import Operator
        from interlock.client.admin.server import Server

        client = self._open("default")._client
        names = Operator(Server(client)).queues()
        ends = timers.SUFFIX
        found = {name.removesuffix(ends) for name in names if name.endswith(ends)}
        return sorted(found - set(self._queues()) - {""})

    # -- Messages -----------------------------------------------------------------------------

    def _entry(
        self, call: str, name: str, task: Any, cron: str | None, every: Any, tz: str,
        missed: Missed, args: Sequence[Any], kwargs: Mapping[str, Any], copies: int | None,
    ) -> Entry:  # fmt: skip
        check_arguments(call, name, missed, args, kwargs, copies)
        if getattr(task, "name", None) not in self._app.tasks:
            raise TypeError(f"{call}: task is {task!r}; allowed: a task of this app")
        if (cron is None) == (every is None):
            raise TypeError(f"{call}: give either cron= or every=")
        if every is not None and tz != "UTC":
            raise ValueError(
                f"{call}: tz is {tz!r} with every=; allowed: tz= with cron=, because every= counts "
                "from 1970, UTC"
            )
        if callable(args) or callable(kwargs):
            raise TypeError(
                f"{call}: args or kwargs is a function, which cannot be stored; "
                "declare the entry by @app.cron, or give values"
            )
        schedule = Every(every) if cron is None else Cron(cron, tz)
        stored = Definition([*args], dict(kwargs), copies or 0)
        try:
            kept = msgspec.json.decode(msgspec.json.encode(stored), type=Definition)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{call}: args or kwargs cannot be stored as JSON: {error}") from None
        if (kept.args, kept.kwargs) != (stored.args, stored.kwargs):
            raise TypeError(
                f"{call}: args or kwargs would change if stored as JSON, to {kept.args!r} and "
                f"{kept.kwargs!r}; give values that JSON has"
            )
        entry = Entry(name, task, schedule, missed, args, kwargs, copies or 0, stored)
        entry.check()
        return entry

    def _set(self, entry: Entry) -> None:
        self._order(entry.queue, msgspec.structs.replace(timers.timer(entry, 0), change="set"))

    def _unset(self, queue: str, name: str) -> None:
        self._order(queue, Timer(name, "", "", "skip", 0, change="remove"))

    def _order(self, queue: str, change: Timer) -> None:
        """Put a change, behind all that is known of its entry.

        A worker applies it. A timer that sleeps is cancelled here, because the change would wait
        behind it for up to a minute; one that is leased meanwhile ends when it is leased again, or
        with the change.
        """
        opened = self._open(queue)
        known = _on_key(opened, change.name)
        last = max((one.last for _, one in known), default=0)
        sent = sent_of(timer for _, timer in known) if _current(known) else []
        dedup = f"change {uuid.uuid4().hex}"
        opened._sent(
            timers.encode(msgspec.structs.replace(change, last=last, sent=sent, dedup=dedup)),
            self._app.send_timeout,
            keys=change.name,
            dedup=dedup,
            window=0.0,
            quiet=True,
            retry=timers.FOR_EVER,
        )
        for one, timer in known:
            if not timer.change and timer.stored is not None:
                opened.cancel(one.id)
        for runner in self.runners:
            runner.look()

    def _queues_of(self, name: str, only: str | None = None) -> list[str]:
        """Return the tasks' queues of a stored entry: several if it was added in two at once."""
        return [
            queue
            for queue in (self._queues() if only is None else [only])
            if _current(_on_key(self._open(queue), name)) is not None
        ]

    def _queues(self) -> list[str]:
        return sorted({task.declared.queue for task in self._app.tasks.values()})

    def _open(self, queue: str) -> Any:
        return self._app._queue(timers.queue_name(queue))


def listed(queue: Any, name: str | None = None) -> list[tuple[Stored, Timer]]:
    """Return the timers and changes of a queue, or of one entry, in the order of their ids."""
    run, handle = queue._run, queue._handle
    if name is not None:
        # In this order, for a timer that falls due meanwhile moves from the one to the other.
        parts = [scanned(queue, part, name) for part in ("delayed", "key")]
        by_id = {one.id: (one, timer) for part in parts for one, timer in part}
        return [by_id[id] for id in sorted(by_id)]
    found: list[tuple[Stored, Timer]] = []
    after: int | None = None
    while page := run(handle, handle.operations.stored, PAGE, None, None, after):
        found += decoded(page)
        after = page[-1].id
    return found


def scanned(queue: Any, part: Literal["delayed", "key"], name: str) -> list[tuple[Stored, Timer]]:
    """Return the delayed timers of an entry, or all else of it, which has a place on its key.

    On Redis the latter costs the same however many entries there are.
    """
    handle, cursor = queue._handle, b"0"
    found: list[tuple[Stored, Timer]] = []

    def page(session: Any) -> Request[tuple[bytes, list[Stored]]]:
        return wire.scan(handle.operations.on(session), cursor, PAGE, part, name.encode())

    while True:
        cursor, some = queue._run(handle, page)
        found += decoded(some)
        if cursor == b"0":
            return found


def decoded(page: Iterable[Stored]) -> list[tuple[Stored, Timer]]:
    """Return those of the messages that are timers or changes."""
    each = [(one, timers.decode(one.payload)) for one in page]
    return [(one, timer) for one, timer in each if timer is not None]


def sent_of(found: Iterable[Timer]) -> list[int]:
    """Return the ids of calls that these timers and changes of an entry know, the latest last."""
    return sorted({id for timer in found for id in timer.sent})[-MOST_COPIES:]


def _on_key(queue: Any, name: str) -> list[tuple[Stored, Timer]]:
    return [one for one in listed(queue, name) if one[1].stored or one[1].change]


def _current(found: list[tuple[Stored, Timer]]) -> Timer | None:
    """Return the stored entry as the last change leaves it; None: it is removed, or unknown."""
    changes = [timer for _, timer in found if timer.change]
    known = [timer for _, timer in found if timer.stored is not None and not timer.change]
    if changes:
        return None if changes[-1].change == "remove" else changes[-1]
    return max(known, key=lambda one: one.tick, default=None)


def _same(known: Timer, new: Timer) -> bool:
    def told(one: Timer) -> tuple[Any, ...]:
        stored = one.stored or Definition()
        rest = stored.args, stored.kwargs, stored.copies
        return one.task, one.schedule, one.missed, *rest

    return told(known) == told(new)


PAGE = 1000
