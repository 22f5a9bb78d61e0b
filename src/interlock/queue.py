"""``KeyedQueue``: a queue whose messages carry keys, in one process."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, Self, TypeVar

from interlock import _core, roots, watch
from interlock.consumer import Consumer, consume
from interlock.errors import NotDrained
from interlock.explanation import Explanation, LimitUse, from_native
from interlock.message import (
    DeadLetter,
    HotKey,
    Key,
    Keys,
    Kind,
    Lease,
    Message,
    Put,
    QueuedMessage,
    State,
    Stats,
    check_purged,
    check_state,
    check_walk,
)
from interlock.retry import Retry, Seconds, seconds
from interlock.roots import Roots
from interlock.runtime.concurrency import (
    Behind,
    Limits,
    Names,
    Weights,
    group_of,
    limits_text,
    names_of,
    weights_text,
)
from interlock.runtime.green_threads import refuse_green_threads
from interlock.runtime.limits import MAX_WALKED

if TYPE_CHECKING:
    from interlock.aio import AsyncQueue

__all__ = ["KeyedQueue"]

T = TypeVar("T")

_DEFAULT_RETRY = Retry()
_numbers = itertools.count(1)
_UNDRAINED = 1000
_async_queue: type[AsyncQueue[Any]] | None = None


class KeyedQueue(_core.Queue[T], Generic[T]):
    """A queue: messages that share a key are leased in order and never at the same time.

    A message carries zero, one or many keys, named at the put, or computed by ``keys`` and
    ``shared``, callables of the payload. ``get`` returns a lease; until it is settled, no
    conflicting message is leased. Everything else runs in parallel. ``aio`` is the asyncio face of
    the same queue; both may be used at the same time, from any thread.

    Args:
        maxsize: maximum unsettled messages, leased ones too; 0 means no bound.
        maxbytes: maximum bytes of unsettled payloads; 0 means no bound. Payloads must then be bytes
            or str, or ``sizeof`` must be given.
        sizeof: function that returns the bytes of a payload.
        keys, shared: functions that return the keys of a payload whose put names none. ``shared``
            keys are held together with other readers.
        retry: policy for a message whose handling failed. Default: 5 attempts, then dead.
        lease: seconds after which a lease that was not extended expires. Default: never.
        clock: clock, for tests: an ``interlock.testing.ManualClock``.
        maxdead: maximum dead letters; beyond it messages are held instead.
        dead_ttl: seconds for which a dead letter is kept, 30 days by default; None or 0:
            without limit.
        dedup_window: seconds for which a settled message's ``dedup`` string stays known.
        limits: how many messages of a name, or of each name with a prefix (``tenant:*``), may be
            leased at once, or as a ``Rate`` in a time. Default: none. ``configure`` changes them.
        weights: how many messages of a group, or of each group with a prefix (``free:*``), are
            leased in one turn, 1 to 1,000. Default: 1 each. ``configure`` changes them.
        behind: what happens to messages that wait on a key behind a message that is held:
            ``"wait"`` (the default), ``"bury"``, ``"cancel"`` or ``"park"``, for messages whose put
            does not say. ``configure`` changes it.
        name: name in logs and leases. Default ``queue-1``, ``queue-2``, ...
        slow_wait: seconds after which a message that waits, or a lease that is held, is logged as
            an error, with the chain of messages it waits for; 0 switches it off.
        warn_depth, warn_lane_depth: unsettled messages, in all and on one key, at which a warning
            is logged, and again when they have doubled; 0 switches it off.

    Raises:
        TypeError, ValueError: an argument has a wrong type or is out of range.
        RuntimeError: gevent or eventlet has replaced the threads of this process.

    All other options are fixed for the queue's lifetime: it belongs to one program, which creates
    another queue for other options. (A queue on an engine outlives its programs, so there
    ``configure`` changes them all.)

    In a process made by ``fork`` the queue starts empty: its messages are handled in the parent.
    """

    _public_name = "KeyedQueue"
    _retry: Retry
    _slow_wait: Seconds
    # Read natively by a lease's ``with``.
    _retry_on: tuple[type[Exception], ...]

    def __new__(  # noqa: D102 - described by the class, as __init__ would be
        cls,
        maxsize: int = 0,
        *,
        maxbytes: int = 0,
        sizeof: Callable[[T], int] | None = None,
        keys: Callable[[T], Keys] | None = None,
        shared: Callable[[T], Keys] | None = None,
        retry: Retry = _DEFAULT_RETRY,
        lease: Seconds | None = None,
        clock: _core.ManualClock | None = None,
        maxdead: int = 10_000,
        dead_ttl: Seconds | None = 30 * 86_400,
        dedup_window: Seconds = 300,
        limits: Limits | None = None,
        weights: Weights | None = None,
        behind: Behind = "wait",
        name: str | None = None,
        slow_wait: Seconds = 60,
        warn_depth: int = 1000,
        warn_lane_depth: int = 100,
    ) -> Self:
        refuse_green_threads(cls._public_name)
        for argument, number in (
            ("maxsize", maxsize),
            ("maxbytes", maxbytes),
            ("maxdead", maxdead),
            ("warn_depth", warn_depth),
            ("warn_lane_depth", warn_lane_depth),
        ):
            _check_count(argument, number)
        for argument, function in (("sizeof", sizeof), ("keys", keys), ("shared", shared)):
            if function is not None and not callable(function):
                raise TypeError(
                    f"KeyedQueue(): {argument} is {type(function).__name__}; allowed: a callable "
                    f"of the payload"
                )
        if not isinstance(retry, Retry):
            raise TypeError(f"KeyedQueue(): retry is {type(retry).__name__}; allowed: Retry")
        if clock is not None and not isinstance(clock, _core.ManualClock):
            raise TypeError(
                f"KeyedQueue(): clock is {type(clock).__name__}; allowed: "
                f"interlock.testing.ManualClock"
            )
        if name is None:
            name = f"queue-{next(_numbers)}"
        elif not isinstance(name, str):
            raise TypeError(f"KeyedQueue(): name is {type(name).__name__}; allowed: str")
        self = super().__new__(
            cls,
            maxsize,
            maxbytes,
            sizeof,
            keys,
            shared,
            retry._native(),
            lease,
            clock,
            {
                "maxdead": maxdead,
                "dead_ttl": dead_ttl,
                "dedup_window": dedup_window,
                "limits": limits_text({} if limits is None else limits, f"{cls._public_name}()"),
                "weights": weights_text(
                    {} if weights is None else weights, f"{cls._public_name}()"
                ),
                "behind": behind,
            },
            name,
            slow_wait,
            warn_depth,
            warn_lane_depth,
        )
        self._retry = retry
        self._retry_on = retry.on
        self._slow_wait = slow_wait
        if clock is not None:
            self._follow(clock)
        elif seconds(slow_wait, "KeyedQueue(): slow_wait") > 0:
            watch.follow(self)
        return self

    @property
    def aio(self) -> AsyncQueue[T]:
        """The asyncio face of this queue."""
        return (_async_queue or _load_async_queue())(self)

    def configure(
        self,
        *,
        limits: Limits | None = None,
        weights: Weights | None = None,
        behind: Behind | None = None,
    ) -> None:
        """Replace the limits and rates, the weights of groups, or ``behind``; None: they stay.

        Existing leases stay, and no group loses its place. ``behind`` applies to what waits now:
        with ``"park"``, messages behind paused and stuck keys are parked.

        Raises:
            TypeError, ValueError: it is not a mapping of names to numbers of 1 or more, or rates;
                or of groups to numbers from 1 to 1,000; or ``behind`` is not one of its words.
        """
        other_limits = None if limits is None else limits_text(limits, "configure()")
        other_weights = None if weights is None else weights_text(weights, "configure()")
        if behind is not None:
            self._set_behind(behind)
        if other_limits is not None:
            self._set_limits(other_limits)
        if other_weights is not None:
            self._set_weights(other_weights)

    def put_known(
        self,
        payload: T,
        block: bool = True,
        timeout: Seconds | None = None,
        *,
        keys: Keys | None = None,
        shared: Keys | None = None,
        priority: int = 0,
        delay: Seconds = 0,
        dedup: str | None = None,
        barrier: bool = False,
        quiet: bool = False,
        limit: Names | None = None,
        group: str | None = None,
        behind: Behind | None = None,
        coalesce: Key | None = None,
        debounce: Seconds | None = None,
        longest: Seconds | None = None,
    ) -> Put:
        """Put as ``put`` does; return the id, and whether the dedup string was known, or the
        payload of an earlier message was replaced.

        A known string puts nothing: ``put = queue.put_known(order, dedup=f"order:{number}")``.
        """
        return Put(
            *self._put_known(
                payload, block, timeout, keys, shared, priority, delay, dedup, barrier, quiet,
                limit, group, behind, coalesce, debounce, longest,
            )
        )  # fmt: skip

    def put_nowait(
        self,
        payload: T,
        *,
        keys: Keys | None = None,
        shared: Keys | None = None,
        priority: int = 0,
        delay: Seconds = 0,
        dedup: str | None = None,
        barrier: bool = False,
        quiet: bool = False,
        limit: Names | None = None,
        group: str | None = None,
        behind: Behind | None = None,
        coalesce: Key | None = None,
        debounce: Seconds | None = None,
        longest: Seconds | None = None,
    ) -> int:
        """Put without waiting: ``put(payload, block=False, ...)``."""
        return self.put(
            payload,
            False,
            keys=keys,
            shared=shared,
            priority=priority,
            delay=delay,
            dedup=dedup,
            barrier=barrier,
            quiet=quiet,
            limit=limit,
            group=group,
            behind=behind,
            coalesce=coalesce,
            debounce=debounce,
            longest=longest,
        )

    def get_nowait(self, *, kind: Kind = "any") -> Lease[T]:
        """Get without waiting: ``get(block=False, ...)``."""
        return self.get(False, kind=kind)

    def consume(
        self,
        handler: Callable[[T], object],
        *,
        threads: int = 1,
        timeout: Seconds | None = None,
        kind: Kind = "any",
    ) -> Consumer:
        """Run ``handler(payload)`` for every message, on threads of its own; return immediately.

        A handler's exception is logged, and the message is redelivered by the retry policy. A
        handler may ``raise RetryAfter(30)`` or ``raise Reject("why")``. ``timeout``: seconds after
        which a handler's lease is revoked and its stack logged, so that a hung handler holds no
        keys.

        Returns:
            a running ``Consumer``; its ``stop()`` ends it, as does ``shutdown()`` of the queue.
        """
        return consume(self, handler, threads=threads, timeout=timeout, kind=kind)

    def explain(
        self, id: int | None = None, *, key: Key | None = None, limit: int = 100
    ) -> Explanation:
        """Explain why a message waits, or what holds a key; at most ``limit`` messages of it.

        Raises:
            KeyError: the message is settled, a dead letter (the error says so) or was never put; or
                the key has no messages.
        """
        if (id is None) == (key is None):
            raise TypeError("explain(): give an id or key=, one of them")
        found = self._explain(id, key, limit)
        if found is None:
            if key is not None:
                raise KeyError(f"no unsettled message has the key {key!r}")
            assert id is not None
            error = self._dead_error(id)
            if error is not None:
                raise KeyError(
                    f"message {id} is a dead letter of queue {self.name!r} ({error}); "
                    f"requeue({id}) puts it back"
                )
            raise KeyError(f"message {id} is settled, or was never put into queue {self.name!r}")
        return from_native(found)

    def roots(
        self, limit: int = 10, *, slow_wait: Seconds | None = None, walk: int = MAX_WALKED
    ) -> Roots:
        """Return the roots that hold other messages up, and how many wait for each.

        Roots are held messages, messages that back off, handlers that run for ``slow_wait`` seconds
        or longer, and pauses. It costs at most ``limit`` + 1 walks through ``walk`` messages, each
        under the queue's lock, whatever is pending.

        Args:
            limit: maximum roots; those with the most messages in their own lanes.
            slow_wait: seconds. Default: the queue's ``slow_wait``, or 60 if that is off.
            walk: maximum messages counted behind a root, 1 to 2,000; beyond it, "at least".

        Raises:
            TypeError, ValueError: an argument has a wrong type or is out of range.
        """
        walk = check_walk(walk)
        if slow_wait is None:
            slow_wait = self._slow_wait or 60
        found = roots.from_native(self._roots(seconds(slow_wait, "roots(): slow_wait"), limit))
        counts = [self._blocked(*root.named(), walk) for root in found.roots]
        return found.counted(counts, self._blocked(*found.named(), walk))

    def dead_letters(self, limit: int = 100, *, key: Key | None = None) -> list[DeadLetter[T]]:
        """Return the messages that were given up, oldest dead first.

        With ``key`` only that key's.
        """
        return [DeadLetter(*letter) for letter in self._dead_letters(limit, key)]

    def messages(
        self,
        limit: int = 100,
        *,
        state: State | None = None,
        key: Key | None = None,
        after: int | None = None,
    ) -> list[QueuedMessage[T]]:
        """Return the unsettled messages in the order of their puts, at most ``limit``.

        With ``state`` only those in this state, with ``key`` only that key's; ``after``, the id of
        the last message of a page, returns the next page. Its cost grows with the messages it
        passes.
        """
        check_state(state)
        return [
            QueuedMessage(*[*known, names_of(names), group_of(group), coalesce, behind])
            for *known, names, group, coalesce, behind in self._messages(limit, state, key, after)
        ]

    def purge(self, what: Literal["pending", "dead"] = "pending", *, key: Key | None = None) -> int:
        """Cancel all messages that are not leased, or drop all dead letters. Returns how many.

        With ``key`` only that key's current ones; finding them costs as much as ``messages`` and
        ``dead_letters`` do.
        """
        check_purged(what)
        settle = self.discard if what == "dead" else self.cancel
        if key is not None:
            _core.canonical(key, "purge(): key")
            if what == "dead":
                ids = [letter[0] for letter in self._dead_letters(sys.maxsize, key)]
            else:
                ids = [message[0] for message in self._messages(sys.maxsize, None, key, None)]
            # Leased messages, and those settled meanwhile, do not change.
            return sum(map(settle, ids))
        purged = place = 0
        while True:
            ids, place = self._purgeable(what == "dead", place)
            purged += sum(map(settle, ids))
            if not place:
                return purged

    def requeue(self, id: int) -> int:
        """Put a dead letter again, as a new message at the end of its lanes. Returns the new id.

        Raises:
            KeyError: no such dead letter.
            Full: the queue is full; the dead letter stays.
            ShutDown: the queue is shut down; the dead letter stays.
        """
        new = self._requeue(id)
        if new is None:
            raise KeyError(f"message {id} is not a dead letter of queue {self.name!r}")
        return new

    def stats(self) -> Stats:
        """Return the current counts, and those since the queue was created."""
        return Stats(**self._stats())

    def hot_keys(self, n: int = 10) -> list[HotKey]:
        """Return the ``n`` keys with the most unsettled messages, deepest first."""
        return [HotKey(key, depth) for key, depth in self._hot_keys(n)]

    def limits(self, n: int = 100) -> list[LimitUse]:
        """Return what is used of limit names, and how many messages wait for each.

        They are those that messages wait for, of more than 1,000 the first by their bytes, and
        those declared without ``*``: the ``n`` with most waiting messages.
        """
        return [LimitUse.of(*one) for one in self._limits(n)]

    def join(self, timeout: Seconds | None = None) -> None:
        """Wait until every message is settled.

        Raises:
            NotDrained: the timeout passed; the error names the held, paused, parked, delayed and
                leased messages.
        """
        if not self._join(timeout):
            raise self._not_drained()

    def shutdown(self, immediate: bool = False) -> list[Message[T]]:
        """Refuse puts from now on, and let the rest drain.

        ``get`` raises ``ShutDown`` once no unsettled message is left. With ``immediate`` every
        message that is not leased is cancelled and returned, in the order of its puts, and ``get``
        raises ``ShutDown`` wherever nothing is ready; handlers of ``consume`` continue with
        redelivered messages.
        """
        return [Message(*message) for message in self._shutdown(immediate, True)]

    def record(self) -> None:
        """Start to record every call with its time; payloads are left out. ``recording`` ends it.

        A recording replays to the same answers (``interlock.testing.replay``).

        Raises:
            ValueError: messages were put before; a replay would lack them.
        """
        self._record()

    def recording(self) -> str:
        """End the recording and return it as text: the queue's options, then a call a line.

        Raises:
            ValueError: the queue is not recording.
        """
        text = self._recording()
        if text is None:
            raise ValueError("recording(): the queue does not record; call record() first")
        return text

    def task_done(self) -> NoReturn:
        """Raise TypeError: a message is settled through its lease."""
        raise TypeError(
            "task_done(): settle the message by its lease: lease = queue.get(); ...; "
            "lease.ack(), or 'with queue.get() as payload: ...'"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}, {self.qsize()} queued>"

    def __reduce__(self) -> NoReturn:
        # The usual copy would be another, empty queue.
        raise TypeError(
            f"queue {self.name!r} cannot be copied or sent to another process; it lives in this one"
        )

    def _not_drained(self) -> NotDrained:
        held, paused, delayed, leased, parked = self._undrained(_UNDRAINED)
        return NotDrained(
            tuple(held), tuple(paused), tuple(delayed), tuple(leased), parked=tuple(parked)
        )


def _load_async_queue() -> type[AsyncQueue[Any]]:
    # On first use: a program without asyncio does not pay for it.
    global _async_queue
    from interlock.aio import AsyncQueue

    _async_queue = AsyncQueue
    return AsyncQueue


def _check_count(argument: str, number: object) -> None:
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"KeyedQueue(): {argument} is {type(number).__name__}; allowed: int")
    most, told = (10**15, "10**15") if argument == "maxbytes" else (2**32 - 1, "2**32 - 1")
    if not 0 <= number <= most:
        raise ValueError(f"KeyedQueue(): {argument} is {number}; allowed: 0 (none) to {told}")
