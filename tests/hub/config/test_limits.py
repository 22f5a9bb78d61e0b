"""Limits on what a client may do to the hub; a client that breaks them does not affect the
others."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

import interlock
from interlock.hub.client import Client
from interlock.hub.resp import command
from tests import seeds
from tests.hub.servers import needs_hub


@pytest.fixture(autouse=True)
def _where_there_are_hubs() -> None:
    needs_hub()


@contextmanager
def opened(hub: interlock.Hub) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", hub.port), 20) as connection:
        yield connection


def to_the_end(connection: socket.socket) -> bytes:
    """All that comes until the server closes, well or not."""
    found = b""
    try:
        while data := connection.recv(1 << 20):
            found += data
    except ConnectionResetError:
        pass
    return found


def test_a_subscriber_over_the_hard_limit_is_disconnected_and_the_others_are_not() -> None:
    with ExitStack() as stack:
        hub = stack.enter_context(
            interlock.Hub(port=0, workers=2, limits={"pubsub": {"soft": 0, "hard": 1 << 20}})
        )
        slow = stack.enter_context(Client(hub.url))
        quick = stack.enter_context(Client(hub.url, timeout=20))
        publisher = stack.enter_context(Client(hub.url, timeout=20))
        slow.subscribe("a")
        quick.subscribe("a")
        sent = 0
        while True:
            count = publisher.publish("a", b"x" * 60_000)
            sent += 1
            assert quick.message(20) is not None
            if count == 1:
                break
            assert sent < 2000, "a subscriber that never reads is owed 120 MB"
        # It can read what it had been sent; then the end, and no message was left out before it.
        with pytest.raises(ConnectionResetError):
            list(slow.messages())
        assert publisher.call("PING") == "PONG"
        assert hub.info()["client_output_buffer_limit_disconnections"] == 1


def test_a_subscriber_over_the_soft_limit_for_too_long_is_disconnected() -> None:
    limits = {"pubsub": {"soft": 1 << 20, "soft_seconds": 1, "hard": 0}}
    with (
        interlock.Hub(port=0, limits=limits) as hub,
        Client(hub.url) as slow,
        Client(hub.url, timeout=20) as publisher,
    ):
        slow.subscribe("a")
        publisher.pipeline([("PUBLISH", "a", b"x" * 100_000)] * 100)
        # By the watchdog's time it is gone, though nothing more is published to it.
        while publisher.call("PUBSUB", "NUMSUB", "a") != [b"a", 0]:
            pass


@pytest.mark.parametrize("workers", [1, 2])
def test_a_slow_subscriber_with_drop_learns_how_many_messages_it_missed(workers: int) -> None:
    limits = {"pubsub": {"soft": 1 << 20, "hard": 0}}
    with (
        interlock.Hub(port=0, workers=workers, limits=limits) as hub,
        Client(hub.url, timeout=20) as slow,
        Client(hub.url, timeout=20) as publisher,
    ):
        assert slow.call("CLIENT", "SLOW", "drop") == "OK"
        slow.subscribe("a")
        sent = burst = 400
        replies = publisher.pipeline(
            [("PUBLISH", "a", b"%06d" % number + b"x" * 60_000) for number in range(sent)]
        )
        assert replies == [1] * sent
        got: list[int] = []
        while len(got) + slow.missed < sent:
            found = slow.message(1)
            # The notice of the last missed ones comes once it has read the rest.
            if found is not None:
                got.append(int(found.payload[:6]))
            elif len(got) + slow.missed < sent:
                assert publisher.publish("a", b"%06d" % sent) == 1
                sent += 1
        assert slow.missed > 0
        assert got == sorted(set(got))
        assert burst - 1 in got, "what is left out are the oldest"
        assert len(got) + slow.missed == sent
        info = hub.info()
        assert (info["messages_dropped"], info["messages_published"]) == (slow.missed, sent)
        assert info["client_output_buffer_limit_disconnections"] == 0


def test_maxclients_refuses_one_more_as_redis_does_and_takes_it_later() -> None:
    with interlock.Hub(port=0, maxclients=2) as hub, Client(hub.url) as one:
        with Client(hub.url), opened(hub) as third:
            assert to_the_end(third) == b"-ERR max number of clients reached\r\n"
            assert hub.info()["rejected_connections"] == 1
        while one.call("PING") == "PONG":
            with opened(hub) as again:
                again.sendall(b"PING\r\n")
                if again.recv(7) == b"+PONG\r\n":
                    break


def test_max_per_address_refuses_one_more_from_there(tmp_path: object) -> None:
    with interlock.Hub(port=0, max_per_address=1, unix=f"{tmp_path}/s") as hub:
        with Client(hub.url), opened(hub) as second:
            assert to_the_end(second).startswith(b"-ERR ")
            assert hub.info()["rejected_connections_address"] == 1
        # A unix socket has no address.
        with Client(f"unix:{tmp_path}/s") as one, Client(f"unix:{tmp_path}/s") as other:
            assert one.call("PING") == other.call("PING") == "PONG"


def test_an_unfinished_command_over_the_limit_ends_the_connection() -> None:
    with interlock.Hub(port=0, query_limit=100_000) as hub, opened(hub) as greedy:
        try:
            greedy.sendall(b"*3\r\n$7\r\nPUBLISH\r\n$1\r\na\r\n$90000000\r\n")
            for _ in range(1000):
                greedy.sendall(b"x" * 65536)
        except (BrokenPipeError, ConnectionResetError):
            pass
        else:
            to_the_end(greedy)
        assert hub.info()["client_query_buffer_limit_disconnections"] == 1
        with Client(hub.url) as client:
            assert client.call("PING") == "PONG"


def test_a_string_over_the_frame_limit_is_refused_as_redis_words_it() -> None:
    with interlock.Hub(port=0, frame_limit=1024) as hub, opened(hub) as greedy:
        greedy.sendall(b"*2\r\n$4\r\nECHO\r\n$1025\r\n")
        assert to_the_end(greedy) == b"-ERR Protocol error: invalid bulk length\r\n"
        assert hub.info()["protocol_errors"] == 1
        with Client(hub.url) as client:
            assert client.call("ECHO", b"x" * 1024) == b"x" * 1024


def test_a_silent_client_is_closed_after_the_timeout_and_a_subscriber_is_not() -> None:
    with interlock.Hub(port=0, idle_timeout=1) as hub, Client(hub.url) as subscriber:
        subscriber.subscribe("a")
        with opened(hub) as silent:
            assert to_the_end(silent) == b""
            assert hub.info()["idle_disconnections"] == 1
        with Client(hub.url) as publisher:
            assert publisher.publish("a", "x") == 1


def test_noise_ends_at_most_its_own_connection() -> None:
    seed = seeds.seed()
    chance = random.Random(seed)
    valid = [command("PING"), command("SUBSCRIBE", "a"), command("PUBLISH", "a", b"x" * 50), b"*"]
    with interlock.Hub(port=0, workers=2) as hub, Client(hub.url) as witness:
        witness.subscribe("witness")
        for _ in range(300):
            data = bytearray(b"".join(chance.choices(valid, k=4)))
            for _ in range(chance.randrange(6)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            with opened(hub) as noisy:
                noisy.sendall(data)
                if chance.random() < 0.5:
                    noisy.shutdown(socket.SHUT_WR)
                    to_the_end(noisy)
        with Client(hub.url) as publisher:
            assert publisher.publish("witness", "still here") == 1
        found = witness.message(20)
        assert found is not None
        assert found.payload == b"still here"


def test_a_client_that_only_sends_cannot_make_the_hub_keep_its_replies() -> None:
    limits = {"normal": {"soft": 0, "hard": 1 << 20}}
    with interlock.Hub(port=0, limits=limits) as hub, opened(hub) as greedy:
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            greedy.sendall(command("ECHO", b"x" * 10_000) * 20_000)
        with Client(hub.url) as client:
            assert client.call("PING") == "PONG"


def held(hub: interlock.Hub, connection: socket.socket, word: bytes, names: list[bytes]) -> bytes:
    """Subscribes; what comes until all of it is confirmed, or refused."""
    connection.sendall(command(word, *names))
    found = b""
    while found.count(word.lower()) < len(names) and b"-ERR" not in found:
        found += connection.recv(1 << 20)
    return found


def test_subscriptions_of_a_client_are_bounded_by_what_holds_now() -> None:
    limits = {"pubsub": {"subscriptions": 1 << 20}}
    with interlock.Hub(port=0, limits=limits) as hub, opened(hub) as one, opened(hub) as other:
        names = [b"topic %d" % n for n in range(10_000)]
        refused = held(hub, one, b"PSUBSCRIBE", names)
        assert refused.startswith(b"-ERR the subscriptions of this client would take ")
        assert hub.info()["subscriptions_refused"] == 1
        hub.set({"limits.pubsub.subscriptions": 16 << 20})
        held(hub, one, b"PSUBSCRIBE", names)
        info = hub.info()
        assert (info["pubsub_patterns"], info["pubsub_clients"]) == (10_000, 1)
        assert 4 << 20 < info["client_subscription_bytes"] < 8 << 20
        # The other has a bound of its own.
        held(hub, other, b"SUBSCRIBE", names)
        one.close()
        other.close()
        while hub.info()["connected_clients"]:
            pass
        assert hub.info()["client_subscription_bytes"] == 0
        # Freed after the client is counted out.
        while hub.info()["clients_bytes"]:
            pass


def test_when_all_clients_hold_too_much_those_with_most_go_and_the_others_stay() -> None:
    with ExitStack() as stack:
        limits = {"clients": 4 << 20, "pubsub": {"soft": 0, "hard": 0}}
        hub = stack.enter_context(interlock.Hub(port=0, workers=2, limits=limits))
        small, large, slow, spared = (stack.enter_context(opened(hub)) for _ in range(4))
        publisher = stack.enter_context(Client(hub.url, timeout=20))
        held(hub, small, b"SUBSCRIBE", [b"small"])
        spared.sendall(command("CLIENT", "NO-EVICT", "on"))
        assert spared.recv(5) == b"+OK\r\n"
        held(hub, spared, b"SUBSCRIBE", [b"s%d" % n for n in range(6_000)])
        held(hub, large, b"SUBSCRIBE", [b"l%d" % n for n in range(4_000)])
        held(hub, slow, b"SUBSCRIBE", [b"a"])
        assert hub.info()["evicted_clients"] == 0
        # One that does not read is owed more and more, and is the first to go.
        while publisher.publish("a", b"x" * 60_000):
            pass
        assert hub.info()["evicted_clients"] == 1
        assert publisher.publish("l1", b"still there") == 1
        # Less is allowed from now on.
        hub.set({"limits.clients": 2 << 20})
        while publisher.publish("l1", b"gone"):
            pass
        assert hub.info()["evicted_clients"] == 2
        assert [publisher.publish(topic, b"x") for topic in ("small", "s1")] == [1, 1]


@pytest.mark.parametrize("kind", ["output", "request", "subscription"])
def test_memory_held_by_clients_is_counted_for_each_kind(kind: str) -> None:
    with (
        interlock.Hub(port=0, limits={"pubsub": {"hard": 0, "soft": 0}}) as hub,
        ExitStack() as stack,
    ):
        client = stack.enter_context(opened(hub))
        publisher = stack.enter_context(Client(hub.url, timeout=20))
        if kind == "request":
            client.sendall(b"*2\r\n$4\r\nECHO\r\n$9000000\r\n" + b"x" * 8_000_000)
        elif kind == "subscription":
            held(hub, client, b"SUBSCRIBE", [b"%d" % n for n in range(20_000)])
        else:
            held(hub, client, b"SUBSCRIBE", [b"a"])
            publisher.pipeline([("PUBLISH", "a", b"x" * 100_000)] * 200)
        while int(hub.info()["clients_bytes"]) < 5_000_000:
            pass
        client.close()
        while hub.info()["clients_bytes"]:
            pass
