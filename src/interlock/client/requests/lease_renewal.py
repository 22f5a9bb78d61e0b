"""Held leases: renewed while they are held, and returned when they were dropped.

A renewer belongs to one face of a client. A thread, or a task of the loop, runs its requests. Both
need the interpreter, and the task its loop. So each lease is also registered with a native thread,
which renews it if that has not been done here by half of its time.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import math
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from interlock.client.request import Request
from interlock.client.requests.queue_reports import behind
from interlock.client.session import Session
from interlock.client.wire import messages as wire
from interlock.errors import InterlockError
from interlock.runtime import forks
from interlock.watch import log, report

if TYPE_CHECKING:
    from interlock import _core
    from interlock.client.requests.queue_handle import Handle
    from interlock.client.requests.queue_reports import Watch

_EXPLAINED = 20
_keys = itertools.count()
SHORTEST = 0.1
"""Minimum seconds for which a lease is renewed: a shorter lease would be renewed constantly."""
_IDLE = 5.0
"""Seconds after which a renewer that holds nothing checks again, if it held something before."""


class Grant:
    """The lease of one call: one token for some messages, renewed together from the first."""

    __slots__ = (
        "__weakref__",
        "alone",
        "bounds",
        "deadline",
        "forks",
        "handle",
        "key",
        "lost",
        "out",
        "renew",
        "renewer",
        "seconds",
        "slow_after",
        "started",
        "token",
        "told_from",
        "unsaid",
        "waits",
    )

    def __init__(
        self,
        handle: Handle,
        leased: wire.Leased,
        started: float,
        renewer: LeaseRenewer,
        ids: set[int] | None = None,
    ) -> None:
        self.handle = handle
        self.key = next(_keys)
        """Its name within the renewer. Not its id(), which another object may get at any time."""
        self.renewer = renewer
        self.token = leased.token
        self.alone = leased.alone
        """See ``Leased``."""
        self.out = {message.id for message in leased.messages} if ids is None else ids
        self.seconds = max(handle.lease, SHORTEST)
        """Seconds for which it is renewed."""
        self.started = started
        self.slow_after = handle.watch.slow_wait or None
        """Seconds after which a long hold is reported; None: never, or it was reported."""
        self.told_from: float | None = None
        """The time of the lease; None: the handling of its messages is not logged."""
        self.deadline = started + handle.lease
        """Earliest time of that report, by time.monotonic()."""
        self.lost = False
        self.waits = leased.alone
        """No handler has begun it; each renewal reports that to the engine. For a lease that must
        run alone this is assumed until its begin is reported."""
        self.unsaid = False
        """The engine has not received that report yet."""
        self.renew = True
        self.bounds: dict[int, float] | None = None
        """The times, by message, at which running handlers exceed their timeout."""
        self.forks = forks.count
        """A child of a fork has copies of its parent's leases and must not return them."""
        renewer.hold(self)

    @property
    def due(self) -> float:
        """Time of the next renewal: when a third of its length has passed, or there is something to
        report."""
        if self.unsaid:
            return 0.0
        return self.deadline - self.seconds * 2 / 3

    @property
    def is_entered(self) -> bool:
        """It is to be renewed natively too."""
        # The native thread does not report that no handler has begun it.
        return self.renew and bool(self.out) and not self.lost and not self.waits

    @property
    def until(self) -> float:
        """The first time at which a handler exceeds its timeout; infinite: no handler has one."""
        return min(self.bounds.values(), default=math.inf) if self.bounds else math.inf

    def wait_for_turn(self) -> None:
        """Report to the engine soon, and with each renewal, that no handler has begun it."""
        self.waits = self.unsaid = True
        self.renewer.leave(self.key)
        self.renewer.sooner(self)

    def begins(self) -> None:
        """Note that a handler is about to begin; the caller reports that to the engine."""
        self.waits = self.unsaid = False

    def outlived(self, before: Grant | None, id: int) -> None:
        """Treat a message as not suspect if this client held the lease that expired: its process
        lives, and need not handle it alone (clause 9). Only if a renewal was due and failed because
        the engine was unreachable: a handler that lets leases expire uses up its attempts."""
        if before is None or not self.alone or before.alone or before.forks != forks.count:
            return
        if before.renew and before.deadline <= time.monotonic():
            self.alone = self.waits = False
            self.renewer.enter(self)
            self.renewer.abandon(self.handle, wire.releasing(before.token, id))

    def extended(self, seconds: float, started: float) -> None:
        """Note that it lasts this long from then on; it is renewed for ``SHORTEST`` at least."""
        self.seconds = max(seconds, SHORTEST)
        self.deadline = started + seconds
        self.renewer.enter(self)

    def stop_renewing(self) -> None:
        """Stop renewing it: it expires at its deadline, unless it is extended before."""
        self.renew = False
        self.renewer.leave(self.key)

    def bound(self, id: int, until: float | None) -> None:
        """Set the time at which a message's handler exceeds its timeout; None: it has ended.

        After that time nothing is renewed without the interpreter, when the lease could not be
        revoked.
        """
        if self.bounds is None:
            self.bounds = {}
        if until is None:
            self.bounds.pop(id, None)
        else:
            self.bounds[id] = until
        self.renewer.bound(self)


class LeaseRenewer:
    """The leases that one face of a client holds.

    `ring` is called when there is work before the time that `tick` returned; also from destructors,
    so it must not take a lock.
    """

    def __init__(
        self,
        ring: Callable[[], None],
        native: _core.LeaseRenewals | _core.EngineRenewals | None = None,
    ) -> None:
        self._ring = ring
        self._native = native
        self._held: dict[int, weakref.ref[Grant]] = {}
        self.abandoned: collections.deque[tuple[Handle, wire.Settlement]] = collections.deque()
        """Settlements of dropped leases that were not sent yet."""
        self.failures = 0
        """Renewals that the engine did not answer, or refused."""
        self._used = False
        """A lease was held since the last check."""
        self._watches: dict[int, Watch] = {}
        """Watches with a check to come, by the put that began them."""
        self._next: float | None = None
        """The time at which `tick` runs next; None: when `ring` is called."""

    def hold(self, grant: Grant) -> None:
        """Renew a lease until it is let go, settled, or garbage."""
        self._used = True
        # A collected lease is removed with the next check.
        self._held[grant.key] = weakref.ref(grant)
        self.enter(grant)
        due = grant.due
        if self._next is None or due < self._next:
            self._next = due
            self._ring()

    def noted(self, watch: Watch, id: int) -> None:
        """Note that a message was put into a watched queue."""
        if watch.noted(id):
            self._awaits(watch)

    def held(self, watch: Watch) -> None:
        """Note that a message of a watched queue is held."""
        if watch.held():
            self._awaits(watch)

    def _awaits(self, watch: Watch) -> None:
        self._watches[id(watch)] = watch
        due = watch.due
        if self._next is None or (due is not None and due < self._next):
            self._next = due
            self._ring()

    def lose(self, queue: str, id: int, token: int | None = None) -> Grant | None:
        """Note that the leases of a message with other tokens than this one are lost. Return one
        that was held until now."""
        found: Grant | None = None
        for reference in list(self._held.values()):
            grant = reference()
            if (
                grant is not None
                and id in grant.out
                and grant.handle.name == queue
                and grant.token != token
            ):
                grant.out.discard(id)
                found = grant
        return found

    def revoked(self, queue: str, id: int, token: int) -> None:
        """Note that the lease of a message with this token is lost; a lease with another token is
        not."""
        for reference in list(self._held.values()):
            grant = reference()
            if grant is not None and grant.token == token and grant.handle.name == queue:
                grant.out.discard(id)

    def let_go(self, grant: Grant) -> None:
        """Forget a lease: it has no open message."""
        self._held.pop(grant.key, None)
        self.leave(grant.key)

    def enter(self, grant: Grant) -> None:
        """Register a lease with the native thread, or note there that it was renewed."""
        if self._native is not None and grant.is_entered:
            queue = grant.handle.key
            engine = grant.handle.engine
            address = engine.nodes.known(queue) if engine.memory is None else ""
            until = grant.until
            self._native.hold(
                grant.key, address, queue, grant.token, grant.seconds, grant.deadline, until
            )
            # Another thread may have settled it meanwhile, or begun a handler.
            if not grant.is_entered:
                self.leave(grant.key)
            elif grant.until != until:
                self.bound(grant)

    def leave(self, key: int) -> None:
        """Remove a lease from the native thread."""
        if self._native is not None:
            self._native.let_go(key)

    def bound(self, grant: Grant) -> None:
        """Pass to the native thread the time at which the lease's handlers exceed their timeout."""
        if self._native is not None:
            until = None
            while until != (until := grant.until):
                # Handlers run on several threads: the last to set it has read the newest value.
                self._native.bound(grant.key, until)

    def rest(self) -> None:
        """Stop renewing the present leases natively until they are renewed here again."""
        for key in list(self._held):
            self.leave(key)

    def stop(self) -> None:
        """End the native thread."""
        if self._native is not None:
            self._native.stop()

    def sooner(self, grant: Grant) -> None:
        """Note that the deadline of a lease has changed."""
        if self._next is None or grant.due < self._next:
            self._ring()

    def abandon(self, handle: Handle, settlement: wire.Settlement) -> None:
        """Note that a lease was dropped: it is settled by the next call, or soon."""
        self.abandoned.append((handle, settlement))
        self._ring()

    @property
    def has_abandoned(self) -> bool:
        """A dropped lease is not settled yet."""
        return bool(self.abandoned)

    def settle_abandoned(self, session: Session[Any]) -> Request[None]:
        """Settle the dropped leases; one caller at a time runs this, and others wait for it."""
        while self.abandoned:
            # Left there until it is settled: others see that they must wait.
            first = handle, settlement = self.abandoned[0]
            try:
                yield from handle.settle(session, [settlement])
            except InterlockError as error:
                # It expires by itself.
                log.warning("queue %r: a dropped lease: %s", handle.name, error)
            except (GeneratorExit, KeyboardInterrupt):
                # The caller was interrupted. It may end much later, when the next one is there.
                raise
            except BaseException:
                self._forget_abandoned(first)
                raise
            self._forget_abandoned(first)

    def _forget_abandoned(self, one: tuple[Handle, wire.Settlement]) -> None:
        # By identity: an interrupted caller has left it to another, which may be done with it.
        if self.abandoned and self.abandoned[0] is one:
            self.abandoned.popleft()

    def tick(self, session: Session[Any]) -> Request[float | None]:
        """Do the work that is due; return the seconds until the next; None: until `ring` is
        called."""
        now = time.monotonic()
        for key, reference in list(self._held.items()):
            grant = reference()
            if grant is None:
                self._held.pop(key, None)
                self.leave(key)
            elif grant.renew and not grant.lost and grant.due <= now:
                yield from self._renew(session, grant)
            # No variable may keep it alive while the renewer sleeps.
            del grant
        yield from self._look(session)
        self._hear()
        # Before the check: a lease held from here on rings, even if it is not seen.
        self._next = None
        self._next = min(
            (
                grant.due
                for reference in list(self._held.values())
                if (grant := reference()) is not None and grant.renew and not grant.lost
            ),
            default=None,
        )
        if self._next is None and self._used:
            # A program holds leases for moments, one after another: ringing for each is expensive.
            self._next = time.monotonic() + _IDLE
        self._used = False
        looks = [watch.due for watch in list(self._watches.values()) if watch.due is not None]
        if looks:
            first = min(looks)
            self._next = first if self._next is None else min(self._next, first)
        return None if self._next is None else max(self._next - time.monotonic(), 0.01)

    def _hear(self) -> None:
        """Log what the native thread could not do."""
        if self._native is not None:
            for error in self._native.errors():
                log.warning("an overdue lease could not be renewed: %s", error)

    def _look(self, session: Session[Any]) -> Request[None]:
        """Report queues that have become slow or deep."""
        now = time.monotonic()
        for key, watch in list(self._watches.items()):
            if watch.due is not None and watch.due <= now:
                yield from watch.look(session)
            if watch.due is None:
                self._watches.pop(key, None)
        for reference in list(self._held.values()):
            grant = reference()
            if grant is None or grant.slow_after is None or not grant.out:
                continue
            slow_wait = grant.slow_after
            if now - grant.started >= slow_wait:
                grant.slow_after = None
                id = min(grant.out)
                operations = grant.handle.operations
                explained = yield from operations.explain(session, "id", id, _EXPLAINED)
                held = now - grant.started
                report(grant.handle.name, [("slow_lease", id, 0, held, explained)])
                waits = yield from behind(operations, session, id, slow_wait)
                if waits is not None:
                    report(grant.handle.name, [waits])
            del grant

    def _renew(self, session: Session[Any], grant: Grant) -> Request[None]:
        handle = grant.handle
        started = time.monotonic()
        grant.unsaid = False
        try:
            kept = yield from handle.extend(session, grant.token, grant.seconds, grant.waits)
        except InterlockError as error:
            self.failures += 1
            log.warning(
                "queue %r: the lease of messages %s could not be renewed: %s",
                handle.name,
                sorted(grant.out),
                error,
                extra={"queue": handle.name, "token": grant.token},
            )
            # Again soon, while the lease may still be valid.
            grant.lost = grant.deadline <= time.monotonic()
            if grant.lost:
                self.leave(grant.key)
            return
        if kept:
            grant.extended(grant.seconds, started)
        elif grant.out:
            grant.lost = True
            self.leave(grant.key)
            log.warning(
                "queue %r: the lease of messages %s is lost: it expired or was revoked",
                handle.name,
                sorted(grant.out),
                extra={"queue": handle.name, "token": grant.token},
            )
            # Too late to settle anything, but it shows the engine that this process lives: the
            # leased messages have not ended it.
            alive = [wire.releasing(grant.token, id) for id in grant.out]
            with contextlib.suppress(InterlockError):
                yield from handle.settle(session, alive)
