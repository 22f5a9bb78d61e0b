"""`interlock queue explain`: the tree, and commands that do what they say."""

from __future__ import annotations

import asyncio
import json
import shlex

import pytest

from interlock import App, connect
from interlock.cli import main
from interlock.client.faces.queue import RemoteQueue
from interlock.errors import LeaseLost
from interlock.retry import Retry
from tests.cli.conftest import Command


def freeing(said: str) -> list[str]:
    return [
        line.partition("to unblock it: ")[2] for line in said.splitlines() if "to unblock" in line
    ]


def test_explain_prints_the_chain_and_the_command_that_unblocks_it(
    cli: Command, queue: RemoteQueue[bytes]
) -> None:
    ship = queue.put(b"ship", keys="order:7")
    bill = queue.put(b"bill", keys=["order:7", "customer:2"])
    mail = queue.put(b"mail", keys="customer:2")
    lease = queue.get()
    said = cli("explain", queue.name, mail, "--stuck", 1e-6).out
    first, second, third, blocks, fourth = said.splitlines()
    assert blocks.strip() == "blocks 2 messages"
    assert first.startswith(f"message {mail} waiting, age ")
    assert second.startswith(f"└─ key customer:2, 1 ahead: message {bill} waiting")
    assert third.startswith(f"   └─ key order:7, 1 ahead: message {ship} leased, by ")
    assert "lease left" in third
    (command,) = freeing(fourth)
    assert command == f"interlock queue revoke {queue.name} {ship} --url {cli.url}"
    assert main([*shlex.split(command)[1:], "--yes"]) == 0
    with pytest.raises(LeaseLost):
        lease.ack()


def test_explain_as_json_has_the_same_content(cli: Command, queue: RemoteQueue[bytes]) -> None:
    ship, bill = queue.put(b"ship", keys="o"), queue.put(b"bill", keys="o")
    told = cli("explain", queue.name, bill, "--json").json
    assert [node["id"] for node in told["nodes"]] == [bill, ship]
    assert told["nodes"][0]["blocked"] == [
        {"key": "o", "ahead": 1, "exact": True, "holders": [ship]}
    ]
    assert told["truncated"] is False


def test_explain_prints_how_to_resume_a_pause_and_retry_a_held_message(
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


def test_a_chain_is_cut_at_the_limit(cli: Command, queue: RemoteQueue[bytes]) -> None:
    for number in range(5):
        last = queue.put(b"", keys=[str(number), str(number + 1)])
    assert "cut here" in cli("explain", queue.name, last, "--limit", 2).out
    assert "cut here" not in cli("explain", queue.name, last).out


def test_explain_of_a_dead_letter_prints_its_error_and_how_to_requeue_it(
    cli: Command, queue: RemoteQueue[bytes]
) -> None:
    queue.put(b"payload", keys="k")
    lease = queue.get()
    lease.reject("no such account")
    for name in ("explain", "peek"):
        said = cli(name, queue.name, lease.id)
        assert (said.code, said.err) == (0, ""), name
        (first,) = [line for line in said.out.splitlines() if str(lease.id) in line][:1]
        assert "dead letter since 20" in first and "after 1 attempt" in first
        assert "no such account" in said.out
        told = cli(name, queue.name, lease.id, "--json").json
        node = told["nodes"][0] if name == "explain" else told
        assert (node["state"], node["error"]) == ("dead", "no such account")
        assert node["died"] > 1.7e9
    (command,) = [line for line in said.out.splitlines() if "requeue" in line]
    assert main(shlex.split(command.partition("to requeue it: ")[2])[1:]) == 0
    assert queue.stats().ready == 1


def test_client_explain_reports_that_a_message_is_a_dead_letter(
    queue: RemoteQueue[bytes],
) -> None:
    queue.put(b"payload")
    lease = queue.get()
    lease.reject("no such account")
    with pytest.raises(KeyError, match=rf"is a dead letter .*no such account.*requeue\({lease.id}"):
        queue.explain(lease.id)
    with pytest.raises(KeyError, match=rf"is a dead letter .*no such account.*requeue\({lease.id}"):
        asyncio.run(queue.aio.explain(lease.id))
    with pytest.raises(KeyError, match="is settled, or was never put"):
        queue.explain(7)


def test_the_task_of_each_message_is_named(
    cli: Command, url: str, queue: RemoteQueue[bytes]
) -> None:
    app = App(url)

    @app.task(keys="account:{number}", queue=queue.name)
    def charge(number: int) -> None: ...

    first, second = charge.send(7), charge.send(7)
    lease = queue.get()
    said = cli("explain", queue.name, second.id).out.splitlines()
    assert said[0].startswith(f"message {second.id} (charge) waiting")
    assert f"message {first.id} (charge) leased" in said[1]
    assert cli("explain", queue.name, second.id, "--json").json["nodes"][0]["task"] == "charge"
    lease.ack()
    app.close()


def test_roots_are_the_messages_that_wait_for_no_other(
    cli: Command, queue: RemoteQueue[bytes]
) -> None:
    queue.put(b"leased", keys="a")
    lease = queue.get()
    held = queue.put(b"held", keys="b", retry=Retry(attempts=1, then="hold"))
    queue.get(kind="keyed").nack()
    for _ in range(50):
        chained = queue.put(b"chain", keys=["a", "b"])
    queue.pause("c")
    last = queue.put(b"all", keys=["a", "b", "c"])
    assert len(cli("explain", queue.name, last).out.splitlines()) > 5
    said = cli("explain", queue.name, last, "--roots").out.splitlines()
    assert said[0].startswith(f"message {last} waiting, paused: c")
    assert "2 at the root" in "\n".join(said)
    assert not any(str(chained) in line for line in said)
    assert [words for line in said if "to unblock it" in line for words in [line.split()[5]]] == [
        "resume",
        "retry",
        "skip",
        "bury",
    ]
    told = cli("explain", queue.name, last, "--roots", "--json").json
    assert [node["state"] for node in told["nodes"]] == ["waiting", "leased", "held"]
    assert told["nodes"][2]["id"] == held
    lease.ack()


def test_explain_proposes_revoke_only_for_long_running_handlers(
    cli: Command, queue: RemoteQueue[bytes]
) -> None:
    id = queue.put(b"payload", keys="k")
    lease = queue.get()
    assert freeing(cli("explain", queue.name, id).out) == []
    (command,) = freeing(cli("explain", queue.name, id, "--stuck", 1e-6).out)
    assert command.startswith("interlock queue revoke")
    lease.ack()


def test_the_highest_limit_is_that_of_the_wire(cli: Command, queue: RemoteQueue[bytes]) -> None:
    id = queue.put(b"payload", keys="k")
    assert cli("explain", queue.name, id, "--limit", 1000).code == 0
    assert "allowed: 1 to 1000" in cli("explain", queue.name, id, "--limit", 1001).err
    assert queue.explain(id, limit=5000).nodes[0].id == id


def test_a_key_that_is_not_utf_8_is_looked_up_as_typed(
    cli: Command, queue: RemoteQueue[bytes]
) -> None:
    id = queue.put(b"payload", keys=b"\xff")
    assert str(id) in cli("explain", queue.name, "--key", "\udcff").out
    assert str(id) in cli("peek", queue.name, "--key", "\udcff").out


def test_explain_reports_a_ready_message_that_no_worker_serves(
    cli: Command, queue: RemoteQueue[bytes]
) -> None:
    id = queue.put(b"ready")
    said = cli("explain", queue.name, id).out
    if cli.url.startswith("memory:"):
        # There workers do not announce themselves.
        assert "no worker takes" not in said
        return
    assert f"no worker takes from {queue.name}" in said
    assert f"interlock worker MODULE:APP --queues {queue.name}" in said
    with connect(cli.url) as client:
        other = client.queue("another", bytes)
        other.put(b"x")
        other._announce("host:1", 60, json.dumps({"queues": ["another"]}))
        assert "no worker takes" in cli("explain", queue.name, id).out
        # A worker announces itself at the first of its queues alone.
        other._announce("host:2", 60, json.dumps({"queues": ["another", queue.name]}))
        assert "no worker takes" not in cli("explain", queue.name, id).out
        other._announce("host:2", 0, "{}")
    lease, second = queue.get(), queue.put(b"second")
    assert "no worker takes" not in cli("explain", queue.name, second).out
    lease.ack()


def test_explain_as_json_names_the_full_limit_and_the_messages_that_have_its_slots(
    cli: Command, queue: RemoteQueue[bytes]
) -> None:
    first, second = (queue.put(b"", limit="bank") for _ in range(2))
    queue.configure(limits={"bank": 1})
    lease = queue.get()
    told = cli("explain", queue.name, second, "--json").json
    (limit,) = told["nodes"][0]["limits"]
    assert limit == {
        "name": "bank",
        "most": 1,
        "leased": 1,
        "keeper": None,
        "next_in": None,
        "holders": [first],
    }
    assert told["nodes"][0]["parked"] is told["nodes"][0]["turn"] is None
    # The holder of the slot is the root, and not the message that waits for it.
    said = cli("explain", queue.name, second, "--roots").out.splitlines()
    assert said[1] == "waits for 1 at the root:"
    assert said[2].startswith(f"   message {first} leased, by ")
    roots = cli("explain", queue.name, second, "--roots", "--json").json["nodes"]
    assert [node["id"] for node in roots] == [second, first]
    lease.ack()


def test_explain_as_json_says_where_a_message_is_parked_and_whose_turn_it_is(
    cli: Command, queue: RemoteQueue[bytes]
) -> None:
    held = queue.put(b"", keys="a", retry=Retry(attempts=1, then="hold"))
    queue.get().nack()
    parked = queue.put(b"", keys=["a", "b"], behind="park")
    told = cli("explain", queue.name, parked, "--json").json
    assert [node["id"] for node in told["nodes"]] == [parked, held]
    found = told["nodes"][0]["parked"]
    assert found.pop("since") >= 0
    assert found == {"key": "a", "times": 1, "ahead": 0, "paused": False, "behind": [held]}
    assert cli("explain", queue.name, parked, "--roots").out.splitlines()[1] == (
        "waits for 1 at the root:"
    )
    grouped = queue.put(b"", group="acme")
    turn = cli("explain", queue.name, grouped, "--json").json["nodes"][0]["turn"]
    assert turn == {"group": "acme", "ready": 1, "ahead": 0}


def test_explain_of_a_message_parked_under_a_paused_key_names_the_command_that_resumes_it(
    cli: Command, queue: RemoteQueue[bytes]
) -> None:
    queue.pause("a")
    parked = queue.put(b"", keys=["a", "b"], behind="park")
    (command,) = freeing(cli("explain", queue.name, parked).out)
    assert shlex.split(command)[:6] == ["interlock", "queue", "resume", queue.name, "--key", "a"]
    assert main(shlex.split(command)[1:]) == 0
    assert queue.stats().parked == 0
