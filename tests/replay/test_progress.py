"""The progress that is shown while a way runs."""

import io
import threading

import pytest

from interlock.replay.progress import Progress


class Terminal(io.StringIO):
    """A terminal that tells when something was drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn = threading.Event()

    def isatty(self) -> bool:
        return True

    def flush(self) -> None:
        super().flush()
        self.drawn.set()


def test_a_terminal_shows_a_bar_and_leaves_one_line() -> None:
    terminal = Terminal()
    with Progress(terminal).of("queue", 1000, lambda: 250):
        terminal.drawn.wait()
    drawn, line = terminal.getvalue().rsplit("\x1b[K", 1)
    assert "\rqueue             250 of 1,000 [##########" + "." * 30 + "]" in drawn
    assert line.startswith("queue           1,000 messages in ")
    assert line.count("\n") == 1


def test_without_a_terminal_one_line_says_how_long_it_took() -> None:
    stream = io.StringIO()
    with Progress(stream).of("serial", 3, lambda: 0):
        assert stream.getvalue() == ""
    assert stream.getvalue().startswith("serial              3 messages in ")
    assert "\x1b" not in stream.getvalue()


def test_a_run_that_breaks_clears_its_progress_line() -> None:
    terminal = Terminal()

    def breaks() -> None:
        with Progress(terminal).of("queue", 3, lambda: 3):
            terminal.drawn.wait()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        breaks()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_an_empty_trace_draws_an_empty_bar() -> None:
    terminal = Terminal()
    with Progress(terminal).of("queue", 0, lambda: 0):
        terminal.drawn.wait()
    assert "0 of 0 [....." in terminal.getvalue()
