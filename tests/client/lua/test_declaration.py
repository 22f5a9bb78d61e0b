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


def test_record_numbers_are_unique(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (ROOT / "wire").glob("*.toml"):
        text = path.read_text(encoding="utf-8").replace("record = 16\n", "record = 19\n")
        (tmp_path / path.name).write_text(text, encoding="utf-8")
    monkeypatch.setattr("scripts.wire.declaration.FOLDER", tmp_path)
    with pytest.raises(Invalid, match="a number of its own"):
        read()
