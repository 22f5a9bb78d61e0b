"""Runs one case on one face of one engine, with a watchdog."""

import asyncio
import threading
import traceback

from interlock.runtime.frames import frame_of
from interlock.testing.contract.registry import Case
from interlock.testing.contract.trial import Trial, step
from interlock.testing.harness import Face, Harness


class CaseHung(AssertionError):
    """A case did not end; the text shows its stack."""


class NotHeld(Exception):
    """The engine declares that it cannot satisfy this clause; the text gives its reason."""


def run(case: Case, harness: Harness, face: Face, limit: float = 30.0) -> None:
    """Run a case on an engine.

    The body runs on a thread of its own: a call that blocks for ever ends the case after `limit`
    real seconds, not the suite. The harness is closed at the end.

    Raises AssertionError, or the engine's own exception, if the engine fails the case; `CaseHung`
    (an AssertionError) if it did not end; `NotHeld` if the engine declares that it cannot satisfy
    it; ValueError if the case is not for this face.
    """
    if face not in case.faces:
        raise ValueError(f"{case.name} is not about the {face} face")
    reason = case.unheld(harness)
    if reason is not None:
        raise NotHeld(reason)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            if face == "aio":
                asyncio.run(_conduct(case, harness, face))
            else:
                step(_conduct(case, harness, face))
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work, name=f"{case.name}-{face}", daemon=True)
    thread.start()
    thread.join(limit)
    if thread.is_alive():
        raise CaseHung(
            f"{case.name} ({face}) did not end in {limit:g} s; it stands at\n" + _stack(thread)
        )
    harness.close()
    if failures:
        raise failures[0]


async def _conduct(case: Case, harness: Harness, face: Face) -> None:
    trial = Trial(harness, face)
    try:
        await case.body(trial)
    finally:
        await trial.finish()


def _stack(thread: threading.Thread) -> str:
    frame = frame_of(thread.ident)
    return "".join(traceback.format_stack(frame)) if frame else "(no stack)"
