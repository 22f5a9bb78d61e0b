"""Commands of hostile and clumsy users: a node refuses them, and goes on."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis, ResponseError

from interlock.cluster import primary
from interlock.cluster.commands import Commands
from interlock.cluster.stamps import HybridClock
from interlock.cluster.state import TableRules
from tests.cluster.nodes import NodeCluster, NodeProcess, Presence, eventually, node_cluster


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[NodeCluster]:
    with node_cluster(tmp_path) as made:
        yield made


def client(node: NodeProcess) -> Any:
    host, port = node.address.rsplit(":", 1)
    return Redis(host, int(port), socket_timeout=20, decode_responses=True)


def test_what_no_node_says_is_refused(nodes: NodeCluster) -> None:
    nodes.start("a")
    huge = 2**70
    with client(nodes.nodes["a"]) as asked:
        token = json.loads(asked.execute_command("NODE", "STATUS"))["token"]
        row = ("HINCRBY", "presence:k", "unread", 1)
        for words in (
            ("WRITE", token, "n/1", huge, 0, 4, *row),
            ("WRITE", token, "n/1", -1, 0, 4, *row),
            ("WRITE", token, "n/1", 1, 0, huge, *row),
            ("OFFER", token, "k", b"garbage"),
            ("OFFER", token, "k", b"\x90"),
            ("OFFER", token, "k", b""),
            ("OFFER", token, "", b"\xc0"),
            ("OFFER", token, "k" * 5000, b"\xc0"),
        ):
            with pytest.raises(ResponseError, match="wrong arguments"):
                asked.execute_command("NODE", *words)
        assert asked.hincrby("presence:x", "unread", 1) == 1
        assert not asked.exists("presence:k")


def test_what_nobody_can_have_acknowledges_nothing(nodes: NodeCluster) -> None:
    nodes.start("a", flags=("--ack", "1"))
    with client(nodes.nodes["a"]) as asked:
        token = json.loads(asked.execute_command("NODE", "STATUS"))["token"]
        for seq in (2**70, -1):
            assert asked.execute_command("NODE", "HAVE", token, "z", seq) in ("OK", b"OK")
        with pytest.raises(ResponseError, match="NOACK"):
            asked.hincrby("presence:x", "unread", 1)


def test_a_state_is_checked_before_others_must_join_it() -> None:
    rules = TableRules.of(Presence)
    clock = HybridClock("east", now_ms=lambda: 1_000)
    commands = Commands(rules, table_name="presence")
    done = commands.run(
        [b"HSET", b"presence:x", b"app_id", b"7", b"token", b"t"], False,
        lambda key: None, clock, 1_000,
    )  # fmt: skip
    ((_, state),) = done.changes
    rules.check(state)
    rules.check(rules.deleted(clock.next()))
    for wrong in (b"", b"\xc0", b"\x90", b"garbage", state[:-1], state + b"\xc0", b"\x80" + state):
        with pytest.raises(ValueError, match="no state"):
            rules.check(wrong)


def test_a_write_that_cannot_be_done_ends_no_primary() -> None:
    class Broken:
        rules = TableRules.of(Presence)

        def run(self, *_: object) -> None:
            raise ZeroDivisionError

    made: list[bytes] = []
    one = primary.Primary(
        token=1, node="a", address="h:1", ack=0, states={}, commands=Broken(),  # type: ignore[arg-type]
        clock=HybridClock("east"), now_ms=lambda: 0, append=made.append, has_room=lambda: True,
        replicas=lambda: (),
    )  # fmt: skip
    one.write("a", 1, [b"HSET"], False)
    one.flush()
    assert [sent.own for sent in one.sent] == [[(1, primary.FAILED.reply)]]


def test_hup_reads_the_configuration_again_and_usr1_the_log(tmp_path: Path) -> None:
    with node_cluster(tmp_path) as nodes:
        log = tmp_path / "node.log"
        config = tmp_path / "hub.toml"
        config.write_text(f'[log]\nfile = "{log}"\nlevel = "warning"\n')
        nodes.start("a", flags=("--config", str(config)))
        node = nodes.nodes["a"]
        with client(node) as asked:
            asked.hset("presence:x", "app_id", 1)
            config.write_text(f'[log]\nfile = "{log}"\nlevel = "info"\n')
            node.process.send_signal(signal.SIGHUP)
            eventually(lambda: "configured anew: log.level" in log.read_text())
            log.rename(tmp_path / "old.log")
            node.process.send_signal(signal.SIGUSR1)
            eventually(log.exists)
            # It serves the table still.
            assert asked.hincrby("presence:x", "unread", 2) == 2
            assert node.process.poll() is None
        node.process.send_signal(signal.SIGTERM)
        assert node.process.wait(30) == 0
