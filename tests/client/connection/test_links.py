"""A connection on which a command that waits and the one behind it are sent in one go."""

from __future__ import annotations

import asyncio
import contextlib
import socketserver
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis.connection

from interlock.client.request import Broken, Refused
from interlock.client.transport import thread_link as threads
from interlock.client.transport.loop_link import AsyncLink
from interlock.client.transport.redis_connection import make
from interlock.client.transport.thread_link import Link
from interlock.client.url import parse
from tests.executor.executors import script

Asks = Callable[..., Any]
WITHOUT = "hiredis is not installed, or not to be used"
apart = pytest.mark.skipif("threads.hiredis is None", reason=WITHOUT)


@pytest.fixture(params=["hiredis", "redis-py", "asyncio", "asyncio by redis-py"])
def ask(request: pytest.FixtureRequest, engine_port: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Asks over one connection after the other's reply."""
    port = engine_port
    target = parse(f"redis://127.0.0.1:{port}/0")
    address = f"127.0.0.1:{port}"
    if request.param.endswith("redis-py"):
        monkeypatch.setattr(threads, "hiredis", None)
    if request.param.startswith("asyncio"):
        with asyncio.Runner() as runner:

            async def made() -> AsyncLink:
                return AsyncLink(target, address)

            link = runner.run(made())
            yield lambda *asked, **more: runner.run(link.ask(*asked, **more))
            link.close()
        return
    if request.param == "hiredis" and threads.hiredis is None:
        pytest.skip(WITHOUT)
    blocking = Link(target, address)
    yield blocking.ask
    blocking.close()


def test_a_finished_wait_is_followed_by_the_reply_to_the_command_sent_with_it(ask: Asks) -> None:
    for word in (b"one", b"two"):
        before = ("BLPOP", "links:empty", "0.05")
        assert ask(("ECHO", word), 30, before=before, nudge=0.052) == word
        # Nothing is left over: neither what the wait was answered, nor a PING's PONG.
        assert ask(("ECHO", "next"), 30) == b"next"


def test_the_reply_that_ends_a_wait_is_not_returned_as_the_command_s_reply(ask: Asks) -> None:
    ask(("RPUSH", "links:full", "woken"), 30)
    before = ("BLPOP", "links:full", "20")
    assert ask(("LLEN", "links:full"), 30, before=before, nudge=20.002) == 0
    assert ask(("ECHO", "next"), 30) == b"next"


def test_a_wait_sent_alone_returns_its_own_reply(ask: Asks) -> None:
    assert ask(("BLPOP", "links:empty", "0.05"), 30, nudge=0.052) is None
    assert ask(("ECHO", "next"), 30) == b"next"


def test_a_refused_wait_does_not_hide_the_following_reply(ask: Asks) -> None:
    before = ("BLPOP", "links:empty")
    assert ask(("ECHO", "asked"), 30, before=before, nudge=1) == b"asked"
    with pytest.raises(Refused, match="unknown command"):
        ask(("NO-SUCH",), 30, before=before, nudge=1)
    assert ask(("ECHO", "next"), 30) == b"next"


def test_a_reply_that_does_not_come_in_time_breaks_the_connection(ask: Asks) -> None:
    with pytest.raises(Broken) as broken:
        ask(("BLPOP", "links:empty", "0"), 0.1)
    assert broken.value.sent
    # It is made anew.
    assert ask(("ECHO", "next"), 30) == b"next"


@apart
def test_a_command_sent_without_a_wait_gets_its_reply(engine_port: int) -> None:
    link = Link(parse(f"redis://127.0.0.1:{engine_port}/0"), f"127.0.0.1:{engine_port}")
    assert link.send(("ECHO", "one"), 30)
    assert link.receive() == b"one"
    assert link.send(("NO-SUCH",), 30)
    with pytest.raises(Refused, match="unknown command"):
        link.receive()
    # The connection is as good as before.
    assert link.ask(("ECHO", "next"), 30) == b"next"
    assert link.send(("BLPOP", "links:empty", "0"), 0.1)
    with pytest.raises(Broken, match="no answer") as broken:
        link.receive()
    assert broken.value.sent
    assert link.ask(("ECHO", "next"), 30) == b"next"
    link.close()


@apart
def test_sending_without_a_connection_or_after_an_interruption_fails(engine_port: int) -> None:
    target = parse(f"redis://127.0.0.1:{engine_port}/0")
    nobody = Link(target, "127.0.0.1:1")
    assert not nobody.send(("ECHO", "one"), 30)
    with pytest.raises(Broken):
        nobody.ask(("ECHO", "one"), 30)
    link = Link(target, f"127.0.0.1:{engine_port}")
    assert link.send(("BLPOP", "links:empty", "0"), 30)
    link.interrupt()
    with pytest.raises(Broken) as broken:
        link.receive()
    assert broken.value.sent
    assert not link.send(("ECHO", "one"), 30)
    link.close()


@pytest.mark.parametrize("parser", ["hiredis", "redis-py", "asyncio"])
def test_a_loading_server_is_asked_again(monkeypatch: pytest.MonkeyPatch, parser: str) -> None:
    if parser == "hiredis" and threads.hiredis is None:
        pytest.skip(WITHOUT)
    if parser == "redis-py":
        monkeypatch.setattr(threads, "hiredis", None)
    said: list[str] = []
    with loading() as port:
        target, address = parse(f"redis://127.0.0.1:{port}/0"), f"127.0.0.1:{port}"
        if parser == "asyncio":

            async def ask_often() -> None:
                link = AsyncLink(target, address)
                for _ in range(3):
                    try:
                        await link.ask(("ECHO", "x"), 30)
                    except (Refused, Broken) as error:
                        said.append(f"{type(error).__name__}: {error}")
                link.close()

            asyncio.run(ask_often())
        else:
            blocking = Link(target, address)
            for _ in range(3):
                try:
                    blocking.ask(("ECHO", "x"), 30)
                except (Refused, Broken) as error:
                    said.append(f"{type(error).__name__}: {error}")
            blocking.close()
    assert said == ["Refused: LOADING Redis is loading the dataset in memory"] * 3


@contextlib.contextmanager
def loading() -> Iterator[int]:
    """A server that refuses whatever it is asked, as Redis does while it reads its data."""

    class Refusing(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            while self.request.recv(65536):
                self.request.sendall(b"-LOADING Redis is loading the dataset in memory\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Refusing) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@apart
def test_ctrl_c_while_a_command_is_packed_does_not_end_the_process() -> None:
    # Several of these hit hiredis in the middle; what it does with a number then is a crash.
    done = script("""
        import signal
        from interlock.client.transport import thread_link
        from interlock.client.transport.redis_connection import spelt

        numbers = ("FCALL", "il1_put", 1, *range(200), b"key", "text")
        pack, interrupted = thread_link.hiredis.pack_command, 0
        packed = pack(spelt(numbers))
        assert packed == pack(numbers)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        while interrupted < 200:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0002)
                while True:
                    pack(spelt(numbers))
            except KeyboardInterrupt:
                interrupted += 1
        print(interrupted)
    """)
    assert (done.returncode, done.stdout) == (0, "200\n"), done.stderr


@apart
def test_numbers_are_converted_before_packing(
    engine_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed: list[Any] = []
    pack = threads.hiredis.pack_command

    def noting(command: tuple[Any, ...]) -> Any:
        handed.extend(command)
        return pack(command)

    monkeypatch.setattr(threads.hiredis, "pack_command", noting)
    address = f"127.0.0.1:{engine_port}"
    link = Link(parse(f"redis://{address}/0"), address)
    command = ("GETRANGE", "links:none", 0, 7)
    assert link.ask(command, 30, before=("LPOP", "links:none", 2), nudge=1.0) == b""
    assert link.ask(command, 30) == b""
    assert link.send(command, 30) and link.receive() == b""
    link.close()
    assert "GETRANGE" in handed and not [one for one in handed if isinstance(one, int)]
    handed.clear()

    async def awaited() -> None:
        link = AsyncLink(parse(f"redis://{address}/0"), address)
        assert await link.ask(command, 30, before=("LPOP", "links:none", 2), nudge=1.0) == b""
        assert await link.ask(command, 30) == b""
        link.close()

    asyncio.run(awaited())
    assert handed.count("GETRANGE") == 2 and not [one for one in handed if isinstance(one, int)]
    # Commands that redis-py itself sends: SELECT.
    assert make(redis.connection, parse(f"redis://{address}/1"), address, 1).db == "1"
