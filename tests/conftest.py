"""For all tests: a watchdog that ends a run in which a test hangs.

A test that waits for a lost wake-up must not hold up the CI, and a thread stuck in the native
module cannot be interrupted from Python. faulthandler's timer is a thread in C that needs neither
the GIL nor the cooperation of the one that hangs: it prints every stack and ends the process.
The order of the tests is random: pytest-randomly prints its seed, `--randomly-seed=N` repeats it.
"""

import faulthandler
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

DEFAULT_SECONDS = 60.0
STDERR = pytest.StashKey[int]()
# Where the name of the running test is kept, for nothing can be printed once the process is ended.
RUNNING = Path(os.environ.get("INTERLOCK_RUNNING_TEST", os.devnull)).absolute()


def pytest_configure(config: pytest.Config) -> None:
    # Output is captured while a test runs, and would be lost with the process.
    config.stash[STDERR] = os.dup(2)


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[STDERR])
    note_running("")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    note_running(item.nodeid)
    stderr = item.config.stash[STDERR]
    faulthandler.dump_traceback_later(allowed_seconds(item), exit=True, file=stderr)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def allowed_seconds(item: pytest.Item) -> float:
    marker = item.get_closest_marker("watchdog")
    return float(marker.args[0]) if marker else DEFAULT_SECONDS


def note_running(nodeid: str) -> None:
    RUNNING.write_text(nodeid)
