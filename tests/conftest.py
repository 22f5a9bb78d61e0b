"""For all tests: a watchdog, so that a test which waits for a lost wake-up does not hold up the CI.

At its limit the main thread is interrupted, and the test fails with the stacks of all threads.
Where that does not help, for a thread may be stuck in native code and even hold the GIL,
faulthandler's timer ends the process at one and a half times the limit: a thread in C that needs
nobody's cooperation. With pytest-xdist that process is one of several and made anew, and the test
is named as the one in which it crashed. The order of the tests is random: pytest-randomly prints
its seed, and `--randomly-seed=N` or INTERLOCK_SEED repeats it.
"""

import faulthandler
import gc
import json
import logging
import os
import signal
import sys
import traceback
import zlib
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

DEFAULT_SECONDS = 60.0
LONG_SECONDS = 100.0
"""A test that may take longer is begun first."""
STDERR = pytest.StashKey[int]()
SEED = os.environ.get("INTERLOCK_SEED")

if sys.version_info < (3, 13) and hasattr(traceback, "_extract_caret_anchors_from_line_segment"):
    # Tracebacks of two threads at once: each parses lines for its carets, the parser counts the
    # depth of both as one, and raises SystemError ("AST constructor recursion depth mismatch").
    # pytest, which formats what is logged, would fail the test. Without carets nothing is parsed.
    traceback._extract_caret_anchors_from_line_segment = lambda _segment: None


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if SEED and config.getoption("randomly_seed", None) == "default":
        config.option.randomly_seed = int(SEED)
    # hiredis is optional for a user, and here for the tests; so that both ways are run by some.
    if os.environ.get("INTERLOCK_PARSER") == "redis-py":
        from interlock.client.transport import thread_link as threads

        threads.hiredis = None
    # Background processes of a shell without job control ignore Ctrl-C, and so would all that tests
    # start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Collected tests stay alive: repeated collection of garbage costs seconds in each process.
    gc.disable()
    # Output is captured while a test runs, and would be lost with the process.
    config.stash[STDERR] = os.dup(2)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With INTERLOCK_SHARES=1, keep one case in n of a test marked `share(n)`, by the seed."""
    left = {item for item in items if os.environ.get("INTERLOCK_SHARES") and not chosen(item)}
    if left:
        config.hook.pytest_deselected(items=list(left))
    kept = [item for item in items if item not in left]
    items[:] = long_first(kept, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def chosen(item: pytest.Item) -> bool:
    marker = item.get_closest_marker("share")
    return not marker or (zlib.crc32(item.nodeid.encode()) + int(SEED or 0)) % marker.args[0] == 0


def long_first(items: list[pytest.Item], processes: int) -> list[pytest.Item]:
    """Return the tests with modules that have a long one where each process of pytest-xdist begins.

    Begun last, a long test would run alone.
    """
    long: dict[Path, list[pytest.Item]] = {
        item.path: [] for item in items if limit_of(item) > LONG_SECONDS
    }
    rest: list[pytest.Item] = []
    for item in items:
        long.get(item.path, rest).append(item)
    modules = [long[path] for path in sorted(long)]
    found: list[pytest.Item] = []
    for process in range(processes):
        for module in modules[process::processes]:
            found += module
        # Number of further items for this process.
        left = max(0, len(items) * (process + 1) // processes - len(found))
        found += rest[:left]
        del rest[:left]
    return found + rest


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each reason to skip. (-rs: one for each place that did.)"""
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", ())
    )
    if reasons:
        terminalreporter.section("skipped, by reason")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count:5}  {reason}")


def pytest_collection_finish() -> None:
    # Imported modules stay to the end: a test that collects garbage need not go through it.
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="module")
def what_other_modules_left_is_no_garbage() -> None:
    # Nor through what was imported since: some of them collect garbage hundreds of times.
    gc.freeze()


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[STDERR])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    with watched(item):
        yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    with watched(item, call=True):
        yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    with watched(item):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    # pytest-xdist sends it as UTF-8, which half a pair of surrogates has no place in.
    report.sections = [
        (name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections
    ]
    return report


class Machine(logging.Handler):
    """Reads each record's own attributes as a JSON formatter would, and keeps what it cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.unreadable: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        facts = {name: value for name, value in vars(record).items() if name not in STANDARD}
        try:
            json.dumps(facts)
        except (TypeError, ValueError) as error:
            self.unreadable.append(f"{record.getMessage()}: {facts}: {error}")


STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime"}


@pytest.fixture(autouse=True)
def what_a_log_record_carries_is_json() -> Iterator[None]:
    machine = Machine()
    logger = logging.getLogger("interlock")
    logger.addHandler(machine)
    yield
    logger.removeHandler(machine)
    assert not machine.unreadable


def limit_of(item: pytest.Item) -> float:
    marker = item.get_closest_marker("watchdog")
    return float(marker.args[0]) if marker else DEFAULT_SECONDS


@contextmanager
def watched(item: pytest.Item, *, call: bool = False) -> Iterator[None]:
    limit = limit_of(item)
    if not call:  # a shorter limit is for what the test itself does
        limit = max(limit, DEFAULT_SECONDS)

    def give_up(_signal: int, _frame: FrameType | None) -> None:
        # Captured, so the report of this test shows it.
        faulthandler.dump_traceback(2)
        pytest.fail(f"not ended after {limit:g} s")

    faulthandler.dump_traceback_later(1.5 * limit, exit=True, file=item.config.stash[STDERR])
    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        faulthandler.cancel_dump_traceback_later()
