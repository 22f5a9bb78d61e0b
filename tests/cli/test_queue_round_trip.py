"""A queue that is carried from one engine to another: what is exported there is the same."""

from __future__ import annotations

import random
import uuid
from pathlib import Path
from typing import Any

import pytest

from interlock import Rate
from interlock.client.admin.operator import Operator
from interlock.client.admin.server import Server
from interlock.client.faces.client import connect
from interlock.client.faces.queue import RemoteQueue
from interlock.errors import Empty
from interlock.retry import Retry
from tests.cli.conftest import Command

CHAINS = [("memory", "redis", "hub"), ("hub", "redis"), ("redis", "hub", "memory")]
KEYS = "abcde"


def fill(queue: RemoteQueue[bytes], seed: int) -> None:
    """Messages in every state, as random handlers and operators leave them."""
    choose = random.Random(seed)
    for number in range(60):
        keys = choose.sample(KEYS, choose.randrange(4))
        cut = choose.randrange(len(keys) + 1)
        barrier = choose.random() < 0.05
        queue.put(
            choose.randbytes(choose.choice([0, 9, 1500])) + b"%d" % number,
            keys=[] if barrier else keys[cut:],
            shared=[] if barrier else keys[:cut],
            barrier=barrier,
            priority=choose.choice([0, 0, choose.randrange(-100, 101)]),
            delay=choose.choice([0, 0, 0, 600]),
            dedup=choose.choice([None, f"d{number}"]),
            retry=choose.choice([None, Retry(attempts=None, first=0.5, then="hold")]),
            result_ttl=choose.choice([0, 60]),
            limit=choose.choice([None, "bank", ["tenant:7", "bank"]]),
        )
        handle(queue, choose)
    if choose.random() < 0.5:
        for key in choose.sample(KEYS, 2):
            queue.pause(key)


def handle(queue: RemoteQueue[bytes], choose: random.Random) -> None:
    """Lease one message or none, and end the lease in one of the ways there are."""
    for _ in range(choose.randrange(2)):
        try:
            lease = queue.get(block=False)
        except Empty:
            return
        what = choose.randrange(6)
        if what == 0:
            lease.ack()
        elif what == 1:
            lease.reject(f"bad {choose.randrange(9)}")
        elif what == 2:
            lease.nack(0, error="once more")
        elif what == 3:
            lease.nack(600, error="später")
        elif what == 4:
            lease.stop_renewing()
            queue.revoke(lease.id, "hold")
        else:
            lease.release()


def carried(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Parts that must be the same everywhere: all but ids, and places, whose order is that of the
    lines. Counters and durability are not transferred."""
    head, *rest = lines
    options = {name: value for name, value in head["options"].items() if name != "durability"}
    found: list[dict[str, Any]] = [{"options": options, "paused": head["paused"]}]
    for line in rest:
        one = {name: value for name, value in line.items() if name not in ("id", "sequence")}
        if "dead" in one and "end" not in one:
            one["dead"] = True
        found.append(one)
    return found


@pytest.mark.parametrize("chain", CHAINS, ids="-".join)
@pytest.mark.parametrize("seed", range(4))
def test_a_queue_imported_elsewhere_exports_the_same(
    chain: tuple[str, ...],
    seed: int,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    urls = [request.getfixturevalue(f"{name}_url") for name in chain]
    name = f"q{uuid.uuid4().hex}"
    first = Command(urls[0], capsys)
    limits = {"bank": 60, "tenant:*": Rate(1_000, burst=100)}
    declared: dict[str, Any] = {"limits": limits, "maxdead": 500, "retry": Retry(attempts=7)}
    with connect(urls[0]) as client:
        if seed % 2:
            # A client in another language may use names that are not UTF-8.
            Operator(Server(client)).configure(name, {"LIMITS": "bank=60\x1ft\udcff=3"})
            declared = {}
        fill(client.queue(name, bytes, **declared), seed)
    said = first("export", name, "--move")
    assert said.code == 0, said.err
    start = carried(said.lines)
    for at, url in enumerate(urls[1:], start=1):
        file = tmp_path / f"{at}.jsonl"
        file.write_text(said.out, encoding="utf-8")
        there = Command(url, capsys)
        # The last of a chain may be where the first was.
        for _ in range(2):
            imported = there("import", f"{name}-{at}", "--file", file)
            assert imported.code == 0, imported.err
        said = there("export", f"{name}-{at}", "--move")
        assert said.code == 0, said.err
        assert carried(said.lines) == start
    assert start[0]["options"]["limits"].startswith("bank=60\x1ft")
    assert {line["state"] for line in start[1:] if "state" in line} >= {"delayed", "waiting"}
