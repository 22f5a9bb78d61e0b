"""The declaration of the wire, in wire/, and what says the same in other words."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from interlock import KeyedQueue, Retry
from interlock.client.lua import library
from interlock.client.wire import functions as declared
from scripts.wire.declaration import ROOT, Invalid, Option
from scripts.wire.declaration import declared as read
from tests.engine.naive.model import WIRE

OF_A_PROCESS = [option for option in WIRE.queue if option.python and option.name != "DURABILITY"]


def in_python(option: Option) -> object:
    """The default of an option in the units of Python."""
    if option.words:
        return option.default
    if option.default == "":
        return None
    assert isinstance(option.default, int)
    scale = 1e6 if option.micros else 1000 if option.name == "FACTOR" else 1
    return bool(option.default) if option.type == "bool" else option.default / scale


@pytest.mark.parametrize("option", OF_A_PROCESS, ids=lambda option: option.name)
def test_a_queue_in_one_process_has_the_same_defaults(option: Option) -> None:
    made = inspect.signature(Retry if option.policy else KeyedQueue)
    assert made.parameters[option.python].default == in_python(option)


def test_each_function_of_redis_has_a_file() -> None:
    files = Path(library.__file__).with_name("functions")
    assert {path.stem for path in files.rglob("*.lua")} == set(declared.FUNCTIONS)


@pytest.mark.parametrize(
    ("text", "changed", "said"),
    [
        ("record = 16\n", "record = 19\n", "a number of its own"),
        ('"dead_expired", "full",', '"dead_expired",', "reply and the entries differ in {'full'}"),
        ('"dead_due", "dead_mark"', '"dead_due", "dead_due"', "stored has a counter twice"),
        ("metric.help", "metric.helps", "metric has help"),
    ],
)
def test_an_entry_that_contradicts_another_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, changed: str, said: str
) -> None:
    for path in (ROOT / "wire").glob("*.toml"):
        entries = path.read_text(encoding="utf-8").replace(text, changed)
        (tmp_path / path.name).write_text(entries, encoding="utf-8")
    monkeypatch.setattr("scripts.wire.declaration.FOLDER", tmp_path)
    with pytest.raises(Invalid, match=said):
        read()


def test_figures_keep_their_places() -> None:
    """Clients of the wire read the reply, and each release reads what an older one has stored."""
    reply = [figure.name for figure in WIRE.figures]
    assert (reply[0], reply[21], reply[30]) == ("unsettled", "lanes", "full")
    places = WIRE.stored.index
    assert (places("seq"), places("rare"), places("dead_mark")) == (0, 21, 60)
