"""docs/reference/engine-wire.md names what the library has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from interlock.client.lua import library
from interlock.client.wire import functions as declared
from tests.engine.calls import Queue

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "reference" / "engine-wire.md").read_text(encoding="utf-8")
LUA = Path(library.__file__).parent
SOURCES = "\n".join(path.read_text(encoding="utf-8") for path in sorted(LUA.rglob("*.lua")))


def words(pattern: str) -> list[str]:
    found = sorted(set(re.findall(pattern, SOURCES, re.MULTILINE)))
    assert found
    return found


@pytest.mark.parametrize("name", declared.FUNCTIONS)
def test_every_function_is_on_the_wire_page(name: str) -> None:
    assert f"il1_{name}" in PAGE


OPTIONS = words(r"name = '([A-Z]+)'")
VERBS = words(r"\b([A-Z]+) = true")


@pytest.mark.parametrize("name", [*OPTIONS, *VERBS])
def test_every_option_and_settlement_is_on_the_wire_page(name: str) -> None:
    assert f"`{name}`" in PAGE


@pytest.mark.parametrize("code", [*words(r"refuse\('([A-Z]+)'"), "LEASELOST"])
def test_every_error_is_on_the_wire_page(code: str) -> None:
    assert f"`{code}`" in PAGE


@pytest.mark.parametrize("answer", words(r"'(ACKED|RETRIED|DEAD|HELD|RELEASED)'"))
def test_every_answer_is_on_the_wire_page(answer: str) -> None:
    assert f"`{answer}`" in PAGE


@pytest.mark.parametrize("number", words(r"(?:MAX_\w+|default) = (\d+)\b(?!e)"))
def test_every_limit_and_default_is_on_the_wire_page(number: str) -> None:
    # More than ten digits are written as a power.
    told = rf"\b({number}|{int(number):,})\b"
    assert len(number) > 10 or re.search(told, PAGE)


def test_every_count_is_on_the_wire_page(queue: Queue) -> None:
    for name in queue.stats():
        assert f"`{name}`" in PAGE
