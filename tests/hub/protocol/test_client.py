"""The small client, with Redis and with the hub: it is the same one."""

from __future__ import annotations

import socket
import threading

import pytest

from interlock.hub.client import Client, Published
from interlock.hub.resp import ProtocolError, ReplyError


def client(port: int) -> Client:
    return Client(f"127.0.0.1:{port}")


def test_a_message_arrives_with_its_topic(port: int) -> None:
    with client(port) as subscriber, client(port) as publisher:
        subscriber.subscribe("a", "b")
        assert publisher.publish("a", "x") == 1
        assert publisher.publish("b", b"\xff") == 1
        assert publisher.publish("c", "x") == 0
        assert subscriber.message(5) == Published(b"a", b"x")
        assert subscriber.message(5) == Published(b"b", b"\xff")


def test_a_pattern_arrives_with_the_message(port: int) -> None:
    with client(port) as subscriber, client(port) as publisher:
        subscriber.psubscribe("a.*")
        publisher.publish("a.b", "x")
        assert subscriber.message(5) == Published(b"a.b", b"x", b"a.*")


def test_messages_that_come_while_a_call_waits_are_kept_in_order(port: int) -> None:
    with client(port) as both:
        both.subscribe("a")
        assert [both.publish("a", str(number)) for number in range(50)] == [1] * 50
        both.psubscribe("zzz")
        found = [both.message(5) for _ in range(50)]
        assert found == [Published(b"a", str(number).encode()) for number in range(50)]


def test_messages_is_an_iterator_without_an_end(port: int) -> None:
    with client(port) as both:
        both.subscribe("a")
        both.pipeline([("PUBLISH", "a", number) for number in range(3)])
        found = [published.payload for _, published in zip(range(3), both.messages(), strict=False)]
        assert found == [b"0", b"1", b"2"]


def test_after_unsubscribe_nothing_comes(port: int) -> None:
    with client(port) as both:
        both.subscribe("a", "b", "c")
        both.unsubscribe("b")
        assert both.publish("b", "x") == 0
        both.publish("a", "last")
        both.unsubscribe()
        assert both.publish("a", "x") == 0
        assert both.message(5) == Published(b"a", b"last")
        assert both.message(0) is None


def test_a_pipeline_answers_errors_in_their_place(port: int) -> None:
    with client(port) as one:
        first, error, last = one.pipeline([("PING",), ("NONSENSE",), ("ECHO", "x")])
        assert (first, last) == ("PONG", b"x")
        assert isinstance(error, ReplyError)
        assert error.code == "ERR"
        with pytest.raises(ReplyError, match="unknown command"):
            one.call("NONSENSE")
        with pytest.raises(ReplyError, match="wrong number of arguments"):
            one.subscribe()


def test_a_name_is_seen_by_the_server(port: int) -> None:
    with Client(f"127.0.0.1:{port}", name="me") as one:
        assert one.call("CLIENT", "GETNAME") == b"me"


def test_a_large_message_is_whole(port: int) -> None:
    with client(port) as both:
        both.subscribe("a")
        both.publish("a", b"x" * 3_000_000)
        assert both.message(5) == Published(b"a", b"x" * 3_000_000)


def test_a_server_that_says_nothing_is_a_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(TimeoutError):
            Client(f"127.0.0.1:{port}", timeout=0.05)


def answering(data: bytes) -> tuple[int, threading.Thread]:
    """A server that takes one connection, says `data` to whatever it hears, and closes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        with listener, listener.accept()[0] as connection:
            connection.recv(1 << 16)
            connection.sendall(data)

    thread = threading.Thread(target=answer)
    thread.start()
    return listener.getsockname()[1], thread


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", ProtocolError),
        (b"-ERR unknown command 'HELLO'\r\n", ReplyError),
        (b"%1\r\n", ConnectionResetError),
        (b"", ConnectionResetError),
    ],
)
def test_a_server_of_another_kind_is_told(data: bytes, error: type[Exception]) -> None:
    port, thread = answering(data)
    with pytest.raises(error):
        client(port)
    thread.join()
