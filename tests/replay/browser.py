"""A page in chromium, driven over its debugging pipe with nothing but the standard library."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium")

# Headless, and silent: nothing of it may reach for a network while the tests run.
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
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

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Sends one command and returns its result; raises RuntimeError for an error."""
        self._number += 1
        command: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            command["sessionId"] = self._session
        left = json.dumps(command).encode() + b"\0"
        while left:
            left = left[os.write(self._asks, left) :]
        while True:
            while b"\0" not in self._read:
                part = os.read(self._answers, 1 << 16)
                if not part:
                    raise RuntimeError("chromium has ended")
                self._read += part
            line, self._read = self._read.split(b"\0", 1)
            answer = json.loads(line)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer["result"])

    def open(self, path: Path) -> None:
        """Opens a file and waits until it has drawn itself."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.ask("Page.enable")
        self.ask("Page.navigate", url=path.as_uri())
        self.value(
            "new Promise((done) => document.readyState === 'complete' ? done()"
            " : addEventListener('load', () => done()))"
        )

    def value(self, expression: str) -> Any:
        """What a JavaScript expression comes to; a promise is waited for."""
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
        """Ends the browser."""
        self._session = None
        self.ask("Browser.close")


@contextmanager
def opened(path: Path, profile: Path) -> Iterator[Page]:
    """A page with the file at `path` in it; `profile` is a directory that is empty or not there."""
    assert CHROMIUM
    their_asks, asks = os.pipe()
    answers, their_answers = os.pipe()
    # The browser reads its orders from descriptor 3 and answers on 4.
    wiring = f'exec "$@" 3<&{their_asks} 4>&{their_answers}'
    process = subprocess.Popen(
        ["bash", "-c", wiring, "bash", CHROMIUM, *FLAGS, f"--user-data-dir={profile}"],
        pass_fds=(their_asks, their_answers),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(their_asks)
    os.close(their_answers)
    page = Page(asks, answers)
    try:
        page.open(path)
        yield page
        page.close()
    finally:
        os.close(asks)
        os.close(answers)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
