"""One queue as one client holds it: its arguments checked, its payloads written and read.

What both faces of a queue share. No call is made here.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

import msgspec

from interlock import _core
from interlock.engine import records, wire
from interlock.engine.codec import Codec
from interlock.engine.lease import AsyncRemoteLease, RemoteLease
from interlock.engine.operations import Operations
from interlock.engine.records import Letter, Stored
from interlock.engine.renewal import Grant
from interlock.engine.request import Argument
from interlock.engine.watch import Watch
from interlock.errors import JobFailed, LeaseLost, PayloadError, ResultGone
from interlock.explanation import Explanation
from interlock.limits import MAX_BATCH, MAX_CALL, MAX_PAYLOAD
from interlock.message import DeadLetter, Key, Keys, QueuedMessage, check_purged, check_state
from interlock.retry import Retry, Seconds, seconds, whole

L = TypeVar("L")
_log = logging.getLogger("interlock.queue")


class Handle:
    """The common parts of a queue of either face."""

    def __init__(
        self,
        operations: Operations,
        codec: Codec,
        retry: Retry,
        keys: Callable[[Any], Keys] | None,
        shared: Callable[[Any], Keys] | None,
        watch: Watch,
    ) -> None:
        self.watch = watch
        self.operations = operations
        self.name = operations.name
        self.codec = codec
        self.retry = retry
        self._keys = keys
        self._shared = shared
        # No queue but its arguments: what a put names is checked by the very code that checks it
        # for a queue in process.
        self._names: _core.Queue[Any] = _core.Queue(
            0, 0, None, keys, shared, Retry()._native(), None, None, 0, 0, "arguments", 0, 0, 0
        )

    def again(self) -> Handle:
        """Another handle of the same queue, to be closed for itself."""
        operations = copy.copy(self.operations)
        watch = self.watch
        return Handle(operations, self.codec, self.retry, self._keys, self._shared, watch)

    # -- Puts ---------------------------------------------------------------------------------

    def message(
        self,
        payload: Any,
        *,
        keys: Keys | None = None,
        shared: Keys | None = None,
        priority: int = 0,
        delay: Seconds = 0,
        dedup: str | None = None,
        barrier: bool = False,
        quiet: bool = False,
        retry: Retry | None = None,
        result_ttl: Seconds = 0,
        call: str = "put()",
    ) -> wire.Message:
        """A message to be put; everything that can be wrong with it is found here."""
        if retry is not None and not isinstance(retry, Retry):
            raise TypeError(f"{call}: retry is {type(retry).__name__}; allowed: Retry or None")
        # As it nearly always is; no call and no name for that.
        usual = result_ttl.__class__ is int and result_ttl == 0
        result = 0.0 if usual else seconds(result_ttl, f"{call}: result_ttl")
        named = self._names._named_put(
            call, payload, keys, shared, priority, delay, dedup, barrier, quiet
        )
        return self._written(payload, call, named, retry, result)

    def batch(
        self,
        items: Iterable[Any],
        keys: Keys | Callable[[Any], Keys] | None = None,
        shared: Keys | Callable[[Any], Keys] | None = None,
        priority: int = 0,
        delay: Seconds = 0,
        dedup: Callable[[Any], str | None] | None = None,
        quiet: bool = False,
        each_keys: Iterable[Keys | None] | None = None,
        each_shared: Iterable[Keys | None] | None = None,
    ) -> list[wire.Message]:
        """The messages of a batch."""
        payloads = list(items)
        if len(payloads) > MAX_BATCH:
            raise ValueError(
                f"put_many(): {len(payloads)} messages; allowed: up to {MAX_BATCH}, which an "
                f"engine takes whole"
            )
        each = self._names._named_many(
            payloads, keys, shared, each_keys, each_shared, priority, delay, dedup, quiet
        )
        messages = [
            self._written(payload, "put_many()", named)
            for payload, named in zip(payloads, each, strict=True)
        ]
        size = sum(len(message.payload) for message in messages)
        if size > MAX_CALL:
            raise ValueError(
                f"put_many(): {len(messages)} payloads of {size} bytes together when encoded; "
                f"allowed: up to {MAX_CALL}, which an engine takes whole"
            )
        return messages

    def _written(
        self,
        payload: Any,
        call: str,
        named: tuple[tuple[bytes, ...], tuple[bytes, ...], int, float, str | None, bool, bool],
        retry: Retry | None = None,
        result: float = 0,
    ) -> wire.Message:
        keys, shared, priority, delay, dedup, barrier, quiet = named
        options: tuple[Argument, ...] = ()
        # All as usual, as it nearly always is: then there is nothing to look into.
        said = priority or delay or dedup is not None or barrier or quiet
        if said or result or retry is not None:
            options = wire.put_options(
                priority=priority,
                delay=delay,
                dedup=dedup,
                barrier=barrier,
                quiet=quiet,
                result=result,
                retry=retry,
            )
        return wire.Message(self.codec.encode(payload, call), keys, shared, options)

    # -- Leases -------------------------------------------------------------------------------

    def leases(
        self, of: Any, kind: Callable[..., L], leased: wire.Leased, started: float
    ) -> tuple[list[L], list[tuple[L, Exception]]]:
        """The leases of what was handed out; and those whose payloads cannot be read, with why."""
        good: list[L] = []
        spoilt: list[tuple[L, Exception]] = []
        if not leased.messages:
            return good, spoilt
        grant = Grant(self.operations, leased, started)
        if self.watch.slow_wait:
            grant.slow_after = self.watch.slow_wait
        if _log.isEnabledFor(logging.DEBUG):
            grant.told_from = time.monotonic()
        renewer = of._renewer
        renewer.hold(grant)
        for message in leased.messages:
            if message.attempt > 1:
                # Whoever here had it before has it no more.
                renewer.lose(self.name, message.id, leased.token)
            try:
                payload = self.codec.decode(message.payload, message.id)
            except PayloadError as error:
                spoilt.append((kind(of, grant, message, message.payload), error))
            else:
                good.append(kind(of, grant, message, payload))
        return good, spoilt

    def log_spoilt(self, lease: Any, error: Exception) -> None:
        """Whoever took it may not see the exception, if there was more in the batch."""
        _log.error(
            "queue %r: %s; it counts as a failed attempt",
            self.name,
            error,
            extra={"queue": self.name, "id": lease.id, "attempt": lease.attempt},
        )

    def log_unrevoked(self, id: int, error: Exception) -> None:
        """A handler ran too long, and its lease could not be revoked: it runs out by itself."""
        _log.warning(
            "queue %r: the lease of message %d could not be revoked: %s",
            self.name,
            id,
            error,
            extra={"queue": self.name, "id": id},
        )

    def settling(self, leases: Iterable[Any]) -> tuple[list[Any], list[Any]]:
        """Those that are open, and those that were settled before.

        Raises:
            TypeError, ValueError: one is no lease, or of another queue; nothing was changed.
        """
        if not isinstance(leases, Iterable):
            raise TypeError(
                f"ack_many(): leases is {type(leases).__name__}; allowed: an iterable of leases"
            )
        given = list(leases)
        for place, one in enumerate(given):
            if not isinstance(one, RemoteLease | AsyncRemoteLease):
                raise TypeError(
                    f"ack_many(): leases[{place}] is {type(one).__name__}; allowed: a lease of "
                    f"queue {self.name!r}"
                )
            if one.queue != self.name:
                raise ValueError(
                    f"ack_many(): leases[{place}] is of queue {one.queue!r}; allowed: a lease of "
                    f"queue {self.name!r}"
                )
        return [one for one in given if one._state == 0], [one for one in given if one._state]

    def refuse(self, leases: Sequence[Any]) -> None:
        """Raises for the first lease that was settled before."""
        for one in leases:
            raise cast(LeaseLost, one._refusal())

    def acked(self, leases: Sequence[Any], answers: Sequence[str]) -> None:
        """Takes the answers for leases settled together; raises for the first that is lost."""
        lost: LeaseLost | None = None
        for one, answer in zip(leases, answers, strict=True):
            if answer == "lost":
                one._gone(2)
                lost = lost or one._refusal()
        if lost is not None:
            raise lost

    # -- Answers ------------------------------------------------------------------------------

    def explained(self, id: int | None, key: Key | None, limit: int) -> tuple[Any, ...]:
        """The arguments for il1_explain."""
        if (id is None) == (key is None):
            raise TypeError("explain(): give an id or key=, one of them")
        limit = self.check_limit("explain()", limit)
        what = ("id", self.check_id("explain()", id)) if key is None else None
        return (
            *(what or ("key", self.canonical("explain()", key))),
            min(limit, wire.MAX_EXPLAINED),
        )

    def explanation(
        self, reply: list[bytes], dead: Stored | None, id: int | None, key: Key | None
    ) -> Explanation:
        """The explanation told; raises KeyError where nothing is there, or a dead letter."""
        explained = records.explanation(reply)
        if explained is not None:
            return explained
        if key is not None:
            raise KeyError(f"no unsettled message stands on the key {key!r}")
        if dead is not None and dead.state == "dead":
            raise KeyError(
                f"message {id} is a dead letter of queue {self.name!r} ({dead.error}); "
                f"requeue({id}) puts it again"
            )
        raise KeyError(f"message {id} is settled, or was never put into queue {self.name!r}")

    def dead_letter(self, letter: Letter) -> DeadLetter[Any]:
        """With its payload read; one that cannot be read is given as its bytes."""
        try:
            payload = self.codec.decode(letter.payload, letter.id)
        except PayloadError:
            payload = letter.payload
        return DeadLetter(
            letter.id,
            payload,
            frozenset(letter.keys),
            frozenset(letter.shared),
            letter.attempts,
            letter.error,
            letter.priority,
        )

    def wanted(
        self, limit: object, state: object, key: Key | None, after: object
    ) -> Callable[[Stored], bool]:
        """The rule by which messages are listed; checks the arguments of ``messages()``."""
        self.check_limit("messages()", limit)
        check_state(state)
        asked = self.canonical("messages()", key)
        least = 0 if after is None else self.check_id("messages()", after, "after")
        return lambda one: (
            one.id > least
            and state in (None, one.state)
            and (asked is None or asked in one.keys or asked in one.shared)
        )

    def queued(self, one: Stored) -> QueuedMessage[Any]:
        """With its payload read; one that cannot be read is given as its bytes."""
        try:
            payload = self.codec.decode(one.payload, one.id)
        except PayloadError:
            payload = one.payload
        keys, shared = frozenset(one.keys), frozenset(one.shared)
        state: Any = one.state
        return QueuedMessage(
            one.id, payload, keys, shared, one.priority, one.attempt, state, one.error
        )

    def requeued(self, id: int, reply: list[bytes]) -> int:
        """The new id."""
        if not reply:
            raise KeyError(f"message {id} is not a dead letter of queue {self.name!r}")
        return records.number(reply)

    def flag(self, reply: list[bytes]) -> bool:
        """Returns whether something changed."""
        return records.first(reply) == b"1"

    def encode_result(self, result: Any) -> bytes:
        """The result of a handler, as MessagePack."""
        try:
            encoded = msgspec.msgpack.encode(result)
        except Exception as error:
            raise PayloadError(
                f"ack(): result is {type(result).__name__}, which cannot be written as msgpack: "
                f"{error}"
            ) from error
        if len(encoded) > MAX_PAYLOAD:
            raise PayloadError(
                f"ack(): result is {len(encoded)} bytes when encoded; allowed: up to {MAX_PAYLOAD}"
            )
        return encoded

    def result(self, id: int, reply: list[bytes], wanted: Any) -> Any:
        """The result of a message that is settled, as il1_result answered it."""
        state, said = wire.ended(reply)
        if state == b"done":
            if not said:
                return None
            try:
                return msgspec.msgpack.decode(said, type=wanted)
            except Exception as error:
                raise PayloadError(f"the result of message {id}: {error}", id) from error
        if state == b"failed":
            raise JobFailed(id, said.decode(errors="backslashreplace"))
        if state in (b"cancelled", b"skipped"):
            raise JobFailed(id, state.decode())
        if state == b"pending":
            raise TimeoutError(f"message {id} was not settled in time")
        raise ResultGone(
            f"queue {self.name!r} keeps no result of message {id}: its time is over, none was "
            f"asked for, or there was no such message"
        )

    # -- Arguments ----------------------------------------------------------------------------

    def until(self, call: str, block: bool, timeout: Seconds | None) -> float | None:
        """Until when a call may wait, by time.monotonic(); None: for ever."""
        if not block:
            return 0.0
        return None if timeout is None else time.monotonic() + seconds(timeout, f"{call}: timeout")

    def check(self, call: str, kind: object, limit: int = 1) -> int:
        """The arguments of a get; the limit as a plain int."""
        if not isinstance(kind, str):
            raise TypeError(
                f"{call}: kind is {type(kind).__name__}; allowed: 'any', 'keyed', 'unkeyed'"
            )
        if kind not in ("any", "keyed", "unkeyed"):
            raise ValueError(f"{call}: kind is {kind!r}; allowed: 'any', 'keyed', 'unkeyed'")
        return self.check_limit(call, limit)

    def check_limit(self, call: str, limit: object, named: str = "limit") -> int:
        """The number of items that a call is to give, as a plain int."""
        number = whole(limit, f"{call}: {named}")
        if number < 1:
            raise ValueError(f"{call}: {named} is {number}; allowed: 1 or more")
        return number

    def check_id(self, call: str, id: object, named: str = "id") -> int:
        """A message's id, as a plain int."""
        return whole(id, f"{call}: {named}")

    def check_then(self, then: object) -> str:
        """Checks the word for what becomes of a revoked message."""
        if not isinstance(then, str):
            raise TypeError(
                f"revoke(): then is {type(then).__name__}; allowed: 'retry', 'hold', 'dead', 'skip'"
            )
        if then not in ("retry", "hold", "dead", "skip"):
            raise ValueError(
                f"revoke(): then is {then!r}; allowed: 'retry', 'hold', 'dead', 'skip'"
            )
        return str(then)

    def purged(self, what: str, key: Key | None) -> tuple[str, bytes | None]:
        """The kind of messages to be purged, and the key that they are on, as bytes."""
        check_purged(what)
        return what, self.canonical("purge()", key)

    def canonical(self, call: str, key: Key | None) -> bytes | None:
        """A key as bytes."""
        if key is None:
            return None
        return _core.canonical(key, f"{call}: key")

    def keys_of(self, call: str, key: Key | None) -> tuple[bytes, ...]:
        """The key to be paused or resumed; none for the queue."""
        canonical = self.canonical(call, key)
        return () if canonical is None else (canonical,)
