"""The tools of a case: queues on one face, a clock it moves, and concurrent calls.

Nothing here sleeps. A case waits for another thread or task by asking for its result, and time
passes only when the case advances the clock.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from interlock import InterlockError
from interlock.testing.contract.faces import LeaseFace, QueueFace
from interlock.testing.harness import Face, Harness, SteppedClock


class Running:
    """A coroutine that runs concurrently with the case: on a thread (sync) or as a task (aio)."""

    async def result(self) -> Any:
        """Return its result, or raise its exception; AssertionError if it does not end."""
        raise NotImplementedError

    async def ended(self, within: float) -> bool:
        """Return whether it ends within this many real seconds."""
        raise NotImplementedError

    async def cancel(self) -> bool:
        """Cancel it and wait until it is gone; the asyncio face only.

        Return False if it ended normally all the same.
        """
        raise NotImplementedError


class Trial:
    """One run of one case on one face of one engine."""

    def __init__(self, harness: Harness, face: Face) -> None:
        self.harness = harness
        self.face = face
        self._queues: list[QueueFace] = []
        self._leases: list[LeaseFace] = []

    @property
    def aio(self) -> bool:
        return self.face == "aio"

    @property
    def clock(self) -> SteppedClock:
        return self.harness.clock

    def queue(self, **options: Any) -> QueueFace:
        """Return a new queue with the options of `KeyedQueue`."""
        queue = self.harness.queue(**options)
        aio = self.harness.aio(queue) if self.aio else None
        wrapped = QueueFace(queue, aio, self._leases.append)
        self._queues.append(wrapped)
        return wrapped

    async def suspected(self, queue: QueueFace) -> LeaseFace:
        """Lease the one leasable message again after a lease of it has expired: from here on an
        expired lease uses an attempt (clause 9). Leases must last 10 s."""
        attempt = (await queue.one()).attempt
        await self.advance(10)
        again = await queue.one()
        assert again.attempt == attempt
        return again

    async def advance(self, seconds: float) -> None:
        """Advance the clock; on the asyncio face, let the tasks that this wakes have a turn."""
        self.clock.advance(seconds)
        if self.aio:
            await asyncio.sleep(0)

    async def start(self, coroutine: Coroutine[Any, Any, Any]) -> Running:
        """Run `coroutine` concurrently with the case, from its first call on.

        Returns once it has started. It has then most likely reached the blocking call; a case must
        pass in the other order too.
        """
        if self.aio:
            task = _Task(coroutine)
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            return task
        return _Thread(coroutine)

    async def wakes(self, waiting: Coroutine[Any, Any, Any], act: Coroutine[Any, Any, Any]) -> Any:
        """Start `waiting`, which must block, then do `act`, which must wake it.

        Return the result of `waiting`, or raise its exception.
        """
        log: list[str] = []

        async def watched() -> Any:
            try:
                return await waiting
            finally:
                log.append("woke")

        running = await self.start(watched())
        log.append("acted")
        await act
        try:
            return await running.result()
        finally:
            assert log == ["acted", "woke"], "it did not block"

    async def handle_all(
        self, q: QueueFace, handler: Callable[[Any], Coroutine[Any, Any, Any]], **options: Any
    ) -> None:
        """Run `q.consume` until the queue is empty, then shut `q` down; time passes meanwhile.

        The handler is written for both faces: the sync face runs it on threads of the consumer,
        the asyncio face as a task.
        """
        assert not self.aio or hasattr(q.aio, "consume"), "AsyncQueue.consume() is missing"
        called = handler if self.aio else lambda payload: step(handler(payload))
        consumer = await self.start(q.consume(called, **options))
        await self.until_ended(await self.start(q.join()))
        await q.shutdown()
        running = await consumer.result()
        if not self.aio:
            running.join()

    async def until_ended(self, running: Running, step: float = 1.0) -> Any:
        """Advance the clock until `running` ends, and return its result.

        For a timeout, on whichever clock the engine counts it.
        """
        for _ in range(_STEPS):
            if await running.ended(within=0.005):
                break
            await self.advance(step)
        return await running.result()

    async def finish(self) -> None:
        """Settle and close the case's leftovers, so that nothing is abandoned by accident."""
        for queue in self._queues:
            with suppress(InterlockError):
                await queue.shutdown(immediate=True)
        for lease in self._leases:
            await lease.discard()


def step(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never suspends: this drives the sync face without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise RuntimeError("a body suspended on the sync face; await only what the trial offers")


@contextmanager
def raises(kind: type[BaseException], *words: str) -> Iterator[list[Any]]:
    """Check that the block raises `kind`, and that the text contains each of `words`.

    Yields a list to find the error in.
    """
    caught: list[Any] = []
    try:
        yield caught
    except kind as error:
        text = "\n".join([str(error), *getattr(error, "__notes__", ())])
        missing = [word for word in words if word not in text]
        assert not missing, f"{kind.__name__} should speak of {missing}: {text}"
        caught.append(error)
    else:
        raise AssertionError(f"{kind.__name__} was not raised")


class _Thread(Running):
    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._outcome: Callable[[], Any] | None = None
        self._entered = threading.Event()
        # A daemon, so that a call which never wakes fails the case and not the interpreter's exit.
        self._thread = threading.Thread(target=self._run, args=(coroutine,), daemon=True)
        self._thread.start()
        self._entered.wait()

    async def result(self) -> Any:
        assert await self.ended(_PATIENCE), _STUCK
        assert self._outcome is not None
        return self._outcome()

    async def ended(self, within: float) -> bool:
        self._thread.join(within)
        return not self._thread.is_alive()

    async def cancel(self) -> bool:
        raise TypeError("a thread cannot be cancelled; mark the case faces=('aio',)")

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._entered.set()
        try:
            value = step(coroutine)
        except BaseException as error:
            raised = error  # the name `error` is unbound when this block ends

            def throw() -> Any:
                raise raised

            self._outcome = throw
        else:
            self._outcome = lambda: value


class _Task(Running):
    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._task = asyncio.ensure_future(coroutine)

    async def result(self) -> Any:
        assert await self.ended(_PATIENCE), _STUCK
        return self._task.result()

    async def ended(self, within: float) -> bool:
        await asyncio.wait([self._task], timeout=within)
        return self._task.done()

    async def cancel(self) -> bool:
        self._task.cancel()
        await asyncio.wait([self._task], timeout=_PATIENCE)
        assert self._task.done(), "a cancelled call did not end"
        return self._task.cancelled()


_STUCK = "a call that should have ended is still blocked"
_PATIENCE = 10.0
"""Real seconds until a call that should have woken counts as stuck."""
_STEPS = 1_000
"""Maximum number of clock steps while waiting for a timeout: five real seconds or more."""
_TURNS = 5
"""Turns of the loop that a new task gets before the case continues."""
