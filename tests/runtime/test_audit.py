"""The audit log: one line for each change, with the name given by any caller."""

from __future__ import annotations

import contextvars

import pytest

from interlock import audit
from interlock.errors import EngineUnavailable, InterlockError


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (InterlockError("NOPERM"), "refused: NOPERM"),
        (EngineUnavailable("no answer", True), "unknown, it may have been made: no answer"),
        (EngineUnavailable("NOPERM"), "refused: NOPERM"),
        (KeyboardInterrupt(), "unknown, it was interrupted: KeyboardInterrupt"),
    ],
)
def test_a_failed_change_is_audited_as_failed_or_unknown(
    error: BaseException, result: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "interlock.audit")

    def change() -> None:
        raise error

    def act() -> None:
        audit.acting("eve\n2026 INFO purge of pending", "host")
        with pytest.raises(type(error)):
            audit.recorded("pause", "q\n", "keys a\nb", change, audit.changed)

    contextvars.copy_context().run(act)
    (record,) = caplog.records
    assert vars(record)["result"] == result
    assert "\n" not in record.getMessage()
    assert vars(record)["what"] == "keys a\nb"


def test_a_partly_applied_change_is_audited_with_its_progress(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "interlock.audit")
    done = 0

    def purge() -> int:
        nonlocal done
        done = 1000
        raise EngineUnavailable("no answer", True)

    def act() -> None:
        audit.acting("ann", "host")
        with pytest.raises(EngineUnavailable):
            audit.recorded("purge", "q", "pending", purge, str, lambda: f"{done} cancelled")

    contextvars.copy_context().run(act)
    (record,) = caplog.records
    result = "1000 cancelled, then unknown, it may have been made: no answer"
    assert vars(record)["result"] == result
