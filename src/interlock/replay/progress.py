"""A progress bar on a terminal, and one line for each way elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TextIO


class Progress:
    """Shows the progress of each way, on `stream`; None shows nothing."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    @contextmanager
    def of(self, name: str, total: int, done: Callable[[], int]) -> Iterator[None]:
        """Show `done()` of `total` until the block is left."""
        if self._stream is None:
            yield
            return
        begin = monotonic()
        over = threading.Event()
        bar = threading.Thread(target=self._draw, args=(name, total, done, over), daemon=True)
        if self._stream.isatty():
            bar.start()
        try:
            yield
        finally:
            over.set()
            if bar.ident is not None:
                bar.join()
                self._stream.write("\r\x1b[K")
        self._stream.write(f"{name:<11}{total:>10,} messages in {monotonic() - begin:.2f} s\n")
        self._stream.flush()

    def _draw(self, name: str, total: int, done: Callable[[], int], over: threading.Event) -> None:
        assert self._stream is not None
        # Ten times a second: smooth to the eye, and no burden on the measurement.
        while not over.wait(0.1):
            count = min(done(), total)
            filled = BAR * count // max(total, 1)
            bar = "#" * filled + "." * (BAR - filled)
            self._stream.write(f"\r{name:<11}{count:>10,} of {total:,} [{bar}]\x1b[K")
            self._stream.flush()


BAR = 40
