"""The library on a server: installed once, checked by its hash, beside other wire versions."""

from __future__ import annotations

import subprocess
import sys
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from interlock import __version__, connect
from interlock.client.lua import library
from interlock.client.lua.library import SHARED, Library, load
from interlock.client.wire.functions import FUNCTIONS
from tests.engine.calls import Argument, Queue, message
from tests.hub.servers import redis_server

LUA = Path(library.__file__).parent
NAMES_LEFT = 60
"""Lua takes 200 local names at the top of a function, and the whole library is one."""


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[redis.Redis]:
    with redis_server(tmp_path) as (_, port), redis.Redis(port=port) as connection:
        yield connection


def names(connection: redis.Redis) -> set[str]:
    listed: Any = connection.function_list()
    return {dict(zip(one[::2], one[1::2], strict=True))[b"library_name"].decode() for one in listed}


def test_every_file_is_in_the_library_once() -> None:
    for folder, listed in (("shared", SHARED), ("functions", FUNCTIONS)):
        assert sorted(path.stem for path in (LUA / folder).rglob("*.lua")) == sorted(listed)


def takes_more_names(connection: redis.Redis, count: int) -> bool:
    head, body = Library().text.split("\n", 1)
    names = ", ".join(f"more_{i}" for i in range(count))
    try:
        connection.function_load(f"{head}\nlocal {names}\n{body}", replace=True)
    except redis.ResponseError as error:
        if "200 local variables" not in str(error):
            raise
        return False
    return True


def test_names_for_further_functions_are_left(bare: redis.Redis) -> None:
    left = bisect_left(range(1, 201), True, key=lambda count: not takes_more_names(bare, count))
    assert left >= NAMES_LEFT, (
        f"{left} of 200 local names are left in the library, {NAMES_LEFT} should be: "
        "let a file declare one table of what others use, as lane.lua does"
    )


def test_a_name_that_a_later_file_declares_itself_is_not_shared() -> None:
    joined = library._joined({"one": "local name = 1", "two": "local name, other = 2, 3\nname()"})
    assert joined.splitlines()[:2] == ["do", "local name = 1"]


def test_the_library_is_installed_once(bare: redis.Redis) -> None:
    assert Library().installed(bare) is None
    assert load(bare)
    assert Library().installed(bare) == Library().hash
    assert not load(bare)


def test_clients_of_a_process_put_the_library_together_once(redis_url: str) -> None:
    with connect(redis_url) as one, connect(redis_url) as other:
        one.queue("q").stats()
        other.queue("q").stats()
        assert one._engine.library is other._engine.library


def test_a_connection_may_decode_its_replies(bare: redis.Redis) -> None:
    load(bare)
    port = bare.connection_pool.connection_kwargs["port"]
    with redis.Redis(port=port, decode_responses=True) as decoding:
        assert not load(decoding)


def test_a_different_library_of_the_same_version_is_replaced_and_queues_still_work(
    bare: redis.Redis,
) -> None:
    Library(instead={"limits": (LUA / "shared/calls/limits.lua").read_text() + "\n"}).load(bare)
    queue = Queue(bare)
    queue.put(message("one", ["a"]), message("two", ["a"]))
    first = queue.lease().messages
    assert load(bare)
    queue.ack_all(first)
    assert queue.payloads() == ["two"]


def test_libraries_of_two_wire_versions_can_be_installed_together(bare: redis.Redis) -> None:
    newer = Library(wire=2)
    assert load(bare) and newer.load(bare)
    assert not load(bare) and not newer.load(bare)
    assert names(bare) == {"il1", "il2"}
    asked: list[Any] = [bare.fcall(f"il{wire}_version", 0) for wire in (1, 2)]
    assert [reply[0] for reply in asked] == [b"1", b"2"]
    assert asked[0][1] != asked[1][1]
    load(bare)
    Queue(bare).put(message("one"))
    assert Queue(bare).payloads() == ["one"]


def test_the_version_reports_wire_hash_and_features(connection: redis.Redis) -> None:
    reply: Any = connection.fcall("il1_version", 0)
    features = [
        b"keys=1024",
        b"release=" + __version__.encode(),
        b"layout=7",
        b"events",
        b"larger",
        b"deepest",
        b"front",
        b"dead-keys",
    ]
    assert reply == [b"1", Library().hash.encode(), *features]


def test_reading_functions_write_nothing(queue: Queue) -> None:
    queue.put(message("one", ["a"]))
    id = queue.lease().messages[0].id
    for name, *arguments in (
        ["stats"],
        ["peek", id],
        ["dead_letters", 5, ""],
        ["scan", 0, 9],
        ["hot", 0],
        ["result", id, 0],
        ["explain", "id", id, 9],
    ):
        reply: Any = queue.connection.fcall_ro(f"il1_{name}", 1, queue.key, *arguments)
        assert isinstance(reply, list)


def test_replies_are_the_same_in_both_protocols(queue: Queue) -> None:
    queue.put(message("one", ["a"], ["b"]), message("two", ["a"], priority=3))
    port = queue.connection.connection_pool.connection_kwargs["port"]
    with redis.Redis(port=port, protocol=3) as connection:
        newer = Queue(connection, queue.key[4:-1])
        lease: list[Argument] = ["w", 1, 0, 5, 9_000_000, "any"]
        assert newer.call("lease", *lease) == queue.call("lease", *lease)
        # The last of it is the server's time.
        assert newer.call("stats")[:-2] == queue.call("stats")[:-2]
        assert int(newer.lease().next) > int(queue.lease().next) > 0


def test_importing_the_library_does_not_load_redis() -> None:
    program = "import interlock.client.lua.library, sys; sys.exit('redis' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
