"""RELAY: what another hub brings is taken once, in order, and answered when stores have it."""

from __future__ import annotations

import select
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from interlock.hub.client import Client
from interlock.hub.resp import ReplyError
from tests.hub.servers import HubProcess, hub_process, needs_hub

A, B, C = (f"{number:032x}" for number in (0xA00, 0xB00, 0xC00))


class Server:
    """The configuration of a hub, and the files of its stores."""

    def __init__(self, folder: Path) -> None:
        self.out = folder / "out"
        self.config = folder / "hub.toml"
        self.log = folder / "hub.log"

    def flags(self, *stores: str, head: str = "") -> tuple[str, str]:
        text = "".join(f"[[store]]\n{store}\n" for store in stores)
        self.config.write_text(f'port = 0\nworkers = 2\n{head}\n[log]\nfile = "{self.log}"\n{text}')
        return "--config", str(self.config)

    def store(self, **more: str) -> str:
        keys = {"name": '"files"', "path": f'"{self.out}/[topic].log"', **more}
        return "\n".join(f"{key} = {value}" for key, value in keys.items())

    def lines(self, topic: str) -> list[str]:
        path = self.out / f"{topic}.log"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def server(tmp_path: Path) -> Server:
    needs_hub()
    return Server(tmp_path)


def address(hub: HubProcess) -> str:
    return f"127.0.0.1:{hub.port}"


def info(hub: HubProcess) -> dict[str, str]:
    with Client(address(hub)) as client:
        found = client.call("INFO", "all")
    assert isinstance(found, bytes)
    return dict(line.split(":", 1) for line in found.decode().splitlines() if ":" in line)


def relay(number: int, text: str, topic: str = "t", origin: str = A, time: int = 1) -> Any:
    return ("RELAY", origin, str(number), str(time), topic, text)


def texts(replies: list[object]) -> list[str]:
    return [str(reply) for reply in replies]


def test_a_message_that_comes_again_is_taken_once_and_acknowledged_each_time(
    server: Server,
) -> None:
    flags = server.flags(server.store())
    with hub_process(*flags) as hub, Client(address(hub)) as reader:
        reader.subscribe("t")
        for _ in range(2):
            with Client(address(hub)) as sender:
                assert sender.call("RELAY", "OPEN", A) == "OK"
                replies = sender.pipeline([relay(n, f"m{n}") for n in (1, 2, 5)])
                assert replies == ["OK"] * 3
                # Answered: it is in the file, whatever the store promises to publishers.
                assert server.lines("t") == ["m1", "m2", "m5"]
        with Client(address(hub)) as sender:
            sender.call("RELAY", "OPEN", A)
            assert sender.pipeline([relay(5, "m5"), relay(6, "m6"), relay(4, "old")]) == ["OK"] * 3
        seen = [message.payload for _ in range(4) if (message := reader.message(20)) is not None]
        assert seen == [b"m1", b"m2", b"m5", b"m6"]
        assert reader.message(0.2) is None
        found = info(hub)
        assert (found["messages_relayed"], found["messages_relayed_again"]) == ("4", "5")
        hub.process.kill()
        hub.process.wait()
    with hub_process(*flags) as hub, Client(address(hub)) as sender:
        sender.call("RELAY", "OPEN", A)
        assert sender.pipeline([relay(6, "m6"), relay(7, "m7")]) == ["OK"] * 2
    assert server.lines("t") == ["m1", "m2", "m5", "m6", "m7"]


def test_a_hub_without_stores_relays_to_subscribers(server: Server) -> None:
    with hub_process(*server.flags()) as hub, Client(address(hub)) as client:
        client.subscribe("t")
        assert client.call("RELAY", "OPEN", A) == "OK"
        assert client.pipeline([relay(1, "x"), relay(1, "x"), relay(2, "y")]) == ["OK"] * 3
        seen = [message.payload for _ in range(2) if (message := client.message(20)) is not None]
        assert seen == [b"x", b"y"]


WRONG = (
    (("RELAY", "OPEN", "abc"), "32 hexadecimal"),
    (("RELAY", "OPEN", "0" * 32), "32 hexadecimal"),
    (("RELAY", "OPEN", "+" + "1" * 31), "32 hexadecimal"),
    (("RELAY", "OPEN", "g" * 32), "32 hexadecimal"),
    (("RELAY", "OPEN", b"\xff" * 32), "32 hexadecimal"),
    (("RELAY", "CLOSE", A), "wrong number"),
    (("RELAY", "OPEN"), "wrong number"),
    (("RELAY", A, "1", "1", "t"), "wrong number"),
    (("RELAY", A, "1", "1", "t", "x", "y"), "wrong number"),
    (("RELAY", "x", "1", "1", "t", "x"), "32 hexadecimal"),
    (("RELAY", "f" * 32, "1", "1", "t", "x"), "count hubs"),
    (("RELAY", A, "0", "1", "t", "x"), "a number of a message"),
    (("RELAY", A, "-1", "1", "t", "x"), "a number of a message"),
    (("RELAY", A, "+1", "1", "t", "x"), "a number of a message"),
    (("RELAY", A, "", "1", "t", "x"), "a number of a message"),
    (("RELAY", A, str(2**64), "1", "t", "x"), "a number of a message"),
    (("RELAY", A, "9" * 10_000, "1", "t", "x"), "a number of a message"),
    (("RELAY", A, "1", "1e3", "t", "x"), "a time"),
    (("RELAY", A, "1", str(2**64), "t", "x"), "a time"),
    (("RELAY", A, "1", "1", "t" * 70_000, "x"), "topic"),
)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Any:
    needs_hub()
    server = Server(tmp_path_factory.mktemp("plain"))
    with hub_process(*server.flags(server.store())) as hub:
        yield hub


@pytest.mark.parametrize(("call", "told"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_call_is_refused_and_so_is_what_comes_behind_it(
    plain: HubProcess, call: tuple[Any, ...], told: str
) -> None:
    with Client(address(plain)) as client:
        assert client.call("RELAY", "OPEN", B) == "OK"
        is_opening = call[1] == "OPEN" and len(call) > 2
        replies = client.pipeline([call, relay(1, "x", topic="wrong"), ("PING",)])
        assert told in str(replies[0])
        assert isinstance(replies[0], ReplyError)
        # A wrong OPEN leaves the one before as it was.
        expected = "OK" if is_opening else "was refused"
        assert expected in str(replies[1])
        assert replies[2] == "PONG"
        assert client.call("RELAY", "OPEN", B) == "OK"
        assert client.call(*relay(1, "x", topic="wrong")) == "OK"


def test_nothing_is_relayed_before_a_sender_is_named(plain: HubProcess) -> None:
    with Client(address(plain)) as client:
        with pytest.raises(ReplyError, match="RELAY OPEN comes first"):
            client.call(*relay(1, "x"))
        client.call("RELAY", "OPEN", C)
        client.call("RESET")
        with pytest.raises(ReplyError, match="RELAY OPEN comes first"):
            client.call(*relay(1, "x"))


def test_the_greatest_number_and_the_strangest_topics(server: Server) -> None:
    topics = ["", "a\0b", "../../x", "\n", "\udcff"]
    with hub_process(*server.flags(server.store())) as hub, Client(address(hub)) as client:
        client.call("RELAY", "OPEN", A)
        for number, topic in enumerate(topics, 1):
            name = topic.encode(errors="surrogateescape")
            assert client.call("RELAY", A, str(number), "1", name, "x") == "OK"
            assert client.call("XLEN", name) == 1
        assert client.call(*relay(2**64 - 1, "last", time=2**64 - 1)) == "OK"
        assert client.call(*relay(2**64 - 1, "last")) == "OK"
        # Its time was not this hub's, which continues.
        client.call("PUBLISH", "t", "local")
        while client.call("XLEN", "t") != 2:
            pass
        entries = client.call("XRANGE", "t", "-", "+")
        assert isinstance(entries, list)
        now = client.call("TIME")
        assert isinstance(now, list)
        assert int(entries[-1][0].split(b"-")[0]) <= int(now[0]) * 1000 + 1000
    assert not (server.out.parent.parent / "x.log").exists()


def test_rights_are_those_of_publish_and_one_refusal_holds_up_all_behind_it(
    server: Server,
) -> None:
    from interlock.hub import passwords

    user = (
        f'[[user]]\nname = "agent"\npasswords = ["{passwords.hashed("p")}"]\npublish = ["ok.*"]\n'
    )
    without = (
        f'[[user]]\nname = "reader"\npasswords = ["{passwords.hashed("p")}"]\n'
        'subscribe = ["*"]\ncommands = ["@all", "-relay"]\n'
    )
    flags = server.flags(server.store(), f"name = 'no'\nkind = 'null'\n{user}{without}")
    with hub_process(*flags) as hub:
        with Client(f"redis://agent:p@127.0.0.1:{hub.port}") as client:
            client.call("RELAY", "OPEN", A)
            told = texts(
                client.pipeline(
                    [
                        relay(1, "x", topic="ok.1"),
                        relay(2, "x", topic="other"),
                        relay(3, "x", topic="ok.1"),
                    ]
                )
            )
            assert told[0] == "OK"
            assert "NOPERM" in told[1]
            assert "was refused" in told[2]
            client.call("RELAY", "OPEN", A)
            # Nothing made it look old.
            assert client.call(*relay(2, "y", topic="ok.1")) == "OK"
        assert server.lines("ok.1") == ["x", "y"]
        with (
            Client(f"redis://reader:p@127.0.0.1:{hub.port}") as client,
            pytest.raises(ReplyError, match="NOPERM"),
        ):
            client.call("RELAY", "OPEN", A)


class Raw:
    """A connection that sends without reading; its lines end with b"" when the hub ends it."""

    def __init__(self, hub: HubProcess, sender: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", hub.port))
        self.socket.settimeout(20)
        self.stream = self.socket.makefile("rb")
        self.send("RELAY", "OPEN", sender)

    def send(self, *words: str) -> None:
        parts = [f"${len(word)}\r\n{word}\r\n" for word in words]
        self.socket.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())

    def line(self) -> bytes:
        try:
            return self.stream.readline()
        except ConnectionResetError:
            return b""

    def close(self) -> None:
        self.stream.close()
        self.socket.close()


def test_a_sender_has_one_connection_the_last_one(server: Server) -> None:
    with hub_process(*server.flags(server.store())) as hub:
        first, other = Raw(hub, A), Raw(hub, B)
        assert first.line() == other.line() == b"+OK\r\n"
        second = Raw(hub, A)
        # The one before is closed, and then the next is let in.
        assert (first.line(), second.line()) == (b"", b"+OK\r\n")
        second.send(*relay(1, "x"))
        other.send(*relay(1, "y", origin=B))
        assert second.line() == other.line() == b"+OK\r\n"
        for raw in (first, second, other):
            raw.close()
        assert sorted(server.lines("t")) == ["x", "y"]


def test_of_connections_that_follow_each_other_the_last_remains_in_order(server: Server) -> None:
    """Many connections of one sender, each with what is not acknowledged, some cut in the middle:
    a subscriber has all in order and none twice, and so has the file."""
    count, left = 8_000, [1]
    with hub_process(*server.flags(server.store())) as hub, Client(address(hub)) as reader:
        reader.subscribe("t")
        olds: list[Raw] = []
        while left[0] <= count:
            raw = Raw(hub, A)
            # The one before still has requests under way.
            for number in range(left[0], min(left[0] + 2000, count + 1)):
                raw.send(*relay(number, f"m{number}"))
            assert raw.line() == b"+OK\r\n"
            for _ in range(min(700, count + 1 - left[0])):
                assert raw.line() == b"+OK\r\n"
                left[0] += 1
            olds.append(raw)
        seen: list[str] = []
        while len(seen) < count:
            message = reader.message(20)
            assert message is not None
            seen.append(message.payload.decode())
        expected = [f"m{number}" for number in range(1, count + 1)]
        assert seen == expected
        assert reader.message(0.2) is None
        assert server.lines("t") == expected
        for raw in olds:
            raw.close()


def test_a_full_store_holds_up_the_reply_and_nothing_is_lost(server: Server) -> None:
    server.out.mkdir()
    (server.out / "no").write_text("in the way")
    store = server.store(path=f'"{server.out}/no/[topic].log"', queue='"4KB"', topics='["t"]')
    with hub_process(*server.flags(store)) as hub:
        raw = Raw(hub, A)
        assert raw.line() == b"+OK\r\n"
        for number in range(1, 500):
            raw.send(*relay(number, f"m{number}"))
        while int(info(hub)["store_files"].split("in_flight=")[1].split(",")[0]) == 0:
            pass
        # It is taken, and not answered before it is written.
        assert select.select([raw.socket], [], [], 0.3)[0] == []
        # Somebody else is not held up, and a wait does not hold a later connection off.
        with Client(address(hub)) as client:
            client.call("RELAY", "OPEN", B)
            assert client.call(*relay(1, "x", topic="free", origin=B)) == "OK"
        again = Raw(hub, A)
        assert raw.line() == b""
        assert again.line() == b"+OK\r\n"
        for number in range(1, 500):
            again.send(*relay(number, f"m{number}"))
        # While settings are applied, and change.
        hub.process.send_signal(signal.SIGHUP)
        (server.out / "no").unlink()
        for _ in range(1, 500):
            assert again.line() == b"+OK\r\n"
        assert (server.out / "no" / "t.log").read_text().splitlines() == [
            f"m{number}" for number in range(1, 500)
        ]
        again.close()
        raw.close()


def test_a_transaction_around_it_changes_nothing(plain: HubProcess) -> None:
    with Client(address(plain)) as client:
        replies = client.pipeline(
            [
                ("RELAY", "OPEN", C),
                ("MULTI",),
                relay(10, "x", topic="multi", origin=C),
                ("EXEC",),
            ]
        )
        assert replies[0] == replies[2] == "OK"
        assert "no transactions" in str(replies[1])
        assert client.call("XLEN", "multi") == 1


def test_messages_of_one_origin_by_two_ways_are_all_taken(server: Server) -> None:
    """Two hubs pass on what they have of one agent, which has turned from one to the other: the
    later part may come first, and is no reason to leave out the earlier one."""
    with hub_process(*server.flags(server.store())) as hub:
        for sender, numbers in ((C, range(51, 101)), (B, range(1, 51))):
            with Client(address(hub)) as client:
                client.call("RELAY", "OPEN", sender)
                told = client.pipeline([relay(n, f"m{n}") for n in numbers])
                assert told == ["OK"] * 50
        assert len(set(server.lines("t"))) == 100


def test_a_message_that_goes_around_is_left_out(server: Server) -> None:
    origin = f"{0xABC10:032x}"
    with hub_process(*server.flags(server.store())) as hub, Client(address(hub)) as client:
        client.call("RELAY", "OPEN", B)
        assert client.call(*relay(1, "x", origin=origin)) == "OK"
        assert info(hub)["relay_circles"] == "1"
        assert server.lines("t") == []
        while "16 hubs" not in server.log.read_text():
            pass


def test_a_sender_that_floods_may_be_ended_in_the_middle(server: Server) -> None:
    with hub_process(*server.flags(server.store(ack='"disk"'))) as hub:
        raw = Raw(hub, A)
        assert raw.line() == b"+OK\r\n"

        def flood() -> None:
            try:
                for number in range(1, 200_000):
                    raw.send(*relay(number, f"m{number}"))
            except OSError:
                pass

        thread = threading.Thread(target=flood)
        thread.start()
        acknowledged = 0
        while acknowledged < 1000 and raw.line() == b"+OK\r\n":
            acknowledged += 1
        hub.process.kill()
        hub.process.wait()
        while raw.line() == b"+OK\r\n":
            acknowledged += 1
        thread.join()
        raw.close()
    with (
        hub_process(*server.flags(server.store(ack='"disk"'))) as hub,
        Client(address(hub)) as client,
    ):
        client.call("RELAY", "OPEN", A)
        client.call(*relay(10**9, "end"))
        lines = server.lines("t")
    assert lines == [f"m{number}" for number in range(1, len(lines))] + ["end"]
    assert len(lines) > acknowledged >= 1000
