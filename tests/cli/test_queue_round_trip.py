"""A queue that is carried from one engine to another, and on."""

from __future__ import annotations

import random
import uuid
from pathlib import Path
from typing import Any

import pytest

from interlock.engine.client import connect
from interlock.engine.queue import RemoteQueue
from interlock.errors import LeaseLost
from interlock.retry import Retry
from tests.cli.conftest import Command

CHAINS = [("memory", "redis", "hub"), ("hub", "redis"), ("redis", "hub", "memory")]
# What a put gives anew, or cannot say.
OWN = {"id", "sequence", "time", "due", "error", "state", "dead", "attempts", "attempt"}


def fill(queue: RemoteQueue[bytes], seed: int) -> None:
    """Messages of every kind, a held one and dead letters among them."""
    choose = random.Random(seed)
    for number in range(3):
        queue.put(b"dead %d" % number, keys=["d", bytes([200 + number])])
        queue.get().reject(f"bad {number}")
    held = queue.put(b"held", keys="h")
    lease = queue.get()
    queue.revoke(held, "hold")
    with pytest.raises(LeaseLost):
        lease.ack()
    for number in range(60):
        keys = choose.sample("abcde", choose.randrange(4))
        queue.put(
            choose.randbytes(choose.randrange(40)) + b"%d" % number,
            keys=keys[1:],
            shared=keys[:1],
            priority=choose.randrange(-100, 101),
            delay=choose.choice([0, 0, 0, 600]),
            dedup=choose.choice([None, f"d{number}"]),
            retry=choose.choice([None, Retry(attempts=None, first=0.5, then="hold")]),
            result_ttl=choose.choice([0, 60]),
        )
    queue.put(b"alone", barrier=True)
    queue.put(b"behind", keys="a")


def carried(lines: list[dict[str, Any]], source: str) -> list[dict[str, Any]]:
    """What must be the same everywhere. A message of its own dedup keeps it; another has the one
    that it was first imported with."""
    found = []
    for line in lines[1:]:
        one = {name: value for name, value in line.items() if name not in OWN}
        options = dict(one.get("options", {}))
        if str(options.get("dedup", "")).startswith(f"import/{source}/"):
            del options["dedup"], options["window"]
        if line.get("state") == "held" or line.get("payload") == "held":
            options = {"then": "hold"}
        if options:
            one["options"] = options
        else:
            one.pop("options", None)
        found.append(one)
    return found


@pytest.mark.parametrize("chain", CHAINS, ids="-".join)
@pytest.mark.parametrize("seed", range(3))
def test_all_of_it_arrives_in_order(
    chain: tuple[str, ...],
    seed: int,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    urls = [request.getfixturevalue(f"{name}_url") for name in chain]
    name = f"q{uuid.uuid4().hex}"
    first = Command(urls[0], capsys)
    with connect(urls[0]) as client:
        fill(client.queue(name, bytes), seed)
    said = first("export", name, "--move")
    assert said.code == 0, said.err
    start = carried(said.lines, name)
    for at, url in enumerate(urls[1:], start=1):
        file = tmp_path / f"{at}.jsonl"
        file.write_text(said.out, encoding="utf-8")
        there = Command(url, capsys)
        # The last of a chain may be where the first was.
        imported = there("import", f"{name}-{at}", "--file", file)
        assert imported.code == 0, imported.err
        said = there("export", f"{name}-{at}", "--move")
        assert said.code == 0, said.err
        assert carried(said.lines, name) == start
    delayed = [line for line in said.lines if line.get("state") == "delayed"]
    assert delayed
    assert all(line["due"] > line["id"] + 500_000_000 for line in delayed)
