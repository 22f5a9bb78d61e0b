"""ioredis, node-redis, go-redis, jedis and lettuce, unchanged: with Redis and the hub alike."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import interlock
from interlock.hub.client import Client
from tests.hub.protocol.foreign import LIBRARIES, NAME, ErrorReply, Foreign, Library, connected
from tests.hub.protocol.foreign_builds import SPOKEN, folder_of
from tests.hub.servers import hub_process, redis_server

# The first test waits for the builds.
pytestmark = pytest.mark.watchdog(300)

COUNT = 2000
# All five speak RESP3 unless told otherwise.
PROTOCOLS = {"RESP3": "default", "RESP2": "2"}


TRIED = [library for library in LIBRARIES if library.language in SPOKEN]


@pytest.fixture(scope="module", params=TRIED, ids=lambda library: library.name)
def library(request: pytest.FixtureRequest) -> Library:
    assert isinstance(request.param, Library)
    return request.param


@pytest.fixture(scope="module", params=PROTOCOLS)
def resp(request: pytest.FixtureRequest) -> str:
    assert isinstance(request.param, str)
    return request.param


@pytest.fixture(scope="module", params=["redis", "hub"])
def server(request: pytest.FixtureRequest) -> str:
    assert isinstance(request.param, str)
    return request.param


@pytest.fixture(scope="module")
def built(library: Library, builds: dict[str, Future[Path]]) -> Path:
    return folder_of(library.language, builds)


@pytest.fixture(scope="module")
def port(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with serving(server, tmp_path_factory.mktemp("server")) as found:
        yield found


@pytest.fixture(scope="module")
def opened(library: Library, built: Path, port: int, resp: str) -> Iterator[Foreign]:
    """One program for the tests of a module: a Java takes its time to start."""
    with connected(library, built, port, PROTOCOLS[resp]) as program:
        yield program
        assert program.close() == 0


@pytest.fixture
def client(opened: Foreign) -> Iterator[Foreign]:
    """The same program, of which each test leaves nothing unread and no subscription."""
    yield opened
    assert opened.nothing_left()


@contextmanager
def serving(server: str, folder: Path, port: int = 0) -> Iterator[int]:
    if server == "redis":
        with redis_server(folder, wanted=port) as (_, found):
            yield found
        return
    with hub_process("--port", str(port), "--workers", "2") as hub:
        yield hub.port
        # As an operator ends it: connected clients learn of it.
        assert hub.end()[0] == 0


def test_it_connects_and_asks(client: Foreign, library: Library, resp: str) -> None:
    version = client.ask("version").partition("/")[0]
    assert re.search(rf"(?<![\d.]){re.escape(version)}(?!\d)", library.pins())
    assert client.ask("ping") == "PONG"
    assert client.ask("name") == NAME
    info = dict(word.split("=") for word in client.ask("info").split())
    assert (info["name"], info["resp"], info["db"]) == (NAME, resp[-1], "0")
    assert client.ask("id") == info["id"]
    assert client.ask("publish", "nobody", "x") == "0"


def test_connecting_causes_only_the_expected_errors(
    library: Library, built: Path, resp: str, hub: interlock.Hub
) -> None:
    with connected(library, built, hub.port, PROTOCOLS[resp]) as client:
        client.ask("subscribe", "a")
        # On one of its connections, or on both.
        asks = resp in library.asks_for_maintenance
        assert hub.info()["total_error_replies"] in ((1, 2) if asks else (0,))


def test_an_error_of_the_server_is_the_librarys(client: Foreign, library: Library) -> None:
    with pytest.raises(ErrorReply) as raised:
        client.ask("unknown")
    assert raised.value.kind == library.error
    told = "ERR unknown command 'NONSENSE', with args beginning with: 'x'"
    assert raised.value.message.strip() == told
    # And that it was one harms nothing after it.
    assert client.ask("ping") == "PONG"


def test_channels_and_patterns(client: Foreign) -> None:
    client.ask("subscribe", "a", "b")
    client.ask("psubscribe", "a*")
    assert client.ask("publish", "b", "1") == "1"
    assert client.message() == ("", "b", "1")
    assert client.ask("publish", "ab", "2") == "1"
    assert client.message() == ("a*", "ab", "2")
    assert client.ask("publish", "a", "3") == "2"
    assert client.messages(2) == [("", "a", "3"), ("a*", "a", "3")]
    client.ask("unsubscribe", "a")
    assert client.ask("publish", "a", "4") == "1"
    assert client.message() == ("a*", "a", "4")
    client.ask("unsubscribe", "b")
    client.ask("punsubscribe", "a*")
    assert client.ask("publish", "a", "5") == client.ask("publish", "b", "5") == "0"


def test_shard_channels_are_channels_of_their_own(client: Foreign, library: Library) -> None:
    assert client.ask("spublish", "s", "1") == "0"
    if not library.shards:
        return
    client.ask("ssubscribe", "s")
    assert client.ask("publish", "s", "2") == "0"
    assert client.ask("spublish", "s", "3") == "1"
    assert client.message() == ("", "s", "3")
    client.ask("sunsubscribe", "s")
    assert client.ask("spublish", "s", "4") == "0"


def test_thousands_arrive_in_one_order(client: Foreign, port: int) -> None:
    """Two publish at once, each in one pipeline; two subscribers see the same."""
    client.ask("subscribe", "n")
    with Client(f"127.0.0.1:{port}") as second, Client(f"127.0.0.1:{port}") as publisher:
        second.subscribe("n")
        client.send("pipeline", "n", COUNT)
        ours = [f"ours-{number}" for number in range(COUNT)]
        assert publisher.pipeline([("PUBLISH", "n", word) for word in ours]) == [2] * COUNT
        assert client.reply() == f"{COUNT} {2 * COUNT}"
        found = client.messages(2 * COUNT)
        theirs = [str(number) for number in range(COUNT)]
        assert [data for *_, data in found if data.startswith("ours")] == ours
        assert [data for *_, data in found if not data.startswith("ours")] == theirs
        for pattern, channel, data in found:
            published = second.message(10)
            assert published is not None
            assert (pattern, channel, data) == ("", "n", published.payload.decode())
        client.ask("unsubscribe", "n")


def test_it_comes_back_after_a_restart(
    library: Library, built: Path, resp: str, server: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        with serving(server, tmp_path) as port:
            program = connected(library, built, port, PROTOCOLS[resp])
            client = stack.enter_context(program)
            client.ask("subscribe", "a", "c")
            client.ask("psubscribe", "b*")
            if library.shards:
                client.ask("ssubscribe", "s")
            assert client.ask("publish", "a", "before") == "1"
            assert client.message() == ("", "a", "before")
        with serving(server, tmp_path, port):
            client.wait_for("again")
            assert client.ask("publish", "c", "x") == "1"
            assert client.ask("publish", "bc", "y") == "1"
            assert client.messages(2) == [("", "c", "x"), ("b*", "bc", "y")]
            if library.shards:
                assert client.ask("spublish", "s", "z") == "1"
                assert client.message() == ("", "s", "z")
            client.ask("unsubscribe", "a")
            assert client.ask("publish", "a", "x") == "0"
            with Client(f"127.0.0.1:{port}") as other:
                assert other.publish("c", "from outside") == 1
            assert client.message() == ("", "c", "from outside")
            # The program knows its client's name; the new connections must have it again.
            assert client.ask("name") == NAME
