"""Topics that a store keeps, read again: XRANGE, XREAD, XLEN, and `interlock store`."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from interlock import Hub
from interlock.cli import main
from interlock.hub.client import Client
from interlock.hub.resp import ReplyError
from tests.hub.servers import needs_hub

redis = pytest.importorskip("redis")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def stored(out: Path) -> Iterator[Hub]:
    """A hub that keeps the topics `a*`, in many small files, compressed."""
    needs_hub()
    store = {
        "name": "files",
        "path": f"{out}/[topic].log",
        "topics": ["a*"],
        "ack": "disk",
        "rotate": "1KB",
        "compress": True,
    }
    with Hub(port=0, store=[store, {"name": "n", "kind": "null", "topics": ["n"]}]) as hub:
        yield hub


def fill(hub: Hub, count: int, topic: str = "a") -> None:
    with Client(hub.url) as client:
        for _ in client.pipeline([("PUBLISH", topic, str(number)) for number in range(count)]):
            pass


def numbers(entries: list[tuple[bytes, dict[bytes, bytes]]]) -> list[int]:
    return [int(fields[b"payload"]) for _, fields in entries]


def test_redis_py_reads_ranges_forward_and_backward(stored: Hub) -> None:
    fill(stored, 1000)
    with redis.Redis.from_url(stored.url) as client:
        assert client.xlen("a") == 1000
        entries = client.xrange("a")
        assert numbers(entries) == list(range(1000))
        ids = [id_ for id_, _ in entries]
        order = [tuple(map(int, id_.split(b"-"))) for id_ in ids]
        assert order == sorted(set(order))
        assert numbers(client.xrevrange("a")) == list(range(999, -1, -1))
        assert numbers(client.xrange("a", ids[10], ids[20])) == list(range(10, 21))
        assert numbers(client.xrange("a", b"(" + ids[10], b"(" + ids[20])) == list(range(11, 20))
        assert numbers(client.xrevrange("a", ids[20], ids[10])) == list(range(20, 9, -1))
        assert numbers(client.xrange("a", count=3)) == [0, 1, 2]
        assert numbers(client.xrevrange("a", count=3)) == [999, 998, 997]
        assert client.xrange("a", ids[20], ids[10]) == []
        assert client.xlen("a2") == 0
        assert client.xrange("a2") == []


def test_redis_py_follows_a_topic_from_where_it_was(stored: Hub) -> None:
    fill(stored, 100)
    with redis.Redis.from_url(stored.url) as client:
        position, found = "0", list[int]()
        while reply := client.xread({"a": position}, count=7):
            ((_, entries),) = reply.items() if isinstance(reply, dict) else reply
            entries = entries[0] if isinstance(reply, dict) else entries
            found += numbers(entries)
            position = entries[-1][0]
        assert found == list(range(100))


def test_a_reader_waits_for_the_next_message_of_any_of_its_topics(stored: Hub) -> None:
    fill(stored, 3)
    for topic in ("a", "a2"):
        with Client(stored.url) as client:
            asked = threading.Thread(target=lambda: None)
            replies: list[object] = []

            def ask(client: Client = client, replies: list[object] = replies) -> None:
                replies.append(client.call("XREAD", "BLOCK", 4000, "STREAMS", "a", "a2", "$", "$"))

            asked = threading.Thread(target=ask)
            asked.start()
            # Whether it waits by then or not.
            with Client(stored.url) as publisher:
                while asked.is_alive():
                    publisher.call("PUBLISH", topic, "next")
                    asked.join(0.05)
            (reply,) = replies
            assert isinstance(reply, dict)
            ((name, entries),) = reply.items()
            assert name == topic.encode()
            assert entries[0][1] == [b"payload", b"next"]


def test_hundreds_may_wait_for_the_same_topics(stored: Hub) -> None:
    # The topics are looked at for all of them together: one by one, nobody would be heard in time.
    topics = [f"a{number}" for number in range(10)]
    request = b" ".join(
        [b"XREAD BLOCK 0 STREAMS", " ".join(topics).encode(), b" ".join([b"0"] * len(topics))]
    )
    port = int(stored.url.rpartition(":")[2])
    with ExitStack() as stack:
        waiting = []
        for _ in range(300):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            one.sendall(request + b"\r\n")
            waiting.append(one)
        fill(stored, 1, topics[5])
        for one in waiting:
            assert one.recv(100).startswith(b"*1\r\n*2\r\n$2\r\na5\r\n")


def test_a_reader_that_waits_in_vain_is_told_so(stored: Hub) -> None:
    with redis.Redis.from_url(stored.url, protocol=2) as client:
        assert client.xread({"a": "$"}, block=1) == []
        assert client.xread({"a": "0"}) == []


@pytest.mark.parametrize("words", ["XREAD BLOCK 0 STREAMS a $", "il1_lease"])
@pytest.mark.parametrize(("reason", "answer"), [("TIMEOUT", b""), ("ERROR", b"-UNBLOCKED ")])
def test_a_waiting_client_counts_as_blocked_and_can_be_unblocked(
    stored: Hub, words: str, reason: str, answer: bytes
) -> None:
    if words == "il1_lease":
        words = "FCALL il1_lease 1 il:{q} me 1 60000000 1 1000000 any"
    with Client(stored.url) as operator, Client(stored.url) as client:
        id = client.call("CLIENT", "ID")
        assert isinstance(id, int)
        assert stored.info()["blocked_clients"] == 0
        assert operator.call("CLIENT", "UNBLOCK", id, reason) == 0
        client._socket.sendall(words.encode() + b"\r\n")
        while stored.info()["blocked_clients"] == 0:
            pass
        line = operator.call("CLIENT", "LIST", "ID", id)
        assert isinstance(line, bytes) and b" flags=b " in line
        assert operator.call("CLIENT", "UNBLOCK", id, reason) == 1
        assert client._socket.recv(100).startswith(answer)
        assert stored.info()["blocked_clients"] == 0
        assert client.call("PING") == "PONG"


def test_a_reader_that_leaves_is_forgotten(stored: Hub) -> None:
    with Client(stored.url) as client:
        client._socket.sendall(b"XREAD BLOCK 0 STREAMS a $\r\n")
    while stored.info()["connected_clients"]:
        pass
    fill(stored, 1)
    with Client(stored.url) as client:
        assert client.call("XLEN", "a") == 1


WRONG = (
    (("XRANGE", "other", "-", "+"), "NOSTORE no file store"),
    (("XLEN", "n"), "NOSTORE no file store"),
    (("XRANGE", "a", "x", "+"), "ERR Invalid stream ID"),
    (("XRANGE", "a", "1-", "+"), "ERR Invalid stream ID"),
    (("XRANGE", "a", "-", "+", "COUNT"), "ERR syntax error"),
    (("XRANGE", "a", "-", "+", "COUNT", "x"), "ERR value is not an integer"),
    (("XRANGE", "a"), "ERR wrong number of arguments"),
    (("XREAD", "STREAMS", "a"), "ERR wrong number of arguments"),
    (("XREAD", "STREAMS", "a", "a2", "0"), "ERR Unbalanced"),
    (("XREAD", "COUNT", "1", "STREAMS"), "ERR Unbalanced"),
    (("XREAD", "BLOCK", "-1", "STREAMS", "a", "$"), "ERR timeout is negative"),
    (("XREAD", "BLOCK", "x", "STREAMS", "a", "$"), "ERR timeout is not an integer"),
    (("XREAD", "STREAMS", "a", ">"), "ERR topics have no consumer groups"),
    (("XREADGROUP", "GROUP", "g", "c", "STREAMS", "a", ">"), "ERR topics have no consumer groups"),
    (("XGROUP", "CREATE", "a", "g", "$"), "ERR topics have no consumer groups"),
)


@pytest.mark.parametrize(("words", "told"), WRONG)
def test_a_wrong_question_is_refused(stored: Hub, words: tuple[str, ...], told: str) -> None:
    with Client(stored.url) as client, pytest.raises(ReplyError, match=told):
        client.call(*words)


def test_who_may_not_subscribe_may_not_read(out: Path) -> None:
    needs_hub()
    user = {"name": "default", "subscribe": ["a1"], "publish": ["*"]}
    store = {"name": "files", "path": f"{out}/[topic].log"}
    with Hub(port=0, user=[user], store=[store]) as hub, Client(hub.url) as client:
        assert client.call("XRANGE", "a1", "-", "+") == []
        for words in (
            ("XRANGE", "a2", "-", "+"),
            ("XREVRANGE", "a2", "+", "-"),
            ("XLEN", "a2"),
            ("XREAD", "STREAMS", "a1", "a2", "0", "0"),
            ("XREAD", "COUNT", "1", "streams", "a2", "0"),
        ):
            with pytest.raises(ReplyError, match="NOPERM"):
                client.call(*words)
        with pytest.raises(ReplyError, match="NOPERM"):
            client.call("STORE", "LIST")


def test_who_waits_and_may_no_longer_subscribe_is_disconnected(out: Path) -> None:
    needs_hub()
    user = {"name": "default", "subscribe": ["a"], "publish": ["*"]}
    store = {"name": "files", "path": f"{out}/[topic].log"}
    with Hub(port=0, user=[user], store=[store]) as hub, Client(hub.url) as client:
        client._socket.sendall(b"XREAD BLOCK 0 STREAMS a $\r\n")
        hub.set({"user": [{**user, "subscribe": ["b"]}]})
        # It had been heard by then, or came too late.
        with pytest.raises((ConnectionResetError, ReplyError), match=r"NOPERM|closed|reset"):
            client.call("PING")


def test_files_are_printed_without_a_hub(
    stored: Hub, out: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    fill(stored, 200)
    fill(stored, 2, "a2")
    assert main(["store", "cat", str(out), "a"]) == 0
    assert capfdbinary.readouterr().out.split() == [b"%d" % number for number in range(200)]
    assert main(["store", "cat", str(out), "--json"]) == 0
    records = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert [record["topic"] for record in records] == ["a"] * 200 + ["a2"] * 2
    assert main(["store", "cat", str(out), "a", "--from", records[150]["position"]]) == 0
    assert capfdbinary.readouterr().out.split() == [b"%d" % number for number in range(150, 200)]
    assert main(["store", "cat", str(out / "a2.log"), "--count", "1"]) == 0
    assert capfdbinary.readouterr().out == b"0\n"


def test_damage_is_named(stored: Hub, out: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    fill(stored, 20, "a2")
    stored.stop()
    path = out / "a2.log"
    assert main(["store", "verify", str(out)]) == 0
    assert b"20 messages, 30 bytes, whole" in capfdbinary.readouterr().out
    content = path.read_bytes()
    path.write_bytes(b"X" + content[1:])
    assert main(["store", "verify", str(path)]) == 1
    assert b"1 messages are not what was written (first: 1)" in capfdbinary.readouterr().out
    assert main(["store", "cat", str(out)]) == 1
    told = capfdbinary.readouterr()
    assert (len(told.out.split()), told.err[:30]) == (19, b"interlock: 1 message is missin")
    (out / "a2.log.idx").write_bytes(b"")
    assert main(["store", "verify", str(out)]) == 1
    assert main(["store", "verify", str(out / "nothing.log")]) == 1
