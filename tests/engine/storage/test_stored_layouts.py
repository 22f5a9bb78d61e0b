"""Queues that other releases stored on a Redis: they continue, or are refused with an
explanation."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from interlock import InterlockError, connect
from interlock.cli import main
from interlock.client.lua.library import Library, load
from interlock.runtime.limits import LAYOUT
from tests.engine.calls import Queue, message
from tests.engine.stored.form import FOLDER, answers, read
from tests.engine.timed import TimedQueue
from tests.hub.servers import redis_server


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[redis.Redis]:
    with redis_server(tmp_path) as (_, port), redis.Redis(port=port) as connection:
        yield connection


def url(connection: redis.Redis) -> str:
    return f"redis://127.0.0.1:{connection.connection_pool.connection_kwargs['port']}?timeout=20"


def execute(connection: Any, *command: str | bytes) -> None:
    connection.execute_command(*command)


def number_of(connection: redis.Redis, key: str) -> int:
    text: Any = connection.hget(f"{key}:c", "c")
    return int(text[0]) if len(text) % 8 == 1 else 1


NAMED_TODAY = {"expired": "leases_expired", "buried": "dead_lettered"}
"""Counts that had another name; what is stored has only their places."""


def without_history(answer: list[str]) -> list[str]:
    """The errors as a release told them that kept the last one alone."""
    return [part.partition("\x1f")[0] for part in answer]


def as_told_today(told: list[list[str]]) -> list[list[str]]:
    """The answers of a release that charged the first lease to run out, by clause 9 of today."""
    *before, nothing, stats = [[NAMED_TODAY.get(part, part) for part in answer] for answer in told]
    # That message backed off. Now it is leased again at once: alone, and at the same attempt.
    assert nothing == ["", "", "826", "0"]
    alone = ["1000000100000000", "1000000160000000", "alone", "1"]
    alone += ["1000000000000007", "", "1", "once", "1", "0", "d"]
    counts = dict(zip(stats[::2], stats[1::2], strict=True))
    counts |= {"leased": "4", "backing_off": "0", "leases": "9", "retries": "1"}
    return [*before, alone, [part for pair in counts.items() for part in pair]]


def as_layout_2_told(told: list[list[str]]) -> list[list[str]]:
    """The answers of a release without limits: its figures end before the time."""
    for stats in (told[0], told[-1]):
        assert stats[-2] == "time"
        del stats[-2:]
    return [without_history(answer) for answer in told]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("layout-*.jsonl")), ids=lambda path: path.stem)
def test_a_queue_stored_in_any_earlier_layout_can_be_used(bare: redis.Redis, path: Path) -> None:
    commands, told = read(path)
    for command in commands:
        execute(bare, *command)
    queue = TimedQueue(bare, "stored")
    queue.at(5)
    told = as_told_today(told) if path.stem == "layout-1" else as_layout_2_told(told)
    # A later release counts more.
    now = [answer[: len(then)] for answer, then in zip(answers(queue), told, strict=True)]
    assert [without_history(answer) for answer in now] == told
    assert number_of(bare, queue.key) == 3


def test_a_dead_letter_stored_without_an_age_limit_expires_by_the_new_limit(
    bare: redis.Redis,
) -> None:
    commands, _ = read(FOLDER / "layout-1.jsonl")
    for command in commands:
        execute(bare, *command)
    queue = TimedQueue(bare, "stored")
    days = 86_400_000_000
    for time, dead in ((29 * days, 1), (30 * days, 1), (30 * days + 600_000_000, 0)):
        queue.at(time)
        queue.put(message("next"))
        assert queue.stats()["dead"] == dead


def test_a_new_queue_stores_its_layout_version(queue: Queue) -> None:
    queue.put(message("one"))
    assert number_of(queue.connection, queue.key) == 3
    assert f"layout={LAYOUT}".encode() in queue.connection.fcall("il1_version", 0)


def test_a_queue_has_a_later_layout_only_while_messages_may_leave_their_places(
    bare: redis.Redis,
) -> None:
    limits = Path(__file__).parents[3] / "src/interlock/client/lua/shared/calls/limits.lua"
    text = limits.read_text().replace(f"local LAYOUT = {LAYOUT}", "local LAYOUT = 3")
    older = Library(instead={"limits": text})

    def may_use(library: Library) -> bool:
        """An operator has this library installed."""
        bare.function_load(library.text, replace=True)
        try:
            queue.stats()
        except redis.ResponseError as error:
            if "NEWERLAYOUT" not in str(error):
                raise
            return False
        return True

    Library().load(bare)
    queue = Queue(bare, "q")
    queue.put(message("stays", ["other"]))
    queue.call("pause", "a")
    assert number_of(bare, queue.key) == 3
    # By the queue's value, by a message's own, and while one is parked.
    queue.call("configure", "BEHIND", "park")
    assert number_of(bare, queue.key) == 5 and not may_use(older) and may_use(Library())
    queue.put(message("parked", ["a"]))
    queue.call("configure", "CHANGE", "BEHIND", "wait")
    assert number_of(bare, queue.key) == 5 and not may_use(older) and may_use(Library())
    queue.call("resume", "a")
    assert number_of(bare, queue.key) == 3 and may_use(older) and may_use(Library())
    (id,) = queue.put(message("own", ["b"], behind="cancel"))
    assert number_of(bare, queue.key) == 5
    queue.call("cancel", id)
    assert number_of(bare, queue.key) == 3 and may_use(older)


def test_a_queue_has_a_layout_that_older_libraries_refuse_only_while_they_would_damage_it(
    queue: Queue,
) -> None:
    queue.put(message("one"))
    queue.put(message("two", group="acme"))
    assert number_of(queue.connection, queue.key) == 4
    queue.put(message("three", coalesce="p"))
    assert number_of(queue.connection, queue.key) == 6
    queue.put(message("four", ["k"], run="2:send"))
    assert number_of(queue.connection, queue.key) == 7
    leased = {one.payload: one for one in queue.lease().messages}
    for payload, number in (("four", 6), ("three", 4), ("two", 3)):
        queue.ack_all([leased[payload]])
        assert number_of(queue.connection, queue.key) == number


def test_a_queue_of_a_newer_layout_is_refused_and_not_changed(bare: redis.Redis) -> None:
    with connect(url(bare)) as client:
        client.queue("q", int).put(1)
        text: Any = bare.hget("il:{q}:c", "c")
        bare.hset("il:{q}:c", "c", bytes([9]) + text[1:])
        for call in (client.queue("q", int).stats, lambda: client.queue("q", int).put(2)):
            with pytest.raises(InterlockError, match=rf"layout 9.*up to {LAYOUT}.*queue install"):
                call()
        # A layout may be longer, too.
        bare.hset("il:{q}:c", "c", bytes([9]) + text[1:] + struct.pack("<d", 1))
        with pytest.raises(InterlockError, match="layout 9"):
            client.queue("q", int).get_nowait()
        client.queue("other", int).put(1)


@pytest.mark.parametrize("way", ["another type", "another text"])
def test_a_key_that_is_not_a_queue_is_refused_with_a_clear_error(
    bare: redis.Redis, way: str
) -> None:
    if way == "another type":
        bare.set("il:{q}:c", "something")
    else:
        bare.hset("il:{q}:c", "c", "something")
    with connect(url(bare)) as client:
        for call in (client.queue("q", int).stats, lambda: client.queue("q", int).put(2)):
            with pytest.raises(
                InterlockError, match=r"WRONGTYPE.*other than a queue|is not a queue of a"
            ):
                call()


def released(release: str) -> Library:
    """The library of a release, with a text of its own."""
    extra = Path(__file__).parents[3] / "src/interlock/client/lua/shared/leases/lease_end.lua"
    return Library(instead={"lease_end": extra.read_text() + f"\n-- {release}\n"}, release=release)


def test_an_older_library_does_not_replace_a_newer_one(bare: redis.Redis) -> None:
    newer, older = released("99.10.0"), released("0.0.9")
    assert newer.load(bare)
    assert not older.load(bare) and not load(bare)
    with connect(url(bare)) as client:
        client.queue("q", int).put(1)
        assert client.queue("q", int).stats().puts == 1
    assert newer.installed(bare) == newer.hash
    # By numbers, and not by letters.
    assert not released("99.9.0").load(bare)
    assert released("99.10.1").load(bare)


def test_a_newer_library_replaces_an_older_one_and_one_without_a_release(
    bare: redis.Redis,
) -> None:
    older = released("0.0.9")
    assert older.load(bare)
    with connect(url(bare)) as client:
        client.queue("q", int).put(1)
    assert Library().installed(bare) == Library().hash
    # As those before the first release that says which it is.
    bare.function_load(older.text.replace("'release=' .. ABOUT.release", "'nothing'"), replace=True)
    assert load(bare)


def test_without_the_right_to_load_a_client_uses_the_installed_library_or_names_what_is_missing(
    bare: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    execute(bare, "ACL", "SETUSER", "t", "on", ">p", "+@all", "-function", "~*")
    tenant = url(bare).replace("//", "//t:p@")
    with connect(tenant) as client, pytest.raises(InterlockError, match="interlock queue install"):
        client.queue("q", int).put(1)
    assert released("0.0.9").load(bare)
    with connect(tenant) as client, caplog.at_level(logging.WARNING, "interlock.queue"):
        client.queue("q", int).put(1)
        assert client.queue("q", int).stats().puts == 1
    assert "release 0.0.9" in caplog.text


def test_an_operator_installs_the_library(
    bare: redis.Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["queue", "install", "--url", url(bare)]

    def said(*more: str) -> str:
        assert main([*asked, *more]) == 0
        return capsys.readouterr().out

    assert "is installed" in said()
    assert Library().installed(bare) == Library().hash
    assert "already" in said()
    released("99.0.0").load(bare)
    assert "newer; --replace" in said()
    assert '"became": "newer"' in said("--json")
    assert "is installed" in said("--replace")


def test_a_hub_needs_no_library(hub_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    for where in (hub_url, "memory://"):
        assert main(["queue", "install", "--url", where]) == 0
        assert "built in" in capsys.readouterr().out
