"""The work of a handler: the texts of --work."""

import asyncio
import hashlib
import pickle
import sys
import time
from pathlib import Path

import pytest

from interlock.replay.trace import Message
from interlock.replay.workload import WorkloadError, check_picklable, duration, parse

MESSAGE = Message("m", ("a",))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1ms", 1e-3), ("100us", 1e-4), ("100µs", 1e-4), ("0.5s", 0.5), (".5s", 0.5),
        ("20ns", 2e-8), ("0s", 0),
    ],
)  # fmt: skip
def test_times_are_read_with_their_unit(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "spec",
    [
        "", "sleep", "sleep:", "sleep:1", "sleep:-1ms", "sleep:1 hour", "spin:fast", "spin:nans",
        "hash:2", "nothing", "module:", ":function", "no.such.module:function",
        "json:no_such_function", "json:__name__", "json:decoder.missing", "os..path:join",
    ],
)  # fmt: skip
def test_invalid_work_is_refused_with_the_allowed_forms(spec: str) -> None:
    with pytest.raises(WorkloadError, match=r"allowed|cannot import|has no"):
        parse(spec)


def test_a_module_that_fails_while_it_is_imported_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "falls_over.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(WorkloadError, match="cannot import 'falls_over': division by zero"):
        parse("falls_over:handle")


@pytest.mark.parametrize("spec", ["sleep:0s", "spin:1us", "hash", "builtins:repr", "json:dumps"])
def test_work_can_be_pickled(spec: str) -> None:
    check_picklable(parse(spec))
    again = pickle.loads(pickle.dumps(parse("hash").function))
    assert again(MESSAGE) == parse("hash").function(MESSAGE)


def test_a_function_that_cannot_be_pickled_is_refused_for_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "has_lambda.py").write_text("handle = lambda message: None")
    monkeypatch.syspath_prepend(tmp_path)
    work = parse("has_lambda:handle")
    work.function(MESSAGE)
    with pytest.raises(WorkloadError, match="cannot go to another process"):
        check_picklable(work)


def test_sleeping_waits_at_least_as_long_as_asked() -> None:
    begin = time.monotonic_ns()
    parse("sleep:2ms").function(MESSAGE)
    assert time.monotonic_ns() - begin >= 2_000_000


def test_spinning_uses_processor_time_of_its_own_thread() -> None:
    begin = time.thread_time_ns()
    parse("spin:2ms").function(MESSAGE)
    assert time.thread_time_ns() - begin >= 2_000_000


def test_hashing_depends_on_the_message_alone() -> None:
    work = parse("hash").function
    assert work(MESSAGE) == work(Message("m", ("a",)))
    assert work(MESSAGE) != work(Message("n", ("a",)))
    assert len(str(work(MESSAGE))) == 2 * hashlib.sha256().digest_size


def test_a_function_of_ones_own_is_called_with_the_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_work.py").write_text(
        "class Shop:\n    @staticmethod\n    def handle(message):\n        return message.id\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    assert parse("own_work:Shop.handle").function(MESSAGE) == "m"


def test_a_coroutine_function_runs_on_loops_and_on_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_coroutine.py").write_text(
        "import asyncio\n"
        "async def handle(message):\n    await asyncio.sleep(0)\n    return message.id\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    work = parse("own_coroutine:handle")
    assert work.coroutine is not None
    assert asyncio.run(work.coroutine(MESSAGE)) == "m"
    assert work.function(MESSAGE) == work.function(MESSAGE) == "m"
