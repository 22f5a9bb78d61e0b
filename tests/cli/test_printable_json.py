"""JSON that commands print: a terminal finds nothing to obey in it, and it means the same."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import interlock.cli
from interlock.explanation import printable_json


@pytest.mark.parametrize(
    "value",
    [
        {"payload": "\x1b[31m\x9b31m\x85\x7f\u202e\u2066\ufeff é 😀"},
        ["\ud800", "\U000e0001", "a\nb"],
        {"key \u202e": 1},
        "plain",
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_json_output_has_no_control_or_bidirectional_characters(
    value: object, indent: int | None
) -> None:
    text = printable_json(value, indent=indent)
    assert text.replace("\n", "").isprintable() and json.loads(text) == value
    assert printable_json(value, ascii=True, indent=indent).isascii()


def test_json_output_keeps_printable_characters() -> None:
    assert printable_json({"name": "Zoë 😀"}) == '{"name": "Zoë 😀"}'


def test_no_command_prints_json_with_raw_characters() -> None:
    raw = re.compile(r"ensure_ascii=(?!True)")
    folder = Path(interlock.cli.__file__).parent
    found = [path for path in folder.rglob("*.py") if raw.search(path.read_text("utf-8"))]
    # That one puts the text through `printable`.
    assert {path.name for path in found} <= {"show.py"}
