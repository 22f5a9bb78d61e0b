"""`interlock queue import`: the state of exported messages there, and no duplicates."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from interlock.client.faces.client import Client
from interlock.client.faces.queue import RemoteQueue
from interlock.errors import LeaseLost
from interlock.retry import Retry
from tests.cli.conftest import Command, moved


def test_dead_letters_are_imported_into_a_queue_in_use(
    cli: Command, queue: RemoteQueue[bytes], other: RemoteQueue[bytes], file: Path
) -> None:
    queue.put(b"dead", keys="k", retry=Retry(attempts=2, first=0), result_ttl=60)
    for _ in range(2):
        queue.get(timeout=30).nack(0, error="no route")
    queue.put(b"alive")
    moved(cli, queue, file)
    other.put(b"there already", keys="k")
    other.pause("k")
    assert cli("import", other.name, "--file", file, "--json").json["dead"] == 1
    (letter,) = cli("dead-letters", other.name, "--json").lines
    assert (letter["attempts"], letter["error"]) == (2, "no route")
    assert (other.stats().unsettled, other.stats().dead, other.stats().puts) == (2, 1, 2)
    # It is put again with the policy that it had, and with its result.
    other.resume("k")
    cli("requeue", other.name, letter["id"])
    for lease in other.get_many(3):
        if lease.payload != b"dead":
            lease.ack()
    lease = other.get(timeout=30)
    lease.nack(0)
    other.get(timeout=30).nack(0)
    assert other.stats().dead == 1


def test_an_import_keeps_the_errors_of_all_attempts(
    cli: Command, queue: RemoteQueue[bytes], other: RemoteQueue[bytes], file: Path
) -> None:
    ids = [queue.put(payload, keys=payload) for payload in (b"dead", b"alive")]
    for lease in queue.get_many(2):
        lease.nack(0, error="first\n\u00e4 line")
    for lease in queue.get_many(2):
        lease.nack(0, error="second")
    queue.get().reject("third")
    before = [cli("peek", queue.name, id, "--json").json["failures"] for id in ids]
    assert [len(found) for found in before] == [3, 2]
    moved(cli, queue, file)
    cli("import", other.name, "--file", file)
    (letter,) = cli("dead-letters", other.name, "--json").lines
    (alive,) = cli("peek", other.name, "--json").lines
    assert alive["failures"] == before[1]
    assert cli("peek", other.name, letter["id"], "--json").json["failures"] == before[0]


def test_importing_more_dead_letters_than_the_limit_is_refused(
    cli: Command, client: Client, queue: RemoteQueue[bytes], file: Path
) -> None:
    for number in range(3):
        queue.put(b"%d" % number)
        queue.get().reject("bad")
    moved(cli, queue, file)
    few = client.queue(f"{queue.name}-few", bytes, maxdead=2)
    few.stats()
    said = cli("import", few.name, "--file", file)
    assert said.code == 1
    assert "0 dead letters are kept; MAXDEAD is 2" in said.err
    assert cli("import", few.name, "--file", file, "--skip-dead").code == 0


def test_an_import_keeps_attempt_numbers(
    cli: Command, queue: RemoteQueue[bytes], other: RemoteQueue[bytes], file: Path
) -> None:
    queue.put(b"a", retry=Retry(attempts=3, first=0))
    queue.get().nack(0, error="no route")
    moved(cli, queue, file)
    assert cli("import", other.name, "--file", file).code == 0
    assert cli("peek", other.name, "--json").json["error"] == "no route"
    for attempt in (2, 3):
        assert other.stats().dead == 0
        lease = other.get(timeout=30)
        assert lease.attempt == attempt
        lease.nack(0)
    assert other.stats().dead == 1


def test_an_imported_backoff_ends_at_its_original_time(
    cli: Command, queue: RemoteQueue[bytes], other: RemoteQueue[bytes], file: Path
) -> None:
    queue.put(b"a", keys="k")
    queue.get().nack(600)
    lines = moved(cli, queue, file)
    assert cli("import", other.name, "--file", file).code == 0
    there = cli("peek", other.name, "--json").json
    assert (there["state"], there["attempt"]) == ("backing_off", 2)
    assert lines[1]["due"] == moved(cli, other, file)[1]["due"]
    assert other.retry(there["id"])
    other.resume()
    lease = other.get(timeout=30)
    assert lease.attempt == 2
    lease.ack()


def test_a_held_message_is_imported_as_held(
    cli: Command, queue: RemoteQueue[bytes], other: RemoteQueue[bytes], file: Path
) -> None:
    # By an operator: its policy would make it a dead letter after more attempts.
    poison = queue.put(b"poison", keys="k", priority=5)
    queue.put(b"behind", keys="k")
    lease = queue.get()
    assert queue.revoke(poison, "hold")
    with pytest.raises(LeaseLost):
        lease.ack()
    moved(cli, queue, file)
    assert cli("import", other.name, "--file", file).code == 0
    assert (other.stats().held, other.stats().ready) == (1, 0)
    held = cli("peek", other.name, "--state", "held", "--json").json
    assert (held["payload"], held["error"]) == ("poison", "revoked")
    assert other.retry(held["id"])
    # Only once, because it was never ready before.
    (lease,) = other.get_many(10)
    assert (lease.payload, lease.attempt) == (b"poison", 2)
    lease.ack()


def test_a_held_message_behind_others_is_imported_as_waiting_and_reported(
    cli: Command, queue: RemoteQueue[bytes], other: RemoteQueue[bytes], file: Path
) -> None:
    poison = queue.put(b"poison", keys="k")
    lease = queue.get()
    assert queue.revoke(poison, "hold")
    with pytest.raises(LeaseLost):
        lease.ack()
    moved(cli, queue, file)
    other.put(b"there already", keys="k")
    said = cli("import", other.name, "--file", file)
    assert said.code == 0
    assert "1 message placed behind existing ones" in said.err
    assert (other.stats().held, other.stats().waiting) == (0, 1)


def test_paused_keys_and_options_are_imported_before_any_message(
    cli: Command, client: Client, file: Path
) -> None:
    name = f"q{uuid.uuid4().hex}"
    queue = client.queue(name, bytes, maxsize=7, maxdead=5, retry=Retry(attempts=9))
    queue.put(b"a", keys="k")
    queue.pause("k")
    queue.pause("empty")
    lines = moved(cli, queue, file)
    assert lines[0]["paused"] == ["empty", "k"]
    assert cli("import", f"{name}-new", "--file", file).code == 0
    there = client.queue(f"{name}-new", bytes)
    assert there.stats().ready == 0
    again = moved(cli, there, file)
    assert again[0]["paused"] == ["empty", "k"]
    assert again[0]["options"] == lines[0]["options"]


def test_messages_handled_since_an_import_are_not_imported_again(
    cli: Command, queue: RemoteQueue[bytes], other: RemoteQueue[bytes], file: Path
) -> None:
    queue.put(b"mine", dedup="d")
    queue.put(b"plain", keys="k")
    queue.put(b"late", delay=0.001)
    moved(cli, queue, file)
    assert cli("import", other.name, "--file", file).code == 0
    for _ in range(3):
        other.get(timeout=30).ack()
    assert cli("import", other.name, "--file", file, "--json").json["known"] == 3
    assert other.stats().unsettled == 0
    # A queue that is dropped knows nothing any more.
    assert other.drop()
    assert cli("import", other.name, "--file", file, "--json").json["messages"] == 3


def test_a_message_with_the_same_id_of_another_server_is_imported(
    cli: Command, queue: RemoteQueue[bytes], other: RemoteQueue[bytes], file: Path
) -> None:
    queue.put(b"here", keys="k")
    lines = moved(cli, queue, file)
    assert cli("import", other.name, "--file", file).code == 0
    # Ids are times, and of two servers they may be the same.
    file.write_text("\n".join(json.dumps(line) for line in [
        lines[0], {**lines[1], "payload": "there"}, lines[2]]))  # fmt: skip
    assert cli("import", other.name, "--file", file, "--json").json["messages"] == 1


def test_a_sealed_queue_is_imported_into(
    cli: Command, queue: RemoteQueue[bytes], other: RemoteQueue[bytes], file: Path
) -> None:
    queue.put(b"a")
    moved(cli, queue, file)
    other.seal()
    assert cli("import", other.name, "--file", file).code == 0
    assert other.stats().unsettled == 1


def test_a_file_of_the_first_format_version_is_imported(
    cli: Command, other: RemoteQueue[bytes], file: Path
) -> None:
    head = {"interlock": "queue", "format": 1, "queue": "old", "options": {}, "counts": {},
            "left_out": 0}  # fmt: skip
    letter = {"dead": 5, "attempts": 3, "time": 6, "error": "bad", "priority": 7, "keys": ["k"],
              "shared": [], "payload": "x"}  # fmt: skip
    lines = [head, letter, {"end": True, "messages": 0, "dead": 1}]
    file.write_text("\n".join(map(json.dumps, lines)))
    assert cli("import", other.name, "--file", file).code == 0
    (found,) = cli("dead-letters", other.name, "--json").lines
    assert (found["attempts"], found["priority"], found["error"]) == (3, 7, "bad")
