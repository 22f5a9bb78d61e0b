"""Calls of Redis operators and clients to a server: ACL, CLIENT PAUSE and UNBLOCK, statistics."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis as redis_py

import interlock
from interlock.hub import passwords
from interlock.hub.client import Client
from interlock.hub.resp import ReplyError
from tests.hub.servers import needs_hub

HASH = passwords.hashed("secret")
USERS = [
    {"name": "root", "passwords": [HASH, HASH], "commands": ["@all"], "topics": ["*"],
     "queues": ["*"]},
    {"name": "app", "passwords": [HASH], "topics": ["news"], "publish": ["orders.*", "news"],
     "queues": ["tmp.*"], "commands": ["@pubsub", "@queue", "-publish"]},
    {"name": "default", "commands": ["@connection"], "topics": []},
]  # fmt: skip


@pytest.fixture
def guarded() -> Iterator[interlock.Hub]:
    needs_hub()
    with interlock.Hub(port=0, workers=2, user=USERS) as hub:
        yield hub


@pytest.fixture
def hub() -> Iterator[interlock.Hub]:
    needs_hub()
    with interlock.Hub(port=0, workers=2) as running:
        yield running


def asking(hub: interlock.Hub) -> Any:
    """Not typed: replies are of many types."""
    return Client(hub.addresses[0], timeout=20)


def as_user(hub: interlock.Hub, name: str = "root") -> Any:
    return Client(f"redis://{name}:secret@{hub.addresses[0]}", timeout=20)


def test_an_operator_reads_who_may_do_what(guarded: interlock.Hub) -> None:
    with as_user(guarded) as root:
        assert root.call("ACL", "USERS") == [b"app", b"default", b"root"]
        assert root.call("ACL", "LIST") == [
            b"user app on #(hidden) ~il:{tmp.*} %P&orders.* &news -@all +@pubsub +@queue -publish",
            b"user default on nopass -@all +@connection",
            b"user root on #(hidden) #(hidden) ~il:{*} &* +@all",
        ]
        found = root.call("ACL", "GETUSER", "app")
        assert found[b"flags"] == [b"on"]
        assert found[b"passwords"] == [b"(hidden)"]
        assert found[b"commands"] == b"-@all +@pubsub +@queue -publish"
        assert found[b"keys"] == b"~il:{tmp.*}"
        assert found[b"channels"] == b"%P&orders.* &news"
        assert root.call("ACL", "GETUSER", "nobody") is None
        assert b"queue" in root.call("ACL", "CAT")
        assert b"fcall|il1_lease" in root.call("ACL", "CAT", "consume")
        assert re.fullmatch(rb"[0-9a-f]{64}", root.call("ACL", "GENPASS"))
        assert re.fullmatch(rb"[0-9a-f]{2}", root.call("ACL", "GENPASS", 5))
        assert root.call("ACL", "GENPASS") != root.call("ACL", "GENPASS")
    with as_user(guarded, "app") as app, pytest.raises(ReplyError, match="NOPERM"):
        app.call("ACL", "LIST")


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (("subscribe", "news"), b"OK"),
        (("subscribe", "orders.1"),
         b"This user has no permissions to access the 'orders.1' channel"),
        (("publish", "news", "x"), b"This user has no permissions to run the 'publish' command"),
        (("fcall", "il1_stats", 1, "il:{tmp.1}"), b"OK"),
        (("fcall", "il1_stats", 1, "il:{x}"),
         b"This user has no permissions to access the 'il:{x}' key"),
    ],
)  # fmt: skip
def test_a_call_can_be_tried_for_a_user(
    guarded: interlock.Hub, call: tuple[Any, ...], answer: bytes
) -> None:
    with as_user(guarded) as root:
        assert root.call("ACL", "DRYRUN", "app", *call) == (answer if answer != b"OK" else "OK")


def test_who_was_refused_is_kept_and_alike_ones_count_together(guarded: interlock.Hub) -> None:
    with as_user(guarded, "app") as app:
        for call in [("PUBLISH", "news", "x")] * 3 + [("SUBSCRIBE", "secret")]:
            with pytest.raises(ReplyError, match="NOPERM"):
                app.call(*call)
        with pytest.raises(ReplyError, match="NOPERM"):
            app.call("FCALL", "il1_stats", 1, "il:{x}")
    with pytest.raises(ReplyError, match="WRONGPASS"):
        Client(f"redis://app:wrong@{guarded.addresses[0]}", timeout=20).call("PING")
    with as_user(guarded) as root:
        log = root.call("ACL", "LOG")
        told = [(e[b"reason"], e[b"object"], e[b"username"], e[b"count"]) for e in log]
        assert told == [
            (b"auth", b"AUTH", b"app", 1),
            (b"key", b"il:{x}", b"app", 1),
            (b"channel", b"secret", b"app", 1),
            (b"command", b"publish", b"app", 3),
        ]
        assert b"addr=127.0.0.1:" in log[0][b"client-info"]
        assert float(log[0][b"age-seconds"]) >= 0
        assert len(root.call("ACL", "LOG", 2)) == 2
        assert root.call("ACL", "LOG", "RESET") == "OK"
        assert root.call("ACL", "LOG") == []


def test_the_log_of_refusals_keeps_the_newest_128(guarded: interlock.Hub) -> None:
    with as_user(guarded, "app") as app:
        for number in range(150):
            with pytest.raises(ReplyError):
                app.call("SUBSCRIBE", f"secret.{number}" + "x" * 500)
    with as_user(guarded) as root:
        log = root.call("ACL", "LOG", 1000)
        assert len(log) == 128
        assert log[0][b"object"].startswith(b"secret.149x")
        assert len(log[0][b"object"]) == 128


def test_requests_wait_while_clients_are_paused_and_keep_their_order(hub: interlock.Hub) -> None:
    with redis_py.Redis(port=hub.port, protocol=2) as operator, asking(hub) as other:
        subscriber = operator.pubsub()
        subscriber.subscribe("news")
        assert subscriber.get_message(timeout=20)["type"] == "subscribe"
        operator.execute_command("CLIENT", "PAUSE", 3_600_000, "WRITE")
        assert other.call("PING") == "PONG", "reading continues"
        with socket.create_connection(("127.0.0.1", hub.port), 20) as held:
            held.sendall(b"PING\r\nPUBLISH news 1\r\nPUBLISH news 2\r\nPING\r\n")
            answers = held.makefile("rb")
            assert answers.readline() == b"+PONG\r\n"
            held.settimeout(0.05)
            with pytest.raises(TimeoutError):
                held.recv(1)
            assert operator.execute_command("CLIENT", "LIST"), "operators are not held up"
            assert operator.execute_command("CLIENT", "UNPAUSE")
            held.settimeout(20)
            assert [held.makefile("rb").readline() for _ in range(1)] == [b":1\r\n"]
        told = [subscriber.get_message(timeout=20)["data"] for _ in range(2)]
        assert told == [b"1", b"2"]


def test_a_pause_of_everything_ends_by_itself_and_counts_for_queues(hub: interlock.Hub) -> None:
    with (
        asking(hub) as operator,
        asking(hub) as c,
    ):
        operator.call("CLIENT", "PAUSE", 50)
        assert c.call("FCALL", "il1_put", 1, "il:{q}", "", 0, 0, "x", 0, 0, 0) is not None
        operator.call("CLIENT", "PAUSE", 50, "ALL")
        assert c.call("PING") == "PONG"


def test_who_goes_while_paused_is_forgotten_and_a_hub_that_stops_holds_up_nobody() -> None:
    needs_hub()
    running = interlock.Hub(port=0, workers=2, drain=20.0)
    with running as hub, asking(hub) as operator:
        operator.call("CLIENT", "PAUSE", 3_600_000)
        for _ in range(50):
            with socket.create_connection(("127.0.0.1", hub.port), 20) as gone:
                gone.sendall(b"PING\r\n")
        stays = socket.create_connection(("127.0.0.1", hub.port), 20)
        stays.sendall(b"PING\r\nPING\r\n")
        # Or it may not have been read yet.
        while b"cmd=NULL" not in operator.call("CLIENT", "LIST"):
            pass
    # It has stopped, and before that it answered. The kernel resets a connection whose last bytes
    # the hub has not read.
    with stays, suppress(ConnectionResetError):
        assert stays.makefile("rb").read() in (b"+PONG\r\n+PONG\r\n", b"")


@pytest.mark.parametrize("how", ["TIMEOUT", "ERROR"])
def test_the_wait_of_a_call_on_a_queue_can_be_ended(hub: interlock.Hub, how: str) -> None:
    with asking(hub) as operator:
        with socket.create_connection(("127.0.0.1", hub.port), 20) as waiting:
            waiting.sendall(b"CLIENT ID\r\n")
            answers = waiting.makefile("rb")
            number = int(answers.readline()[1:])
            assert operator.call("CLIENT", "UNBLOCK", number) == 0
            waiting.sendall(b"FCALL il1_lease 1 il:{q} worker 1 3600000000 1 30000000 any\r\n")
            while operator.call("CLIENT", "UNBLOCK", number, how) == 0:
                pass
            answer = answers.readline()
            if how == "ERROR":
                assert answer == b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n"
            else:
                assert answer.startswith(b"*"), "as when its time is over"
            assert operator.call("CLIENT", "UNBLOCK", number) == 0
        # Nobody waits there any more: what comes now is for the next who asks.
        operator.call("FCALL", "il1_put", 1, "il:{q}", "", 0, 0, "x", 0, 0, 0)
        leased = operator.call("FCALL", "il1_lease", 1, "il:{q}", "w", 1, 0, 1, 30_000_000, "any")
        assert b"x" in leased


def test_commands_and_errors_are_counted_by_name(hub: interlock.Hub) -> None:
    with redis_py.Redis(port=hub.port, protocol=2, decode_responses=True) as client:
        for _ in range(200):
            client.publish("a", "x")
        with pytest.raises(redis_py.ResponseError):
            client.execute_command("FCALL", "il1_put", 1, "il:{q}", "nonsense")
        with pytest.raises(redis_py.ResponseError):
            client.execute_command("PUBLISH", "a")
        commands = client.info("commandstats")
        assert commands["cmdstat_publish"]["calls"] == 200
        assert commands["cmdstat_publish"]["rejected_calls"] == 1
        assert commands["cmdstat_publish"]["usec"] >= 0
        assert commands["cmdstat_fcall|il1_put"]["failed_calls"] == 1
        assert client.info("errorstats")["errorstat_ERR"]["count"] >= 1
        assert "cmdstat_publish" not in client.info(), "only for who asks"
        assert "cmdstat_publish" in client.info("everything")
        assert client.info("cluster")["cluster_enabled"] == 0
        stats = client.info("stats")
        assert stats["instantaneous_ops_per_sec"] >= 0
        assert stats["pubsubshard_channels"] == 0
        assert client.config_resetstat()
        assert client.info("stats")["messages_published"] == 0
        assert "cmdstat_publish" not in client.info("commandstats")
        assert client.info("errorstats") == {}


def test_what_a_client_asks_on_its_own_is_answered(hub: interlock.Hub) -> None:
    with redis_py.Redis(port=hub.port, protocol=2) as client:
        assert abs(client.time()[0] - time.time()) < 60
        assert client.role() == [b"master", 0, []]
        assert client.dbsize() == 0
        assert client.latency_latest() == []
        assert client.latency_reset() == 0
        with pytest.raises(redis_py.ResponseError, match="cluster support disabled"):
            client.execute_command("CLUSTER", "SLOTS")


def test_functions_stand_in_the_slow_log(hub: interlock.Hub) -> None:
    with asking(hub) as client:
        client.call("CONFIG", "SET", "slowlog-log-slower-than", 0)
        client.call("FCALL", "il1_put", 1, "il:{q}", "", 0, 0, "x", 0, 0, 0)
        words = [entry[3][:2] for entry in client.call("SLOWLOG", "GET", 10)]
        assert [b"FCALL", b"il1_put"] in words


def test_buffer_limits_have_the_name_of_redis_too(hub: interlock.Hub) -> None:
    with asking(hub) as client:
        client.call("CONFIG", "SET", "client-output-buffer-limit", "pubsub 2mb 1mb 7")
        found = client.call("CONFIG", "GET", "limits.pubsub.soft*", "limits.pubsub.hard")
        assert found == {
            b"limits.pubsub.soft": b"1048576",
            b"limits.pubsub.soft_seconds": b"7",
            b"limits.pubsub.hard": b"2097152",
        }
        shown = client.call("CONFIG", "GET", "client-output-*")
        limits = b"normal 268435456 0 0 slave 0 0 0 pubsub 2097152 1048576 7"
        assert shown == {b"client-output-buffer-limit": limits}


@pytest.mark.parametrize(
    "pairs",
    [
        ("timeout", "1", "idle_timeout", "2"),
        ("client-output-buffer-limit", "normal 9 2 3", "limits.normal.soft", "4"),
        ("limits.pubsub.hard", "9", "client-output-buffer-limit", "pubsub 9 2 3"),
    ],
)
def test_a_key_set_twice_under_two_names_is_refused(
    hub: interlock.Hub, pairs: tuple[str, ...]
) -> None:
    with asking(hub) as client:
        before = client.call("CONFIG", "GET", "*")
        with pytest.raises(ReplyError, match=f"argument '{pairs[2]}'.* - duplicate parameter"):
            client.call("CONFIG", "SET", *pairs)
        assert client.call("CONFIG", "GET", "*") == before
