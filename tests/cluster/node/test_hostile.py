"""Commands of hostile and clumsy users: a node refuses them, and continues."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis, ResponseError

from tests.cluster.nodes import NodeCluster, NodeProcess, eventually, node_cluster


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[NodeCluster]:
    with node_cluster(tmp_path) as made:
        yield made


def client(node: NodeProcess) -> Any:
    host, port = node.address.rsplit(":", 1)
    return Redis(host, int(port), socket_timeout=20, decode_responses=True)


def test_malformed_node_commands_are_refused(nodes: NodeCluster) -> None:
    nodes.start("a")
    with client(nodes.nodes["a"]) as asked:
        for words, why in (
            ((), "wrong number of arguments"),
            (("WRITE", "1", "n/1", 1), "unknown subcommand 'WRITE'"),
            (("OFFER", "1", "k", b"garbage"), "unknown subcommand 'OFFER'"),
            ((b"\xff\x00" * 100,), "unknown subcommand"),
            (("STATUS", "more"), "wrong arguments for 'node|status'"),
            (("DRAIN", "a", "b"), "wrong arguments for 'node|drain'"),
            (("CHECKPOINT", "one"), "wrong arguments for 'node|checkpoint'"),
            (("CHECKPOINT", "nobody", "0"), "that transfer is closed"),
            (("CHECKPOINT", "nobody", "soon"), "that transfer is closed"),
        ):
            with pytest.raises(ResponseError, match=re.escape(why)):
                asked.execute_command("NODE", *words)
        assert asked.hincrby("presence:x", "unread", 1) == 1


def test_damaged_log_entries_stop_no_node(
    nodes: NodeCluster,
) -> None:
    nodes.start("a", "b")
    with (
        client(nodes.nodes["a"]) as a,
        client(nodes.nodes["b"]) as b,
        Redis.from_url(nodes.engine_url) as engine,
    ):
        assert a.hincrby("presence:x", "unread", 1) == 1
        assert b.hset("presence:y", "token", "abc") >= 1
        log = "il:log:{presence.main}"
        known = [fields[b"e"] for _, fields in engine.xrange(log)][-4:]
        for bytes_ in known:
            for at in range(0, len(bytes_), 5):
                engine.xadd(log, {"e": bytes_[:at] + b"\xff" + bytes_[at + 1 :]})
            engine.xadd(log, {"e": bytes_.replace(b"presence:", b"presence\xff\xfe")})
        engine.xadd(log, {"e": b"\xff" * 100})
        engine.xadd(log, {"other": "e"})
        for asked in (a, b):
            assert asked.execute_command("TABLE", "BARRIER", "presence")
            found = asked.hincrby("presence:x", "unread", 1)
            assert asked.hincrby("presence:x", "unread", 2) == found + 2

        def are_equal() -> bool:
            told = [json.loads(asked.execute_command("NODE", "STATUS")) for asked in (a, b)]
            names = ("position", "log_checksum", "rows_checksum", "state")
            return len({tuple(one[name] for name in names) for one in told}) == 1

        eventually(are_equal)


def test_hup_reloads_the_configuration_and_usr1_reopens_the_log(tmp_path: Path) -> None:
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
            eventually(lambda: "reconfigured: log.level" in log.read_text())
            log.rename(tmp_path / "old.log")
            node.process.send_signal(signal.SIGUSR1)
            eventually(log.exists)
            # It serves the table still.
            assert asked.hincrby("presence:x", "unread", 2) == 2
            assert node.process.poll() is None
        node.process.send_signal(signal.SIGTERM)
        assert node.process.wait(30) == 0
