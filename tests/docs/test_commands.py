"""Every `interlock …` command that alerts and pages name exists."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

import pytest

from interlock.cli import parser
from interlock.metrics import shipped
from tests.docs.running import ROOT

NAMED = re.compile(r"`interlock ([a-z][^`]*)`")
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"])
TEXTS = {"alerts": shipped.rules()} | {
    str(page.relative_to(ROOT)): page.read_text("utf-8") for page in PAGES
}


def subcommands(command: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def unknown(text: str) -> Iterator[str]:
    """Yield the commands in backquotes that do not exist, as `queue dead`."""
    for named in NAMED.findall(text):
        command = parser()
        for word in named.split():
            choices = subcommands(command)
            if not choices or not re.fullmatch(r"[a-z][a-z-]*", word):
                break
            if word not in choices:
                yield f"interlock {named}"
                break
            command = choices[word]


@pytest.mark.parametrize("where", TEXTS)
def test_documented_commands_exist(where: str) -> None:
    assert not list(unknown(TEXTS[where]))


def test_a_documented_command_that_does_not_exist_is_reported() -> None:
    assert list(unknown("see `interlock queue dead`, not `interlock queue roots mail`")) == [
        "interlock queue dead"
    ]
