"""One browser, one hub and one Redis for all tests of the pages, and a dashboard over each."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

import interlock
from interlock.client.faces.client import Client, connect
from interlock.client.faces.queue import RemoteQueue
from interlock.retry import Retry
from tests.dashboard.browser.site import Site
from tests.hub.servers import missing, needs_hub, redis_server
from tests.replay.browser import CHROMIUM, FLAGS, NAMES

AT_ONCE = Retry(attempts=2, first=0)
DASHBOARD = ("-m", "interlock", "dashboard", "--port", "0", "--json")
LONG = "INTERLOCK_BROWSER" in os.environ
SECONDS = 40_000
"""Milliseconds within which a page shows what is expected; it mostly takes a tenth of one."""


@pytest.fixture(scope="session")
def browser() -> Iterator[tuple[Browser, asyncio.AbstractEventLoop]]:
    if CHROMIUM is None:
        missing(f"no browser: none of {', '.join(NAMES)} is on PATH")
    expect.set_options(timeout=SECONDS)
    with sync_playwright() as playwright:
        # Between its calls it leaves this thread's event loop marked as running.
        loop = asyncio.get_running_loop()
        flags = [flag for flag in FLAGS if not flag.startswith(("--headless", "--remote"))]
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        asyncio._set_running_loop(None)
        yield opened, loop
        asyncio._set_running_loop(loop)
        opened.close()


@pytest.fixture
def tabs(browser: tuple[Browser, asyncio.AbstractEventLoop]) -> Iterator[Browser]:
    """The browser, while its event loop is this thread's; other tests have loops of their own."""
    opened, loop = browser
    asyncio._set_running_loop(loop)
    yield opened
    asyncio._set_running_loop(None)


@contextmanager
def dashboard(url: str, *flags: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`interlock dashboard` as a process that serves, and its address."""
    process = subprocess.Popen(
        [sys.executable, *DASHBOARD, "--url", url, *flags],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ,
    )
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"].rstrip("/"), process
    finally:
        process.terminate()
        process.communicate(timeout=20)


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("pages")) as (host, port):
        yield f"redis://{host}:{port}"


@pytest.fixture(scope="session")
def hub_url() -> Iterator[str]:
    needs_hub()
    with interlock.Hub(port=0, workers=2) as hub:
        yield f"interlock://127.0.0.1:{hub.port}"


@pytest.fixture(scope="session")
def redis_site(redis_url: str) -> Iterator[Site]:
    with dashboard(redis_url, "--write") as (address, _):
        yield Site(address, redis_url)


@pytest.fixture(scope="session")
def hub_site(hub_url: str) -> Iterator[Site]:
    with dashboard(hub_url, "--write") as (address, _):
        yield Site(address, hub_url)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Try what is the engine's on both; the rest on a hub, with INTERLOCK_BROWSER=1 on both too."""
    if "site" in metafunc.fixturenames:
        both = LONG or getattr(metafunc.function, "on_each_engine", False)
        metafunc.parametrize("site", ["redis", "hub"] if both else ["hub"], indirect=True)


@pytest.fixture
def site(request: pytest.FixtureRequest) -> Site:
    """A dashboard that may operate: over Redis, then over a hub."""
    found = request.getfixturevalue(f"{request.param}_site")
    assert isinstance(found, Site)
    return found


@pytest.fixture(scope="session")
def reading(hub_url: str) -> Iterator[Site]:
    """A dashboard that only reads, under a path as behind a proxy."""
    with dashboard(hub_url, "--base-path", "/ops/queues") as (address, _):
        yield Site(address, hub_url)


@pytest.fixture
def client(site: Site) -> Iterator[Client]:
    with connect(site.engine) as opened:
        yield opened


@pytest.fixture
def queue(client: Client) -> Iterator[RemoteQueue[Any]]:
    """A queue of its own: at the last attempt of two a message is held."""
    made = client.queue(f"q{uuid.uuid4().hex[:8]}", Any, retry=AT_ONCE)
    yield made
    made.drop(force=True)


@pytest.fixture
def page(tabs: Browser) -> Iterator[Page]:
    """An empty page; what its scripts complain of fails the test."""
    context = tabs.new_context(viewport={"width": 1280, "height": 860}, reduced_motion="reduce")
    opened = context.new_page()
    complaints: list[str] = []
    opened.on("pageerror", lambda error: complaints.append(f"{error}"))
    opened.on("console", lambda said: complaints.append(said.text) if _is_bad(said) else None)
    yield opened
    context.close()
    assert not complaints


def _is_bad(said: Any) -> bool:
    # The browser reports a refused request too; pages show it, which tests look at.
    return said.type in ("error", "warning") and "Failed to load resource" not in said.text
