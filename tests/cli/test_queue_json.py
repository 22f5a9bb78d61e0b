"""The names of --json: the output matches the reference."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from interlock.client.faces.queue import RemoteQueue
from interlock.retry import Retry
from tests.cli.conftest import Command
from tests.docs.running import ROOT

PAGE = (ROOT / "docs" / "reference" / "queue-cli.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## Output of --json")[2].partition("\n## ")[0]


LISTS = ("nodes", "blocked", "blocks", "limits", "turn", "parked")
"""Objects within an object; `parked` of statistics is a number."""


def names(of: str) -> set[str]:
    """The names that the reference lists for a subcommand."""
    for row in re.findall(r"^\| (.*?) \| .*? \| (.*) \|$", SECTION, re.MULTILINE):
        if f"`{of}`" in row[0]:
            return set(re.findall(r"`(\w+)`", row[1])) - {"il1_stats"}
    raise AssertionError(f"no row of the reference describes {of}")


def all_names(value: object) -> set[str]:
    """The names of an object and of those in its lists."""
    if isinstance(value, list):
        return set().union(*map(all_names, value)) if value else set()
    if not isinstance(value, dict):
        return set()
    return set(value).union(*(all_names(value.get(name)) for name in LISTS))


@pytest.fixture
def filled(queue: RemoteQueue[bytes]) -> dict[str, int]:
    """A queue with a message in each state, and a dead letter."""
    ids = {
        "held": queue.put(b'{"json": 1}', keys="h", retry=Retry(attempts=1, then="hold")),
        "dead": queue.put(b'{"json": 1}', keys="d"),
    }
    for lease in queue.get_many(2):
        if lease.id == ids["held"]:
            lease.nack()
        else:
            lease.reject("bad")
    ids["first"] = queue.put(b'{"json": 1}', keys="k")
    queue.put(b'{"json": 1}', keys="k")
    ids["behind"] = queue.put(b'{"json": 1}', keys="h")
    return ids


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("hot", []),
        ("peek", ["first"]),
        ("watch", ["--count", "1"]),
        ("revoke", ["first", "--yes"]),
        ("retry", ["held"]),
        ("skip", ["held", "--yes"]),
        ("bury", ["held", "--yes"]),
        ("cancel", ["first", "--yes"]),
        ("discard", ["dead", "--yes"]),
        ("pause", []),
        ("resume", ["--key", "k"]),
        ("seal", []),
        ("reopen", []),
        ("dead-letters", []),
        ("requeue", ["dead"]),
        ("purge", ["--yes"]),
        ("drop", ["--force", "--yes"]),
        ("barrier", ["--wait", "0.01"]),
    ],
)
def test_json_output_matches_the_reference(
    cli: Command, queue: RemoteQueue[bytes], filled: dict[str, int], name: str, words: list[str]
) -> None:
    said = cli(name, queue.name, *(filled.get(word, word) for word in words), "--json")
    found = json.loads(said.out.splitlines()[0])
    assert all_names(found) == names(name)


def test_the_json_of_explain_matches_the_reference(
    cli: Command, queue: RemoteQueue[bytes], filled: dict[str, int]
) -> None:
    waits = [
        filled["behind"],
        queue.put(b"", keys="h", behind="park"),
        queue.put(b"", limit="bank"),
        queue.put(b"", group="acme"),
    ]
    queue.configure(limits={"bank": 1})
    queue.pause("k")
    lease = queue.get()
    second = queue.put(b"", limit="bank")
    found = [cli("explain", queue.name, id, "--json").json for id in (*waits, second)]
    assert set().union(*map(all_names, found)) == names("explain")
    lease.ack()


@pytest.mark.parametrize("name", ["list", "stats"])
def test_json_counts_have_the_names_of_the_wire(
    cli: Command, queue: RemoteQueue[bytes], filled: dict[str, int], name: str
) -> None:
    wire = (ROOT / "docs" / "reference" / "engine-wire.md").read_text(encoding="utf-8")
    told = wire.partition("<!-- wire:figures -->")[2].partition("<!-- /wire -->")[0]
    said = cli(name, *(() if name == "list" else (queue.name,)), "--json")
    counts = json.loads(said.out.splitlines()[0]).keys() - {"queue"}
    assert counts == set(re.findall(r"^\| `(\w+)`", told, re.MULTILINE))


def test_the_json_of_import_matches_the_reference(
    cli: Command, queue: RemoteQueue[bytes], tmp_path: Path
) -> None:
    queue.put(b"a")
    file = tmp_path / "queue.jsonl"
    file.write_text(cli("export", queue.name, "--move").out)
    said = cli("import", f"{queue.name}-new", "--file", file, "--json")
    assert set(said.json) == names("import")
