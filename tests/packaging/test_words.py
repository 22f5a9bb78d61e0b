"""The checks of words: private names, phrases of translated English, openings of comments."""

import argparse
import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from interlock.app.job import JobState
from interlock.cli import parser
from interlock.client.wire import messages as wire
from interlock.metrics.families import OUTCOMES, WORKER_FAMILIES
from interlock.runtime.queue_figures import QUEUE_FAMILIES
from interlock.worker.harness.worker import TestWorker as Harness
from scripts.completions import actions
from scripts.openings import REFUSED_IN_COMMENTS, of_comments
from scripts.words import ROOT, names, phrases, refused

RETIRED = {"done": "acked", "oldest": "oldest_ready or oldest_waiting", "deleted": "cancelled"}
"""Retired words and their replacements, as in docs/glossary.md under "One word each"."""


@pytest.mark.parametrize(
    "name", ["seat", "SEATS", "take_seat", "SeatTaken", "takeSeats", "TCPSeat", "_seat2"]
)
def test_a_word_is_found_in_an_identifier(name: str) -> None:
    assert set(refused(name)) == {"seat"}


@pytest.mark.parametrize("name", ["seating", "overflow", "timekeeper", "faraway", "bookkeeper"])
def test_a_part_of_a_word_is_accepted(name: str) -> None:
    assert not set(refused(name))


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("a.py", '"""A seat."""\nx = "seat"  # seat\ntaken = y'),
        ("b.rs", 'let s = "a \\" seat"; /* seat */ // seat\nlet taken = r#"seat"#;'),
        ("c.lua", "--[[ seat\n]] local taken = 'x' -- seat"),
    ],
)
def test_comments_and_strings_are_not_checked_for_names(
    file: str, text: str, tmp_path: Path
) -> None:
    path = tmp_path / file
    path.write_text(text)
    found = list(names(path))
    assert not [name for _, name in found if "seat" in name]
    assert [(line, name) for line, name in found if name == "taken"] == [
        (text.count("\n", 0, text.index("taken")) + 1, "taken")
    ]


@pytest.mark.parametrize(
    ("suffix", "text", "line"),
    [
        (".py", 'x = 1  # it is\n# no timer\ny = "so many s"', 1),
        (".py", '"""A node.\n\nIt goes\non with the next one.\n"""', 3),
        (".rs", 'let a = "{x} is none of a \\\n    kind"; // it comes\n// again', 2),
        (".md", "There is no limit.\nWhoever reads it, is told.", 2),
        (".toml", '# c\ntext = "what becomes of it"', 2),
    ],
)
def test_phrases_are_found_across_lines(suffix: str, text: str, line: int) -> None:
    assert line in [at for at, _, _ in phrases(text, suffix)]


@pytest.mark.parametrize(
    "text",
    ["# there is no timer", "# it is no longer there", "# so many that it is full", "x = whoever"],
)
def test_correct_english_is_accepted(text: str) -> None:
    assert not list(phrases(text, ".py"))


def test_openings_of_comments_are_found() -> None:
    text = "# Of the answer: a number.\n# Who reads it\nx = 1  # What\n#\n# What was read.\n# If\n"
    found = [line for line, words in of_comments(text, "#") if REFUSED_IN_COMMENTS.match(words)]
    assert found == [1, 5]


def json_fields(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for key in node.keys:
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value


def shown_names() -> Iterator[str]:
    """Yield the names that users type or parse for outcomes of messages."""
    yield from get_args(JobState)
    yield from (*wire._ANSWERS.values(), *OUTCOMES)
    yield from (name for name in vars(Harness) if not name.startswith("_"))
    for family in (*WORKER_FAMILIES.values(), *QUEUE_FAMILIES):
        yield family.name.removeprefix("interlock_").removesuffix("_total")
        yield from family.name.removesuffix("_total").split("_")[-1:]
    for action in actions(parser()):
        assert isinstance(action, argparse.Action)
        yield from (flag.lstrip("-") for flag in action.option_strings)
    for path in (ROOT / "src/interlock/cli/queue").rglob("*.py"):
        yield from json_fields(ast.parse(path.read_text(encoding="utf-8")))


def test_refused_words_are_not_used() -> None:
    shown = list(shown_names())
    assert {"acked", "dead", "oldest_waiting", "state"} <= set(shown)
    found = {name: RETIRED[name] for name in shown if name in RETIRED}
    assert not found, f"say {found}"
