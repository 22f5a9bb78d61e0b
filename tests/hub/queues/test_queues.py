"""Keyed queues on a running hub: what a connection, its rights and its end have to do with them."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

import interlock
from interlock import _core
from interlock.hub import passwords
from interlock.hub.client import Client
from interlock.hub.resp import ReplyError, command
from tests.hub.config.test_limits import opened, to_the_end
from tests.hub.servers import needs_hub

LONG = 30_000_000
"""µs: longer than any of these tests waits."""


@pytest.fixture
def hub() -> Iterator[interlock.Hub]:
    needs_hub()
    with interlock.Hub(port=0, workers=2) as running:
        yield running


@pytest.fixture
def client(hub: interlock.Hub) -> Iterator[Client]:
    with connected(hub) as one:
        yield one


def connected(hub: interlock.Hub) -> Client:
    return Client(hub.addresses[0], timeout=20)


def fcall(client: Client, name: str, *args: str | int, queue: str = "q") -> list[bytes]:
    reply = client.call("FCALL", f"il1_{name}", 1, f"il:{{{queue}}}", *args)
    assert isinstance(reply, list)
    return reply


def put(client: Client, payload: str, *keys: str, wait: int = 0) -> bytes:
    return fcall(client, "put", "", 0, wait, payload, len(keys), 0, 0, *keys)[0]


def lease(client: Client, consumer: str, wait: int = 0, call: int = 1) -> list[bytes]:
    return fcall(client, "lease", consumer, call, wait, 1, LONG, "any")


def payload(leased: list[bytes]) -> bytes | None:
    return leased[7] if leased[3] == b"1" else None


def waiting(hub: interlock.Hub, count: int) -> None:
    """Wait until this number of calls is parked."""
    with connected(hub) as watcher:
        while f"blocked_clients:{count}\r\n".encode() not in info(watcher):
            pass


def info(client: Client) -> bytes:
    text = client.call("INFO", "clients")
    assert isinstance(text, bytes)
    return text


class Beside:
    """A call on a connection of its own."""

    def __init__(self, hub: interlock.Hub, call: Callable[[Client], object]) -> None:
        self.result: object = None
        self.client = connected(hub)
        self._call = call
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.result = self._call(self.client)
        except Exception as error:
            self.result = error

    def join(self) -> object:
        self._thread.join()
        self.client.close()
        return self.result


def test_who_waits_for_work_is_answered_by_the_put_of_another_connection(
    hub: interlock.Hub, client: Client
) -> None:
    # Dealt to the two workers in turn: some wait on the one that puts, some on the other.
    consumers = [Beside(hub, lambda c, n=n: payload(lease(c, f"c{n}", LONG))) for n in range(4)]  # type: ignore[misc]
    waiting(hub, 4)
    for number in range(4):
        put(client, str(number), f"key {number}")
    assert sorted(map(str, (one.join() for one in consumers))) == [f"b'{n}'" for n in range(4)]
    waiting(hub, 0)


def test_what_waits_behind_a_key_is_handed_out_when_that_is_settled(
    hub: interlock.Hub, client: Client
) -> None:
    put(client, "first", "a")
    put(client, "second", "a")
    first = lease(client, "me")
    other = Beside(hub, lambda c: payload(lease(c, "other", LONG)))
    waiting(hub, 1)
    fcall(client, "settle", "me", 2, "ACK", first[0].decode(), first[4].decode())
    assert other.join() == b"second"


def test_a_wait_ends_in_its_time(client: Client) -> None:
    assert lease(client, "me", wait=1000)[3] == b"0"
    fcall(client, "configure", "MAXSIZE", 1)
    put(client, "one")
    with pytest.raises(ReplyError, match="FULL il1_put"):
        put(client, "two", wait=1000)


def test_who_waits_for_room_gets_it(hub: interlock.Hub, client: Client) -> None:
    fcall(client, "configure", "MAXSIZE", 1)
    put(client, "one")
    producer = Beside(hub, lambda c: put(c, "two", wait=LONG))
    waiting(hub, 1)
    held = lease(client, "me")
    fcall(client, "settle", "me", 2, "ACK", held[0].decode(), held[4].decode())
    assert isinstance(producer.join(), bytes)
    assert payload(lease(client, "me", call=3)) == b"two"


def test_nothing_is_handed_to_a_connection_that_is_gone(hub: interlock.Hub, client: Client) -> None:
    arguments = ("il1_lease", 1, "il:{q}", "gone", 1, LONG, 1, LONG, "any")
    with opened(hub) as gone:
        gone.sendall(command("FCALL", *map(str, arguments)))
        waiting(hub, 1)
    waiting(hub, 0)
    put(client, "kept")
    assert payload(lease(client, "me")) == b"kept"


# Waits for work, with more calls behind that one or without, and sleeps until it is killed.
VICTIM = """
import socket, sys, time
host, _, port = sys.argv[1].rpartition(":")
with socket.create_connection((host, int(port))) as one:
    one.sendall(bytes.fromhex(sys.argv[2]))
    time.sleep(600)
"""


@pytest.mark.parametrize("behind", [b"", command("PING") * 2000], ids=["alone", "with more"])
@pytest.mark.parametrize("call", ["il1_lease", "il1_join", "il1_result"])
def test_a_call_of_a_program_that_is_killed_waits_no_more(
    hub: interlock.Hub, client: Client, call: str, behind: bytes
) -> None:
    first = put(client, "first", "a")
    held = lease(client, "me")
    arguments = {
        "il1_lease": ("victim", 1, LONG, 1, LONG, "any"),
        "il1_join": (LONG,),
        "il1_result": (first.decode(), LONG),
    }[call]
    sent = command("FCALL", call, "1", "il:{q}", *map(str, arguments)) + behind
    program = [sys.executable, "-c", VICTIM, hub.addresses[0], sent.hex()]
    with subprocess.Popen(program) as victim:
        waiting(hub, 1)
        victim.kill()
        waiting(hub, 0)
    put(client, "second", "a")
    fcall(client, "settle", "me", 2, "ACK", held[0].decode(), held[4].decode())
    # It was handed to nobody.
    assert payload(lease(client, "me", call=3)) == b"second"


def test_a_waiting_call_that_is_sent_again_is_one_call(hub: interlock.Hub, client: Client) -> None:
    put(client, "first", "a")
    held = lease(client, "me")
    settling = ("ACK", held[0].decode(), held[4].decode())
    arguments = ("il1_next", "1", "il:{q}", "me", "2", str(LONG), "1", str(LONG), "any", *settling)
    with opened(hub) as lost:
        lost.sendall(command("FCALL", *arguments))
        waiting(hub, 1)
    waiting(hub, 0)
    again = Beside(hub, lambda c: c.call("FCALL", *arguments))
    while stat(client, "acks") != 1:
        pass
    put(client, "second", "a")
    reply = again.join()
    assert isinstance(reply, list)
    assert reply[:2] == [b"1", b"ACKED"] and b"second" in reply
    # And once it was answered, the same again.
    assert client.call("FCALL", *arguments) == reply


def stat(client: Client, name: str) -> int:
    pairs = fcall(client, "stats")
    return int(pairs[pairs.index(name.encode()) + 1])


def test_replies_keep_their_order_behind_a_call_that_waits(
    hub: interlock.Hub, client: Client
) -> None:
    lines = (
        command("FCALL", "il1_lease", "1", "il:{q}", "me", "1", str(LONG), "1", str(LONG), "any"),
        command("PING"),
    )
    with opened(hub) as asker:
        asker.sendall(b"".join(lines))
        waiting(hub, 1)
        put(client, "work")
        asker.sendall(command("QUIT"))
        said = to_the_end(asker)
    assert said.index(b"work") < said.index(b"+PONG") < said.index(b"+OK")


def test_a_hub_that_stops_does_not_wait_for_who_waits(hub: interlock.Hub) -> None:
    consumer = Beside(hub, lambda c: lease(c, "me", LONG))
    waiting(hub, 1)
    hub.stop()
    assert isinstance(consumer.join(), ConnectionError)


def test_a_client_that_waits_is_not_idle(hub: interlock.Hub) -> None:
    hub.set({"idle_timeout": 1})
    consumer = Beside(hub, lambda c: payload(lease(c, "me", 2_500_000)))
    assert consumer.join() is None


def test_puts_are_refused_at_the_memory_limit_and_all_else_goes_on(
    hub: interlock.Hub, client: Client
) -> None:
    hub.set({"queues.memory": 1 << 20})
    with pytest.raises(ReplyError, match=r"^OOM "):
        [put(client, "x" * 10_000, f"key {number}") for number in range(2000)]
    call = 0
    while payload(held := lease(client, "me", call=(call := call + 1))) is not None:
        call += 1
        fcall(client, "settle", "me", call, "ACK", held[0].decode(), held[4].decode())
    assert call > 50
    assert put(client, "again")


def test_a_guest_that_leases_from_many_names_costs_others_nothing(
    hub: interlock.Hub, client: Client
) -> None:
    hub.set({"queues.memory": 8 << 20})
    names = [f"tmp.{number}" for number in range(16_500)]
    for start in range(0, len(names), 500):
        client.pipeline([
            ("FCALL", "il1_lease", 1, f"il:{{{name}}}", "me", 1, 0, 1, LONG, "any")
            for name in names[start : start + 500]
        ])  # fmt: skip
    assert hub.info()["queues"] == 0
    assert put(client, "x" * 1_000_000)
    assert hub.info()["queues_reclaimed"] >= 16_500


def test_a_user_fills_its_own_queues_and_nobody_elses() -> None:
    needs_hub()
    guest = {"name": "guest", "passwords": [HASH], "queues": ["tmp.*"], "queues_memory": 1 << 20}
    users = [guest, {"name": "app", "passwords": [HASH], "queues": ["*"]}]
    with (
        interlock.Hub(port=0, user=users) as hub,
        logged_in(hub, "guest") as client,
        logged_in(hub, "app") as app,
    ):
        payloads: list[str | int] = ["", 0, 0, "x" * 9000, 0, 0, 0]
        with pytest.raises(ReplyError, match=r"^OOM il1_put: .* 1048576 bytes"):
            [fcall(client, "put", *payloads, queue=f"tmp.{n % 3}") for n in range(2000)]
        held = fcall(client, "lease", "me", 1, 0, 1, LONG, "any", queue="tmp.0")
        assert payload(held) == b"x" * 9000
        assert fcall(app, "put", *payloads)
        assert hub.info()["queues_refused"] == 1
        hub.set({"user": [{**guest, "queues_memory": 2 << 20}, users[1]]})
        assert fcall(client, "put", *payloads, queue="tmp.new")


HASH = passwords.hashed("secret")
USERS = [
    {"name": "producer", "passwords": [HASH], "queues": ["orders", "mail.*"]},
    {"name": "reader", "passwords": [HASH], "queues": ["*"], "commands": ["@read"]},
    {
        "name": "worker",
        "passwords": [HASH],
        "queues": ["*"],
        "commands": ["@produce", "@consume", "@declare"],
    },
]


@pytest.fixture
def guarded() -> Iterator[interlock.Hub]:
    needs_hub()
    with interlock.Hub(port=0, workers=1, user=USERS) as running:
        yield running


def logged_in(hub: interlock.Hub, name: str) -> Client:
    return Client(f"redis://{name}:secret@{hub.addresses[0]}", timeout=20)


def test_a_right_to_a_queue_is_by_its_name(guarded: interlock.Hub) -> None:
    with logged_in(guarded, "producer") as client:
        for allowed in ("orders", "mail.fast"):
            assert fcall(client, "put", "", 0, 0, "x", 0, 0, 0, queue=allowed)
        for refused in ("orders.eu", "payments", "mail"):
            with pytest.raises(ReplyError, match=r"NOPERM .* one of the keys"):
                fcall(client, "put", "", 0, 0, "x", 0, 0, 0, queue=refused)
        with pytest.raises(ReplyError, match="BADARG il1_put: takes one key"):
            client.call("FCALL", "il1_put", 1, "orders", "", 0, 0, "x", 0, 0, 0)
        assert client.call("FCALL", "il1_queues", 0) == [b"mail.fast", b"orders"]
    with logged_in(guarded, "reader") as client:
        assert client.call("FCALL", "il1_queues", 0) == [b"mail.fast", b"orders"]


def test_a_grant_to_queues_excludes_operating_them(guarded: interlock.Hub) -> None:
    with logged_in(guarded, "producer") as client:
        for name in ("configure", "put", "lease", "settle", "next", "extend", "stats", "join"):
            with pytest.raises(ReplyError, match=r"BADARG|wrong") as told:
                fcall(client, name, "nonsense", queue="orders")
            assert "NOPERM" not in str(told.value)
        operates = [name for name, of in _core.HubServer.commands() if "@operate" in of]
        assert len(operates) >= 13
        for full in operates:
            with pytest.raises(ReplyError, match=r"^NOPERM "):
                fcall(client, full.removeprefix("fcall|il1_"), "FORCE", queue="orders")
        with pytest.raises(ReplyError, match=r"^NOPERM .*REPLACE"):
            fcall(client, "configure", "REPLACE", "MAXSIZE", 1, queue="orders")


def test_a_right_is_to_functions_by_their_class(guarded: interlock.Hub) -> None:
    with logged_in(guarded, "reader") as client:
        assert fcall(client, "stats")
        assert client.call("FCALL_RO", "il1_stats", 1, "il:{q}")
        with pytest.raises(ReplyError, match=r"NOPERM .* 'fcall\|il1_put'"):
            put(client, "x")
    with logged_in(guarded, "worker") as client:
        put(client, "x")
        with pytest.raises(ReplyError, match=r"NOPERM .* 'fcall\|il1_purge'"):
            fcall(client, "purge", "pending")
        with pytest.raises(ReplyError, match=r"NOPERM .* 'fcall\|il1_drop'"):
            fcall(client, "drop", "FORCE")
        with pytest.raises(ReplyError, match=r"NOPERM .* 'fcall\|il1_restore'"):
            fcall(client, "restore", 9, "m", "waiting", 7, 0, "", "x", 0, 0, 0)
        assert fcall(client, "configure", "MAXSIZE", 5)
        with pytest.raises(ReplyError, match=r"NOPERM .* 'fcall\|il1_configure' .* REPLACE"):
            fcall(client, "configure", "REPLACE", "MAXSIZE", 6)


def test_who_reads_may_watch_and_who_consumes_may_announce_itself(guarded: interlock.Hub) -> None:
    with logged_in(guarded, "worker") as client:
        assert fcall(client, "announce", "w", LONG, "{}") == []
        for name in ("ask", "workers", "events"):
            with pytest.raises(ReplyError, match=rf"NOPERM .* 'fcall\|il1_{name}'"):
                fcall(client, name, "", 9, LONG)
    with logged_in(guarded, "reader") as client:
        assert fcall(client, "workers", "", 9)[0] == b"w"
        assert client.call("FCALL_RO", "il1_workers", 1, "il:{q}", "", 9)
        assert fcall(client, "events", "", 9, LONG)
        with pytest.raises(ReplyError, match="Can not execute a script with write flag"):
            client.call("FCALL_RO", "il1_events", 1, "il:{q}", "", 9, LONG)
        for name in ("announce", "ask", "forget"):
            with pytest.raises(ReplyError, match=rf"NOPERM .* 'fcall\|il1_{name}'"):
                fcall(client, name, "w", 0, "")
    with logged_in(guarded, "producer") as client, pytest.raises(ReplyError, match=r"^NOPERM "):
        fcall(client, "workers", "", 9)


def test_a_reading_call_cannot_write(client: Client) -> None:
    with pytest.raises(ReplyError, match="Can not execute a script with write flag"):
        client.call("FCALL_RO", "il1_put", 1, "il:{q}", "", 0, 0, "x", 0, 0, 0)
    with pytest.raises(ReplyError, match="ERR Function not found"):
        client.call("FCALL_RO", "il1_nothing", 1, "il:{q}")


def test_the_number_of_keys_is_looked_at_as_redis_does(client: Client) -> None:
    for wrong, text in {
        "x": "Bad number of keys provided",
        "-1": "Number of keys can't be negative",
        "3": "Number of keys can't be greater than number of args",
        "0": "BADARG il1_stats: takes one key",
    }.items():
        with pytest.raises(ReplyError, match=text):
            client.call("FCALL", "il1_stats", wrong, "il:{q}")
