"""Every refusal that a server can give is in one table, and clients do what that says.

Refusals that a real server can be made to give are in test_refusals.py; here a stub says all of
them, in the servers' words."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from interlock import EngineUnavailable, Full, InterlockError, OptionsMismatch, ShutDown, connect
from interlock.client.connection import refusals
from interlock.client.connection.call import _Patience
from interlock.client.connection.refusal import Refusal
from interlock.client.connection.refusal_table import REFUSALS
from interlock.client.transport import thread_link as threads
from interlock.client.url import parse
from tests.client.connection.stub import Stub, array, is_version, may_be_unknown, stub, version

SAID = {
    "max number of clients": [
        "ERR max number of clients reached",
        "ERR max number of clients + cluster connections reached",
        "ERR max number of clients reached for this address",
    ],
    "LOADING": ["LOADING Redis is loading the dataset in memory"],
    "BUSY": ["BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN"],
    "UNKILLABLE": ["UNKILLABLE Sorry the script already executed write commands"],
    "MISCONF": ["MISCONF Redis is configured to save RDB snapshots", "MISCONF il1_put: no room"],
    "NOREPLICAS": ["NOREPLICAS Not enough good replicas to write."],
    "READONLY": ["READONLY You can't write against a read only replica."],
    "MASTERDOWN": ["MASTERDOWN Link with MASTER is down"],
    "UNBLOCKED": [
        "UNBLOCKED client unblocked via CLIENT UNBLOCK",
        "UNBLOCKED force unblock from blocking operation, instance state changed",
    ],
    "CLUSTERDOWN": ["CLUSTERDOWN Hash slot not served", "CLUSTERDOWN The cluster is down"],
    "TRYAGAIN": ["TRYAGAIN Multiple keys request during rehashing of slot"],
    "MOVED": ["MOVED 3999 127.0.0.1:1"],
    "ASK": ["ASK 3999 127.0.0.1:1"],
    "Function not found": ["ERR Function not found"],
    "no upstream host": ["no upstream host", "ERR no server connection avaliable"],
    "upstream failure": [
        "upstream failure",
        "ERR server connection close",
        "ERR Connection refused",
        "ERR Connection timed out",
    ],
    "STALE(": ["STALE this node has not read its log to the end for longer than --max-staleness"],
    "NODE": ["NODE the node has ended: the call was not done"],
    "UNANSWERED": ["UNANSWERED the node has ended or its hub stops: it may have been done"],
    "PAST|LATE": ["PAST the log is behind that deadline", "LATE a later write of it was done"],
    "NOREPLY": ["NOREPLY it was done, and its reply is no longer kept"],
    "TOOFAR": ["TOOFAR the deadline is too far ahead", "NOLOG the table is not on a log"],
    "NOACK": ["NOACK it was done, and 1 of 2 other machines have acknowledged it in time"],
    "OOM": ["OOM command not allowed when used memory > 'maxmemory'."],
    "AUTH <password>": [
        "ERR AUTH <password> called without any password configured for the default user.",
        "ERR Client sent AUTH, but no password is set",
    ],
    "NOAUTH": ["NOAUTH Authentication required."],
    "WRONGPASS|": [
        "WRONGPASS invalid username-password pair or user is disabled.",
        "ERR invalid password",
    ],
    "NOPERM": ["NOPERM this user has no permissions to run the 'fcall' command"],
    "The user executing": [
        "ERR The user executing the script can't run this command or subcommand",
        "ERR ACL failure in script: User caller has no permissions to run the 'hget' command",
    ],
    "DENIED": ["DENIED Redis is running in protected mode because protected mode is enabled"],
    "STALECALL": ["STALECALL il1_put: the reply of call 1 was too large to keep"],
    "FULL": ["FULL il1_put: the queue has 5 messages, its bound"],
    "DIFFERS": ["DIFFERS il1_put: messages[1] has another priority than message 1"],
    "STUCK": ["STUCK il1_put: 3 messages wait on a paused or stuck key"],
    "SEALED": ["SEALED il1_put: the queue is sealed"],
    "UNKNOWN": ["UNKNOWN il1_put: the queue does not know the dedup string of AFTER"],
    "OPTIONSMISMATCH": ["OPTIONSMISMATCH il1_configure: MAXSIZE is '1'"],
    "BADARG": ["BADARG il1_put: wait is ''", "TOOBIG il1_put: x", "NOTSUPPORTED il1_put: x"],
    "un(known": [
        # Redis 7 and Valkey; Redis 6; a proxy; Envoy; in capitals; without any name.
        "ERR unknown command 'FCALL', with args beginning with: 'il1_put' '1' ",
        "ERR unknown command `FCALL`, with args beginning with: `il1_put`, `1`, ",
        'ERR unknown command "fcall"',
        "unsupported command 'fcall'",
        "ERR Unknown Command: fcall",
        "ERR unknown command",
    ],
    "WRONGTYPE": ["WRONGTYPE Operation against a key holding the wrong kind of value"],
    "NEWERLAYOUT": ["NEWERLAYOUT the queue is stored in layout 3"],
    "NOTAQUEUE": ["NOTAQUEUE what is stored under the name of the queue is not a queue"],
    "CROSSSLOT": ["CROSSSLOT Keys in request don't hash to the same slot"],
    "DB index": ["ERR DB index is out of range", "ERR SELECT is not allowed in cluster mode"],
    "NOPROTO": ["NOPROTO unsupported protocol version"],
    "all else": ["ERR something that nobody ever said", "WHATEVER else", "LOADINGS of things"],
}
EACH = [(part, text) for part, texts in SAID.items() for text in texts]
SHORT = 1.0
"""Seconds of a call that is to fail."""
OURS = {
    "FULL": Full,
    "DIFFERS": ValueError,
    "STUCK": Full,
    "SEALED": ShutDown,
    "OPTIONSMISMATCH": OptionsMismatch,
    "BADARG": ValueError,
    "OOM": Full,
}
PUT = 1_700_000_000_000_001


@pytest.fixture(params=["hiredis", "redis-py"], autouse=True)
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replies are parsed by either; each makes other errors of them."""
    if request.param == "redis-py":
        monkeypatch.setattr(threads, "hiredis", None)
    elif threads.hiredis is None:
        pytest.skip("hiredis is not installed")


def row_of(part: str) -> Refusal:
    (row,) = [row for row in REFUSALS if part in row.said]
    return row


def refusing(text: str, times: int = 1_000_000) -> Any:
    """A server that refuses this number of calls, and then answers."""
    left = times

    def answer(command: list[bytes]) -> bytes:
        nonlocal left
        if is_version(command):
            return version()
        if command[0] == b"FUNCTION":
            return b"$3\r\nil1\r\n"
        if command[0] == b"INFO":
            return b"-NOPERM\r\n"
        left -= 1
        if left >= 0:
            return f"-{text}\r\n".encode()
        if command[1] == b"il1_put":
            return array(str(PUT), "0")
        return array("MAXSIZE", "0", "MAXBYTES", "0")

    return answer


def calls(server: Stub) -> int:
    return sum(one[:1] == [b"FCALL"] and not is_version(one) for one in server.commands)


def of_course(course: str) -> list[tuple[str, str]]:
    """Wordings of rows that are treated so, of a server that is alone."""
    return [
        (part, text)
        for part, text in EACH
        if row_of(part).course == course and part not in ("MOVED", "ASK")
    ]


@pytest.mark.parametrize(("part", "text"), EACH)
def test_each_server_error_matches_its_row(part: str, text: str) -> None:
    assert refusals.of(text) is row_of(part)
    # redis-py takes ERR off.
    assert refusals.of(text.removeprefix("ERR ")) is row_of(part)


def test_every_row_is_covered_by_an_error_text() -> None:
    assert {row_of(part).said for part in SAID} == {row.said for row in REFUSALS}


@pytest.mark.parametrize(("part", "text"), of_course("retry"))
def test_a_temporary_error_is_retried_until_it_has_passed(part: str, text: str) -> None:
    with stub(refusing(text, times=1)) as server:
        url = f"redis://127.0.0.1:{server.port}?timeout=20"
        with connect(url) as client:
            assert client.queue("q", int).put(1) == PUT
        assert calls(server) == 2

    async def main(url: str) -> None:
        async with connect(url) as client:
            assert await client.queue("q", int).put(1) == PUT

    with stub(refusing(text, times=1)) as server:
        asyncio.run(main(f"redis://127.0.0.1:{server.port}?timeout=20"))
        assert calls(server) == 2


@pytest.mark.parametrize(("part", "text"), of_course("retry"))
def test_a_temporary_error_that_persists_is_raised_with_advice(part: str, text: str) -> None:
    row = row_of(part)
    with stub(refusing(text)) as server:
        url = f"redis://127.0.0.1:{server.port}?timeout={SHORT}"
        with connect(url) as client, pytest.raises(EngineUnavailable) as caught:
            client.queue("q", int).put(1)
        assert row.advice in str(caught.value)
        may_be = row.unsure or may_be_unknown(caught.value)
        assert caught.value.unknown in (row.unsure, may_be)
    # One that may have been done, and would be done twice, is not asked again. (A server of its
    # own: the first may count its last call late.)
    if row.unsure:
        with stub(refusing(text)) as server:
            url = f"redis://127.0.0.1:{server.port}?timeout={SHORT}"
            with connect(url) as client, pytest.raises(EngineUnavailable) as caught:
                client.queue("q", int).requeue(PUT)
            assert caught.value.unknown
            assert calls(server) == 1


def test_a_call_begins_no_attempt_that_there_is_no_time_to_answer() -> None:
    target = parse("redis://127.0.0.1:1?timeout=1")
    for left in (0.25, 0.15):
        patience = _Patience(target, None, "put", time.monotonic() - 1 + left)
        patience.failed("a", "BUSY")
        if left > 0.2:
            # The attempt begins with half of that left, however busy the machine is.
            assert patience.pause() <= left - 0.1
        else:
            with pytest.raises(EngineUnavailable, match="BUSY") as caught:
                patience.pause()
            assert not caught.value.unknown


@pytest.mark.parametrize(("part", "text"), [*of_course("raise"), *of_course("end")])
def test_a_permanent_error_is_raised_at_once(part: str, text: str) -> None:
    row = row_of(part)
    with stub(refusing(text)) as server:
        url = f"redis://127.0.0.1:{server.port}?timeout=20"
        with connect(url) as client, pytest.raises(OURS.get(part, InterlockError)) as caught:
            client.queue("q", int).put_nowait(1)
        assert calls(server) == 1
        assert isinstance(caught.value, EngineUnavailable) == (row.raises == "EngineUnavailable")
        if part not in OURS:
            assert row.advice in str(caught.value)


def test_at_the_memory_limit_only_growing_calls_raise_full() -> None:
    text = SAID["OOM"][0]
    with stub(refusing(text)) as server:
        url = f"redis://127.0.0.1:{server.port}?timeout={SHORT}"
        with connect(url) as client:
            queue = client.queue("q", int)
            with pytest.raises(Full, match="memory limit"):
                queue.put(1)
            # A call that leases or declares would mistake Full for an answer.
            for call in (lambda: queue.get_nowait(), lambda: queue.pause("a")):
                with pytest.raises(EngineUnavailable, match="OOM"):
                    call()


def test_the_advice_of_a_hub_is_not_extended() -> None:
    said = (
        'NOPERM this user has no permissions to x; on this hub [[user]] "a" needs "x" in commands'
    )
    assert refusals.advised(f"hub: {said}") == f"hub: {said}"
    assert refusals.is_advised(f"hub: {said}")
