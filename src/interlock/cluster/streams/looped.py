"""A stream whose client is made of coroutines: they run on the loop of a private thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import ssl
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from interlock.cluster.streams.protocol import PositionLost, StreamUnavailable

T = TypeVar("T")


class Looped:
    """The part of such a stream that runs coroutines, and ends them when it is closed."""

    def __init__(self, shown: str) -> None:
        self._shown = shown
        """The beginning of errors: the stream and its engine."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._using = threading.Lock()
        self._asked: concurrent.futures.Future[Any] | None = None
        self._closed = False
        self._reason: Exception | None = None
        """The reason why the call under way was cancelled."""

    async def _drop(self) -> None:
        """Close the connection, if there is one."""
        raise NotImplementedError

    def _run(self, make: Callable[[], Coroutine[Any, Any, T]], limit: float) -> T:
        """Run a coroutine to its end, within a time limit."""
        with self._using:
            self._check()
            self._reason = None
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=_serve, args=(self._loop,), name="interlock-stream", daemon=True
                ).start()
            asked = asyncio.run_coroutine_threadsafe(self._bounded(make, limit), self._loop)
            self._asked = asked
            try:
                if self._closed:
                    asked.cancel()
                return asked.result()
            except BaseException as error:
                asked.cancel()
                reason, self._reason = self._reason, None
                self._finish(self._drop())
                if reason is not None and isinstance(error, concurrent.futures.CancelledError):
                    raise reason from None
                if self._closed:
                    raise StreamUnavailable(self._text("closed")) from None
                if isinstance(error, (PositionLost, StreamUnavailable)):
                    raise
                if isinstance(error, concurrent.futures.CancelledError):
                    raise StreamUnavailable(self._text("the connection was lost")) from None
                if isinstance(error, Exception):
                    raise self._meant(error) from error
                raise
            finally:
                self._asked = None
                if self._closed:
                    self._stop()

    async def _bounded(self, make: Callable[[], Coroutine[Any, Any, T]], limit: float) -> T:
        try:
            async with asyncio.timeout(limit):
                return await make()
        except TimeoutError:
            raise StreamUnavailable(self._text(self._silent(limit))) from None

    def _meant(self, error: Exception) -> StreamUnavailable:
        """Return what an error of the client means."""
        # Clients wrap the errors of TLS.
        for cause in (error, error.__cause__, error.__context__):
            if isinstance(cause, ssl.SSLCertVerificationError):
                advice = "name the file of its authority with ?ca=FILE"
                text = f"its certificate is refused: {cause.verify_message}; {advice}"
                return StreamUnavailable(self._text(text))
            if isinstance(cause, ssl.SSLError):
                return StreamUnavailable(self._text(f"TLS failed, if this port has it: {cause}"))
        return StreamUnavailable(self._text(str(error) or type(error).__name__))

    def _silent(self, limit: float) -> str:
        """Return why no answer came, as far as it is known."""
        return f"no answer in {limit:.3g} s"

    def _abort(self, reason: Exception) -> None:
        """End the call under way for a reason, on the loop's thread."""
        asked = self._asked
        if asked is not None:
            self._reason = reason
            asked.cancel()

    def _check(self) -> None:
        if self._closed:
            raise StreamUnavailable(self._text("closed"))

    def _text(self, why: str) -> str:
        return f"{self._shown}: {why}"

    def close(self) -> None:
        """See ``ChangeStream``."""
        # First: who is about to begin looks at it afterwards.
        self._closed = True
        asked = self._asked
        if asked is not None:
            asked.cancel()
        if self._using.acquire(blocking=False):
            # Otherwise the call under way does it.
            self._stop()
            self._using.release()

    def _stop(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            self._finish(self._drop(), loop)
            loop.call_soon_threadsafe(loop.stop)

    def _finish(
        self, work: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        """Run what closes something; it does not matter whether it can."""
        on = loop or self._loop
        if on is None:
            work.close()
            return
        with contextlib.suppress(Exception, concurrent.futures.CancelledError):
            asyncio.run_coroutine_threadsafe(work, on).result(2.0)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
    finally:
        loop.close()


def trusting(ca: str) -> ssl.SSLContext:
    """Return what checks certificates: by an authority's file, or by those of the system.

    Raises:
        ValueError: the file has no certificate.
        OSError: it cannot be read.
    """
    if not ca:
        return ssl.create_default_context()
    text = Path(ca).read_text(errors="replace")
    with contextlib.suppress(ssl.SSLError, ValueError):
        # An empty text would mean the authorities of the system.
        if text:
            return ssl.create_default_context(cadata=text)
    raise ValueError(f"open_log(): url names {ca!r} as ca, which has no certificate")
