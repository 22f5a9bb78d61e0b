"""`interlock queue explain`: the tree, and commands that do what they say."""

from __future__ import annotations

import shlex

import pytest

from interlock.cli import main
from interlock.engine.queue import RemoteQueue
from interlock.errors import LeaseLost
from interlock.retry import Retry
from tests.cli.conftest import Command


def freeing(said: str) -> list[str]:
    return [line.partition("to free it: ")[2] for line in said.splitlines() if "to free" in line]


def test_explain_draws_the_chain_and_the_command_that_frees_it(
    cli: Command, queue: RemoteQueue[bytes]
) -> None:
    ship = queue.put(b"ship", keys="order:7")
    bill = queue.put(b"bill", keys=["order:7", "customer:2"])
    mail = queue.put(b"mail", keys="customer:2")
    lease = queue.get()
    said = cli("explain", queue.name, mail).out
    first, second, third, fourth = said.splitlines()
    assert first.startswith(f"message {mail} waiting, age ")
    assert second.startswith(f"└─ key customer:2, 1 ahead: message {bill} waiting")
    assert third.startswith(f"   └─ key order:7, 1 ahead: message {ship} leased, by ")
    assert "lease left" in third
    (command,) = freeing(fourth)
    assert command == f"interlock queue revoke {queue.name} {ship} --url {cli.url}"
    assert main([*shlex.split(command)[1:], "--yes"]) == 0
    with pytest.raises(LeaseLost):
        lease.ack()


def test_explain_as_json_tells_the_same(cli: Command, queue: RemoteQueue[bytes]) -> None:
    ship, bill = queue.put(b"ship", keys="o"), queue.put(b"bill", keys="o")
    told = cli("explain", queue.name, bill, "--json").json
    assert [node["id"] for node in told["nodes"]] == [bill, ship]
    assert told["nodes"][0]["blocked"] == [
        {"key": "o", "ahead": 1, "exact": True, "holders": [ship]}
    ]
    assert told["truncated"] is False


def test_a_paused_key_a_paused_queue_and_a_held_message_can_be_freed(
    cli: Command, queue: RemoteQueue[bytes]
) -> None:
    paused = queue.put(b"a", keys="it's")
    queue.pause("it's")
    (command,) = freeing(cli("explain", queue.name, paused).out)
    assert main(shlex.split(command)[1:]) == 0
    assert queue.stats().ready == 1
    queue.pause()
    (command,) = freeing(cli("explain", queue.name, paused).out)
    assert shlex.split(command)[:4] == ["interlock", "queue", "resume", queue.name]
    assert main(shlex.split(command)[1:]) == 0
    queue.cancel(paused)
    held = queue.put(b"b", keys="k", retry=Retry(attempts=1, then="hold"))
    queue.get().nack()
    words = [shlex.split(one)[2] for one in freeing(cli("explain", queue.name, held).out)]
    assert words == ["retry", "skip", "bury"]


def test_explain_a_key(cli: Command, queue: RemoteQueue[bytes]) -> None:
    first, second = queue.put(b"a", keys="k"), queue.put(b"b", keys="k")
    said = cli("explain", queue.name, "--key", "k", "--json").json
    assert [node["id"] for node in said["nodes"]] == [first, second]
    gone = cli("explain", queue.name, "--key", "other")
    assert gone.code == 1
    assert "nothing on key 'other' is waiting" in gone.err


def test_a_chain_is_cut_where_the_limit_is(cli: Command, queue: RemoteQueue[bytes]) -> None:
    for number in range(5):
        last = queue.put(b"", keys=[str(number), str(number + 1)])
    assert "cut here" in cli("explain", queue.name, last, "--limit", 2).out
    assert "cut here" not in cli("explain", queue.name, last).out
