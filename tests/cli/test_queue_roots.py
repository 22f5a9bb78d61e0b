"""`interlock queue roots`: what holds messages up, and commands that do what they say."""

from __future__ import annotations

import shlex

from interlock.cli import main
from interlock.client.faces.queue import RemoteQueue
from interlock.retry import Retry
from interlock.roots import Roots
from tests.cli.conftest import Command

HOLD = Retry(attempts=1, then="hold")


def freeing(said: str) -> list[str]:
    return [
        line.partition("to unblock them: ")[2] for line in said.splitlines() if "unblock" in line
    ]


def stalled(queue: RemoteQueue[bytes]) -> int:
    """Hold a message that two others wait for, one of them through the other."""
    held = queue.put(b"ship", keys="order:7", retry=HOLD)
    queue.get().nack(error="502")
    queue.put(b"bill", keys=["order:7", "customer:2"])
    queue.put(b"mail", keys="customer:2")
    return held


def test_roots_prints_blocking_messages_and_the_commands_that_unblock_them(
    cli: Command, queue: RemoteQueue[bytes]
) -> None:
    held = stalled(queue)
    said = cli("roots", queue.name).out
    first, second, *_ = said.splitlines()
    assert first == "Stalled: 2 messages blocked by 1 held message"
    assert second == f"   2 blocked by held message {held} (order:7)"
    commands = freeing(said)
    assert [shlex.split(one)[2] for one in commands] == ["retry", "skip", "bury"]
    assert main([*shlex.split(commands[1])[1:], "--yes"]) == 0
    assert queue.stats().ready == 1
    assert cli("roots", queue.name).out == f"nothing in {queue.name} is blocked\n"


def test_a_pause_and_a_running_handler_are_roots_too(
    cli: Command, queue: RemoteQueue[bytes]
) -> None:
    leased = queue.put(b"ship", keys="order:7")
    lease = queue.get()
    queue.put(b"bill", keys="order:7")
    queue.pause("it's")
    queue.put(b"mail", keys="it's")
    assert "message" not in cli("roots", queue.name).out.splitlines()[1], "it has just begun"
    said = cli("roots", queue.name, "--slow-wait", 1e-6).out
    assert said.startswith("Stalled: 2 messages blocked by ")
    commands = sorted(freeing(said))
    assert [shlex.split(one)[2] for one in commands] == ["resume", "revoke"]
    assert str(leased) in commands[1]
    assert main(shlex.split(commands[0])[1:]) == 0
    assert queue.stats().ready == 1
    lease.ack()


def test_roots_as_json_has_the_same_content(cli: Command, queue: RemoteQueue[bytes]) -> None:
    held = stalled(queue)
    told = cli("roots", queue.name, "--json").json
    assert (told["queue"], told["blocked"], told["exact"]) == (queue.name, 2, True)
    (root,) = told["roots"]
    assert (root["kind"], root["id"], root["key"], root["depth"]) == ("held", held, "order:7", 1)
    assert len(root["freeing"]) == 3


def test_stats_and_explain_say_that_messages_are_blocked(
    cli: Command, queue: RemoteQueue[bytes]
) -> None:
    held = stalled(queue)
    said = cli("stats", queue.name).out
    assert "Stalled: 2 messages blocked by 1 held message; interlock queue roots" in said
    assert "oldest ready          none" in said and "oldest waiting        none" not in said
    told = cli("stats", queue.name, "--json").json
    assert 0 < told["oldest_waiting"] < 60 and told["oldest_ready"] == 0
    assert "blocks 2 messages" in cli("explain", queue.name, held).out
    (node,) = cli("explain", queue.name, held, "--json").json["nodes"]
    assert node["blocks"] == {"messages": 2, "exact": True} and len(node["freeing"]) == 3
    waits = cli("explain", "--key", "order:7", queue.name, "--json").json["nodes"]
    assert {one["blocks"] is None for one in waits if one["id"] != held} <= {True}


def test_roots_cut_by_its_limit_does_not_claim_that_nothing_is_blocked() -> None:
    assert str(Roots((), 0, True)) == "nothing is blocked"
    assert "the search was cut short" in str(Roots((), 0, False))
