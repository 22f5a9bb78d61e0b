"""The page of the push service, in Chromium."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.running import ROOT
from tests.replay.browser import CHROMIUM, Page, opened


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_the_push_page_works_when_a_user_reconnects_at_another_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples" / "push")
    from device import Device
    from service import Service

    async def write(url: str, texts: list[str]) -> None:
        ann = Device("ann", [url])
        for text in texts:
            await ann.send("dora", text)
        await ann.until(lambda: not ann.unsent)
        await ann.close()

    with Service(tmp_path) as service:
        first, second = service.start("a"), service.start("b")
        [at_first] = [name for name in service.gateways if name.startswith("a")]
        url = first.url.replace("ws:", "http:").removesuffix("ws")
        with opened(url, tmp_path / "profile") as page:
            insert(page, "#user", "dora")
            page.click("#login button")
            until(lambda: page.value("document.querySelector('#online').textContent"), "dora")
            asyncio.run(write(second.url, ["<b>hello</b>"]))
            until(lambda: shown(page), ["ann: <b>hello</b>"])

            page.click("#ground")
            until(lambda: service.state.users["dora"].background, True)
            asyncio.run(write(second.url, ["one", "two"]))
            until(lambda: text(page, "#badge"), "2")
            service.kill(at_first)
            until(lambda: text(page, "#state"), "at gateway b")
            until(lambda: text(page, "#badge"), "2")
            assert shown(page) == ["ann: <b>hello</b>"]

            page.click("#ground")
            until(lambda: shown(page), ["ann: <b>hello</b>", "ann: one", "ann: two"])
            until(lambda: service.state.users["dora"].unread, 0)
            until(lambda: page.value("document.querySelector('#badge').hidden"), True)
            insert(page, "#to", "dora")
            insert(page, "#text", "to myself")
            page.click("#send button")
            until(lambda: len(shown(page)), 5)
            until(lambda: page.value("document.querySelectorAll('.unsent').length"), 0)

            page.click("#logout")
            until(lambda: "dora" in service.state.users, False)
            until(lambda: page.value("document.querySelector('#app').hidden"), True)


def insert(page: Page, selector: str, words: str) -> None:
    page.value(f"document.querySelector('{selector}').focus()")
    page.ask("Input.insertText", text=words)


def text(page: Page, selector: str) -> str:
    return str(page.value(f"document.querySelector('{selector}').textContent"))


def shown(page: Page) -> list[str]:
    return list(page.value("[...document.querySelectorAll('#shown li')].map(li => li.textContent)"))


def until(look: Callable[[], object], expected: object) -> None:
    """Wait until what is seen is what is expected, or begins with it."""
    deadline = time.monotonic() + 30
    while True:
        seen = look()
        if isinstance(seen, str) and isinstance(expected, str):
            seen = seen[: len(expected)]
        if seen == expected:
            return
        assert time.monotonic() < deadline, f"{seen!r} is not {expected!r}"
        time.sleep(0.02)
