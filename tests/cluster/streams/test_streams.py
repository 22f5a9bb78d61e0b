"""The checks of a change stream, on each engine that keeps one."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from interlock.cluster.streams import ChangeStream, PositionLost, StreamUnavailable
from tests.cluster.streams.conftest import Open
from tests.cluster.streams.engines import PATIENCE, Engine, eventually


def entries(count: int, start: int = 0) -> list[bytes]:
    return [b"entry %d" % n for n in range(start, start + count)]


def read_all(stream: ChangeStream, after: str, count: int) -> list[tuple[str, bytes]]:
    """Read until so many have come."""
    found: list[tuple[str, bytes]] = []
    until = time.monotonic() + PATIENCE
    while len(found) < count:
        assert time.monotonic() < until, f"{len(found)} of {count} came"
        some = stream.read(after, count - len(found), 1.0)
        assert len(some) <= count - len(found)
        found += some
        after = found[-1][0] if found else after
    return found


def only_new(found: Iterator[bytes] | list[bytes]) -> list[bytes]:
    """Return what a reader takes that passes over what it has: a retry may append twice."""
    taken: list[bytes] = []
    for entry in found:
        if entry not in taken:
            taken.append(entry)
    return taken


def persistently(stream: ChangeStream, some: list[bytes]) -> None:
    """Append until it is done, as a primary does."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            stream.append(some)
            return
        except StreamUnavailable:
            assert time.monotonic() < until
            time.sleep(0.05)


def test_what_was_appended_is_read_in_its_order(opened: Open) -> None:
    appender, reader = opened("append"), opened("read")
    assert reader.read("", 10, 0) == []
    for start in range(0, 1000, 100):
        appender.append(entries(100, start))
    found = read_all(reader, "", 1000)
    assert [entry for _, entry in found] == entries(1000)
    assert len({position for position, _ in found}) == 1000


def test_a_reader_goes_on_behind_any_position(opened: Open) -> None:
    appender, reader = opened("append"), opened("read")
    appender.append(entries(30))
    found = read_all(reader, "", 30)
    other = opened("read")
    for at in (0, 13, 28):
        again = read_all(other, found[at][0], 29 - at)
        assert again == found[at + 1 :]
    assert other.read(found[29][0], 10, 0) == []


def test_first_and_last_are_positions_of_entries(opened: Open) -> None:
    appender, reader = opened("append"), opened("read")
    assert (reader.first(), reader.last()) == ("", "")
    appender.append(entries(5))
    found = read_all(reader, "", 5)
    assert (reader.first(), reader.last()) == (found[0][0], found[4][0])
    appender.append(entries(1, 5))
    assert read_all(reader, found[4][0], 1)[0][0] == reader.last()


def test_a_read_takes_no_more_than_it_was_asked_for(opened: Open) -> None:
    appender, reader = opened("append"), opened("read")
    appender.append(entries(10))
    assert len(reader.read("", 3, 1.0)) <= 3
    first = read_all(reader, "", 1)
    assert read_all(reader, first[0][0], 2) == read_all(opened("read"), "", 3)[1:]


def test_a_reader_that_waits_gets_the_next_at_once(opened: Open) -> None:
    appender, reader = opened("append"), opened("read")
    appender.append(entries(1))
    last = read_all(reader, "", 1)[0][0]
    with ThreadPoolExecutor(1) as pool:
        for n in range(1, 20):
            waits = pool.submit(reader.read, last, 10, PATIENCE)
            appender.append(entries(1, n))
            ((last, entry),) = waits.result(PATIENCE)
            assert entry == b"entry %d" % n


def test_a_wait_that_brings_nothing_ends(opened: Open) -> None:
    appender, reader = opened("append"), opened("read")
    appender.append(entries(1))
    last = reader.last()
    began = time.monotonic()
    assert reader.read(last, 10, 0.2) == []
    assert time.monotonic() - began >= 0.15


def test_entries_of_a_megabyte_come_through(opened: Open) -> None:
    appender, reader = opened("append"), opened("read")
    big = [os.urandom(1_000_000) for _ in range(5)]
    appender.append([*big[:3], b"", b"\0\r\n"])
    appender.append(big[3:])
    found = read_all(reader, "", 7)
    assert [entry for _, entry in found] == [*big[:3], b"", b"\0\r\n", *big[3:]]


def test_two_appenders_keep_each_their_order(opened: Open) -> None:
    def append(who: int) -> None:
        stream = opened("append")
        for n in range(0, 200, 10):
            persistently(stream, [b"%d %d" % (who, m) for m in range(n, n + 10)])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(append, range(2)))
    reader, found = opened("read"), list[bytes]()
    last, after = reader.last(), ""
    while after != last:
        some = reader.read(after, 100, 1.0)
        found += [entry for _, entry in some]
        after = some[-1][0] if some else after
    found = only_new(found)
    assert len(found) == 400
    for who in (b"0", b"1"):
        own = [int(entry.split()[1]) for entry in found if entry.startswith(who)]
        assert own == list(range(200))


def test_two_readers_see_the_same(opened: Open) -> None:
    appender = opened("append")
    appender.append(entries(50))
    assert read_all(opened("read"), "", 50) == read_all(opened("read"), "", 50)


def test_a_position_that_was_trimmed_away_is_lost(opened: Open, engine: Engine) -> None:
    if not engine.counts:
        pytest.skip("it trims by age alone")
    appender, reader = opened("append", keep=100), opened("read", keep=100)
    appender.append(entries(3))
    early = read_all(reader, "", 3)[2][0]
    kept = b"x" * 50_000
    # What is kept is rounded up to what the engine lays down at once.
    for n in range(400):
        appender.append([b"%d " % n + kept])
        if n == 50:
            assert reader.read(early, 1, 0), "a hundred are kept at least"

    def lost() -> PositionLost | None:
        try:
            reader.read(early, 1, 0)
        except PositionLost as error:
            return error
        return None

    eventually(lost, "PositionLost")
    error = lost()
    assert error is not None
    assert (error.first, error.last) == (reader.first(), reader.last())
    assert error.first != "" != error.last
    # From the first that is kept on, all are there.
    rest = read_all(reader, "", 100)
    numbers = [int(entry.split()[0]) for _, entry in rest]
    assert numbers == list(range(numbers[0], numbers[0] + 100))


def test_a_position_that_the_log_never_had_is_lost_without_a_wait(opened: Open) -> None:
    """A promoted replica that lost its tail looks like that."""
    appender, reader = opened("append"), opened("read")
    appender.append(entries(10))
    beyond = read_all(reader, "", 10)[9][0]
    other = opened("read")
    other.read("", 1, 0)
    began = time.monotonic()
    with pytest.raises(PositionLost):
        # The stream of another name: it has nothing.
        _emptied(opened).read(beyond, 1, PATIENCE)
    assert time.monotonic() - began < PATIENCE / 2


def _emptied(opened: Open) -> ChangeStream:
    return opened("read", name_suffix="other")


def test_interrupt_ends_a_read_that_waits(opened: Open) -> None:
    appender, reader = opened("append"), opened("read")
    appender.append(entries(1))
    last = read_all(reader, "", 1)[0][0]
    with ThreadPoolExecutor(1) as pool:
        for n in range(1, 6):
            waits = pool.submit(reader.read, last, 10, PATIENCE)
            reader.interrupt()
            with pytest.raises(StreamUnavailable, match="interrupted"):
                waits.result(PATIENCE / 2)
            # It goes on with the next call.
            appender.append(entries(1, n))
            ((last, entry),) = read_all(reader, last, 1)
            assert entry == b"entry %d" % n


def test_an_interrupt_that_comes_too_early_ends_the_next_call(opened: Open) -> None:
    appender, reader = opened("append"), opened("read")
    appender.append(entries(1))
    reader.interrupt()
    with pytest.raises(StreamUnavailable, match="interrupted"):
        reader.read("", 1, PATIENCE)
    assert reader.read("", 1, PATIENCE)
    appender.interrupt()
    with pytest.raises(StreamUnavailable, match="interrupted"):
        appender.append(entries(1, 1))
    persistently(appender, entries(1, 1))


def test_close_ends_a_read_that_waits_and_all_that_come(opened: Open) -> None:
    appender, reader = opened("append"), opened("read")
    appender.append(entries(1))
    last = read_all(reader, "", 1)[0][0]
    inside = threading.Event()

    def wait() -> None:
        inside.set()
        reader.read(last, 1, PATIENCE)

    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(wait)
        inside.wait(PATIENCE)
        reader.close()
        with pytest.raises(StreamUnavailable, match="closed"):
            waits.result(PATIENCE / 2)
    for call in (lambda: reader.read("", 1, 0), reader.last, lambda: reader.append([b"x"])):
        with pytest.raises(StreamUnavailable, match="closed"):
            call()
    reader.close()


@pytest.mark.watchdog(180)
def test_a_server_that_is_restarted_loses_nothing(opened: Open, engine: Engine) -> None:
    appender, reader = opened("append", timeout=2.0), opened("read", timeout=2.0)
    stop, sent = threading.Event(), [0]

    def load() -> None:
        while not stop.is_set():
            persistently(appender, entries(5, sent[0]))
            sent[0] += 5

    after = ""

    def heard(count: int) -> None:
        nonlocal after
        until = time.monotonic() + PATIENCE
        while len(only_new(found)) < count:
            assert time.monotonic() < until
            try:
                some = reader.read(after, 100, 0.2)
            except StreamUnavailable:
                time.sleep(0.02)
                continue
            found.extend(entry for _, entry in some)
            after = some[-1][0] if some else after

    found: list[bytes] = []
    with ThreadPoolExecutor(1) as pool:
        loads = pool.submit(load)
        try:
            heard(20)
            engine.stop()
            engine.start()
            heard(sent[0] + 20)
        finally:
            stop.set()
        loads.result(PATIENCE)
    heard(sent[0])
    assert only_new(found) == entries(sent[0])


@pytest.mark.watchdog(180)
def test_a_server_that_was_frozen_does_not_write_behind_what_came_later(
    opened: Open, engine: Engine
) -> None:
    appender = opened("append", timeout=0.5)
    persistently(appender, entries(1))
    engine.freeze()
    try:
        with pytest.raises(StreamUnavailable):
            appender.append(entries(1, 1))
    finally:
        engine.thaw()
    persistently(appender, entries(2, 1))
    persistently(appender, entries(1, 3))
    reader = opened("read")
    last = reader.last()
    found: list[bytes] = []
    after = ""
    while after != last:
        some = reader.read(after, 10, 1.0)
        found.extend(entry for _, entry in some)
        after = some[-1][0] if some else after
    assert only_new(found) == entries(4)
    # Twice is allowed. Some see to it that no old one comes behind what its retry has brought.
    if engine.refuses_late:
        numbers = [int(entry.split()[1]) for entry in found]
        assert numbers in ([0, 1, 2, 3], [0, 1, 1, 2, 3])


def test_age_trims_too(opened: Open) -> None:
    appender, reader = opened("append", keep_age=1.0), opened("read", keep_age=1.0)
    appender.append([b"first"])
    early = read_all(reader, "", 1)[0][0]
    fill = [b"x" * 20_000] * 20

    def lost() -> bool:
        appender.append(fill)
        try:
            reader.read(early, 1, 0)
        except PositionLost:
            return True
        return False

    eventually(lost, "trimmed by age")
    appender.append([b"last"])
    last = reader.last()
    assert reader.read(last, 10, 0) == []
