"""Presence in a cluster: the example's demo, and its page in Chromium."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.docs.running import ROOT, run
from tests.hub.servers import needs_hub, program
from tests.replay.browser import CHROMIUM, Page, opened

PROGRAM = ROOT / "examples" / "cluster" / "online.py"


@pytest.mark.share(2)
@pytest.mark.watchdog(240)
def test_the_demo_kills_a_node_and_loses_nothing(tmp_path: Path) -> None:
    needs_hub()
    program("redis-server")
    printed = run([sys.executable, PROGRAM, "--demo"], tmp_path).splitlines()
    assert re.fullmatch(r"a\d was killed; the other nodes continued", printed[1])
    counted, unknown = map(int, re.findall(r"(\d+) messages counted, (\d+) with", printed[2])[0])
    (shown,) = re.findall(r"^(\d+) unread", printed[3])
    assert counted + unknown == 200
    assert counted <= int(shown) <= 200
    assert printed[4].endswith("ann and bob are online")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[list[str]]:
    """Addresses of two push services."""
    needs_hub()
    program("redis-server")
    process = subprocess.Popen(
        [sys.executable, PROGRAM],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    found: list[str] = []
    try:
        while len(found) < 2:
            line = process.stdout.readline()
            assert line, "it ended"
            found += re.findall(r"open (http://\S+)/", line)
        yield found
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)


@pytest.mark.share(2)
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_the_online_example_shows_presence_and_delivers_messages(
    served: list[str], tmp_path: Path
) -> None:
    here, there = served
    with opened(f"{here}/", tmp_path / "profile") as page:
        page.value("document.querySelector('#user').focus()")
        page.ask("Input.insertText", text="dora")
        page.click("#login button")
        until(lambda: shown(page), ["dora browser"])
        for _ in range(3):
            urlopen(Request(f"{there}/message?user=dora", method="POST")).close()
        until(lambda: shown(page), ["dora browser 3"])
        press(page, "#ground")
        until(lambda: seen(there), [("dora", True, 3)])
        press(page, "#read")
        until(lambda: shown(page), ["dora browser"])
        press(page, "#logout")
        until(lambda: shown(page), [])
        until(lambda: seen(there), [])


def press(page: Page, button: str) -> None:
    """Click a button wherever it is: the list above it may be growing."""
    page.value(f"document.querySelector('{button}').click()")


def shown(page: Page) -> list[str]:
    lines = "[...document.querySelectorAll('#online li')]"
    texts = f"{lines}.map(li => [...li.children].map(one => one.textContent).join(' '))"
    return list(page.value(texts))


def seen(push: str) -> list[tuple[str, bool, int]]:
    """Return the users that another page would get first."""
    with urlopen(f"{push}/online", timeout=20) as stream:
        users = json.loads(stream.readline().removeprefix(b"data: "))
    return [(one["user"], one["background"], one["unread"]) for one in users]


def until(look: Callable[[], object], expected: object) -> None:
    """Wait until what is seen is what is expected."""
    deadline = time.monotonic() + 30
    while (found := look()) != expected:
        assert time.monotonic() < deadline, f"{found!r} is not {expected!r}"
        time.sleep(0.02)
