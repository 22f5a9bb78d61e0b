"""Messages sent into the memory of a process in which nobody takes them are not lost in silence."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from interlock import EngineUnavailable
from interlock.app import App
from tests.worker.workers import ROOT

HEAD = """
import os
import interlock
app = interlock.App({url})

@app.task(keys="{{account}}", queue="default")
def transfer(account: int) -> None: ...
"""
UNHANDLED = "of queue 'default' not handled, and lost with the memory of this process"


def ran(program: str, url: str = "", environment: str = "") -> tuple[int, str]:
    kept = {name: value for name, value in os.environ.items() if name != "INTERLOCK_URL"}
    if environment:
        kept["INTERLOCK_URL"] = environment
    done = subprocess.run(
        [sys.executable, "-c", HEAD.format(url=url) + textwrap.dedent(program)],
        env={**kept, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=50,
    )
    return done.returncode, done.stderr


def test_the_first_send_without_a_named_engine_is_refused() -> None:
    code, said = ran("for n in range(2000): transfer.send(n)")
    assert code == 1
    assert "EngineUnavailable: no engine is named, and no worker runs in this process" in said
    assert "Set INTERLOCK_URL" in said


def test_the_first_asyncio_send_without_a_named_engine_is_refused() -> None:
    code, said = ran("import asyncio; asyncio.run(transfer.asend(1))")
    assert (code, "no engine is named" in said) == (1, True)


def test_an_app_whose_send_was_refused_can_set_its_engine_and_send(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("INTERLOCK_URL", raising=False)
    app = App()

    @app.task
    def note() -> None: ...

    with app:
        with pytest.raises(EngineUnavailable, match="no engine is named"):
            note.send()
        app.url = "memory://told"
        assert note.send().id
        assert app._url_in_use() == "memory://told"
        app._queue("default").purge()


@pytest.mark.parametrize("url", ["memory://", "memory://named"])
@pytest.mark.parametrize("by", ["argument", "environment"])
def test_an_explicit_memory_engine_warns_once_and_reports_lost_messages_at_exit(
    url: str, by: str
) -> None:
    given = {"url": repr(url)} if by == "argument" else {"environment": url}
    code, said = ran("for n in range(2000): transfer.send(n)", **given)
    assert code == 0
    assert said.count("which has no worker yet") == 1
    assert said.count(f"2000 messages {UNHANDLED} ({url})") == 1


def test_closing_the_app_reports_lost_messages() -> None:
    code, said = ran(
        """
        import sys
        transfer.send(1)
        app.close()
        print("closed", file=sys.stderr)
        """,
        url="'memory://'",
    )
    assert code == 0
    assert said.index(UNHANDLED) < said.index("closed")
    assert said.count(UNHANDLED) == 1


@pytest.mark.parametrize("url", ["", "'memory://'", "'memory://named'"])
def test_a_memory_engine_with_a_worker_warns_of_nothing(url: str) -> None:
    program = """
    with app.worker():
        for n in range(100): transfer.send(n)
        app._queue("default").join(30)
    """
    assert ran(program, url=url) == (0, "")


def test_messages_left_by_a_worker_are_reported() -> None:
    program = """
    with app.worker():
        transfer.send(1)
        transfer.options(delay=1000).send(2)
        while app._queue("default").stats().acks < 1: pass
    """
    code, said = ran(program)
    assert (code, f"1 message {UNHANDLED}" in said) == (0, True)


def test_a_worker_of_another_app_on_the_same_memory_engine_suffices() -> None:
    program = """
    other = interlock.App("memory://named")
    @other.task
    def transfer(account: int) -> None: ...
    with other.worker():
        app.tasks["transfer"].send(1)
        app._queue("default").join(30)
    """
    assert ran(program, url="'memory://named'") == (0, "")


def test_a_forked_child_does_not_report_its_parent_s_messages() -> None:
    program = """
    transfer.send(1)
    if os.fork():
        os.wait()
    """
    _, said = ran(program, url="'memory://named'")
    assert said.count(UNHANDLED) == 1


def test_a_test_worker_reports_no_lost_messages() -> None:
    program = """
    with app.testing() as worker:
        transfer.send(1)
    """
    assert ran(program) == (0, "")
