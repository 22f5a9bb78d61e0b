"""A page in chromium, driven over its debugging pipe with nothing but the standard library."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# As Debian, other systems and Google name it.
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = next((found for name in NAMES if (found := shutil.which(name))), None)

# Headless, and silent: nothing of it may reach for a network while the tests run.
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    # Otherwise clicks before the page's first frame are discarded.
    "--allow-pre-commit-input",
    # A container's shared memory is often too small for a page.
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
    "--window-size=1200,800",
]


class Page:
    """One open page: asks and answers are JSON, each ended by a zero byte."""

    def __init__(self, asks: int, answers: int) -> None:
        self._asks = asks
        self._answers = answers
        self._read = b""
        self._number = 0
        self._session: str | None = None
        self._loaded: set[str] = set()

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Sends one command and returns its result; raises RuntimeError for an error."""
        number = self._send(method, params)
        answer = self._next(lambda message: message.get("id") == number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return dict(answer["result"])

    def open(self, page: Path | str) -> None:
        """Opens a file, or a URL, and waits until it has drawn itself."""
        url = page if isinstance(page, str) else page.as_uri()
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.ask("Page.enable")
        self.ask("Page.setLifecycleEventsEnabled", enabled=True)
        opened = self.ask("Page.navigate", url=url)
        if "errorText" in opened:
            raise RuntimeError(f"{page}: {opened['errorText']}")
        # The answer may come while the blank page is still there. That one is complete too, so to
        # ask the document whether it is would now and then be answered by the wrong one.
        if opened["loaderId"] not in self._loaded:
            self._next(lambda _: opened["loaderId"] in self._loaded)
        # The first of these frames may have been under way before the sizes were known.
        for _ in range(2):
            self.value("new Promise(requestAnimationFrame)")

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for."""
        answer = self.ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def click(self, selector: str, across: float = 0.5, down: float = 0.5) -> None:
        """Clicks within an element, at a part of its width and height."""
        box = self.value(
            f"(() => {{ const box = document.querySelector({json.dumps(selector)})"
            ".getBoundingClientRect(); return [box.x, box.y, box.width, box.height] })()"
        )
        at = {"x": box[0] + box[2] * across, "y": box[1] + box[3] * down}
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)

    def press(self, key: str) -> None:
        """Presses one key, a letter or a name such as "Escape"."""
        text = {"text": key} if len(key) == 1 else {}
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=key)

    def close(self) -> None:
        """Ends the browser, which may be gone before it has answered."""
        self._session = None
        self._send("Browser.close", {})

    def _send(self, method: str, params: dict[str, Any]) -> int:
        self._number += 1
        command: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            command["sessionId"] = self._session
        left = json.dumps(command).encode() + b"\0"
        while left:
            left = left[os.write(self._asks, left) :]
        return self._number

    def _next(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Reads to the first message that is wanted; events are noted on the way."""
        while True:
            while b"\0" not in self._read:
                part = os.read(self._answers, 1 << 16)
                if not part:
                    raise BrokenPipeError("the browser has ended")
                self._read += part
            line, self._read = self._read.split(b"\0", 1)
            message = json.loads(line)
            event = message.get("params", {})
            if message.get("method") == "Page.lifecycleEvent" and event["name"] == "load":
                self._loaded.add(event["loaderId"])
            if wanted(message):
                return dict(message)


@contextmanager
def opened(place: Path | str, profile: Path) -> Iterator[Page]:
    """A page with a file, or a URL, in it; `profile` is a directory that is empty or not there."""
    assert CHROMIUM
    their_asks, asks = os.pipe()
    answers, their_answers = os.pipe()
    # The browser reads its orders from descriptor 3 and answers on 4.
    wiring = f'exec "$@" 3<&{their_asks} 4>&{their_answers}'
    said = profile.with_suffix(".log")
    with said.open("w") as log:
        process = subprocess.Popen(
            ["bash", "-c", wiring, "bash", CHROMIUM, *FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(their_asks, their_answers),
            stdout=log,
            stderr=log,
        )
    os.close(their_asks)
    os.close(their_answers)
    page = Page(asks, answers)
    try:
        page.open(place)
        yield page
        page.close()
    except BrokenPipeError as error:
        last = said.read_text(errors="replace")[-4000:]
        raise RuntimeError(f"{CHROMIUM} ended; it said:\n{last}") from error
    finally:
        os.close(asks)
        os.close(answers)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
