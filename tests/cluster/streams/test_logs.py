"""The checks of a log, on each engine that keeps one."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from interlock import _core
from interlock.cluster.streams import (
    ChangeStream,
    Entry,
    PositionLost,
    Role,
    StreamMissing,
    StreamUnavailable,
    StreamUnfit,
    open_log,
)
from interlock.cluster.streams.protocol import log_name
from tests.cluster.streams.engines.rabbitmq import Rabbitmq
from tests.cluster.streams.engines.server import PATIENCE, Engine, eventually

Open = Callable[[Role], ChangeStream]


@pytest.fixture
def table() -> str:
    return f"t.{uuid.uuid4().hex}"


@pytest.fixture
def opened(engine: Engine, table: str) -> Iterator[Open]:
    made: list[ChangeStream] = []

    def make(role: Role) -> ChangeStream:
        made.append(open_log(engine.url, table, "north_1", role=role))
        return made[-1]

    yield make
    for one in made:
        one.close()


def position(entry: Entry) -> str:
    return f"{entry.id}.{_core.LogBridge.mark(entry.data)}"


def read_all(stream: ChangeStream, after: str, count: int) -> list[Entry]:
    """Read this number of entries, and then to the end."""
    found: list[Entry] = []
    until = time.monotonic() + PATIENCE
    while True:
        assert time.monotonic() < until, f"{len(found)} of {count} came"
        some, at_end = stream.entries(after, 1000, 0.2)
        found += some
        after = position(found[-1]) if found else after
        if at_end and len(found) >= count:
            assert len(found) == count
            return found


def test_a_log_is_created_only_by_its_first_entry(opened: Open) -> None:
    appender, reader = opened("append"), opened("read")
    assert reader.entries("", 10, 0.05) == ([], True)
    assert appender.ends() is None
    with pytest.raises(StreamMissing):
        appender.append([b"not the first"])
    with pytest.raises(PositionLost):
        reader.entries("5.0123456789abcdef", 10, 0.05)
    appender.begin(b"first")
    appender.append([b"second"])
    assert [one.data for one in read_all(reader, "", 2)] == [b"first", b"second"]


def test_entries_have_ids_that_rise_and_the_times_of_the_engine(opened: Open) -> None:
    appender, reader = opened("append"), opened("read")
    began = time.time() * 1000
    told = appender.begin(b"0")
    for start in range(1, 301, 100):
        some = appender.append([b"%d" % n for n in range(start, start + 100)])
        if told is not None:
            assert some is not None
            told += some
    found = read_all(reader, "", 301)
    assert [one.data for one in found] == [b"%d" % n for n in range(301)]
    if told is not None:
        assert told == [one.id for one in found]
    for one in found:
        assert began - 1000 <= one.time <= time.time() * 1000 + 1000
    ends = appender.ends()
    assert ends is not None
    assert [one.id for one in ends] == [found[0].id, found[-1].id]
    assert [one.data for one in ends] == [b"0", b"300"]


def test_a_reader_continues_behind_a_position_that_exists(opened: Open) -> None:
    appender, reader = opened("append"), opened("read")
    appender.begin(b"0")
    appender.append([b"%d" % n for n in range(1, 30)])
    found = read_all(reader, "", 30)
    other = opened("read")
    for at in (0, 13, 28, 29):
        assert read_all(other, position(found[at]), 29 - at) == found[at + 1 :]
        # Whatever is there.
        assert read_all(other, f"{found[at].id}.", 29 - at) == found[at + 1 :]
        with pytest.raises(PositionLost):
            other.entries(f"{found[at].id}.0123456789abcdef", 10, 0.2)


def test_a_waiting_reader_gets_the_next_entry_at_once_and_notices_the_end_of_the_log(
    opened: Open,
) -> None:
    appender, reader = opened("append"), opened("read")
    appender.begin(b"0")
    after = position(read_all(reader, "", 1)[0])

    def wait() -> list[Entry]:
        # The first may say that this is the end.
        return reader.entries(after, 10, PATIENCE)[0] or reader.entries(after, 10, PATIENCE)[0]

    with ThreadPoolExecutor(1) as pool:
        for n in range(1, 20):
            waits = pool.submit(wait)
            appender.append([b"%d" % n])
            (one,) = waits.result(PATIENCE)
            assert one.data == b"%d" % n
            after = position(one)
    eventually(lambda: reader.entries(after, 10, 0.05) == ([], True))


def test_two_writers_keep_their_order_and_readers_agree(opened: Open) -> None:
    opened("append").begin(b"0 0")

    def append(who: int) -> None:
        appender = opened("append")
        for n in range(0, 200, 10):
            appender.append([b"%d %d" % (who, m) for m in range(n, n + 10)])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(append, (1, 2)))
    found = read_all(opened("read"), "", 401)
    assert read_all(opened("read"), "", 401) == found
    for who in (b"1", b"2"):
        own = [int(one.data.split()[1]) for one in found if one.data.startswith(who)]
        assert own == list(range(200))


def test_close_ends_a_waiting_read_and_later_ones(opened: Open) -> None:
    appender, reader = opened("append"), opened("read")
    appender.begin(b"0")
    after = position(read_all(reader, "", 1)[0])
    inside = threading.Event()

    def wait() -> None:
        while True:
            # The first may say that this is the end.
            inside.set()
            reader.entries(after, 1, PATIENCE)

    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(wait)
        inside.wait(PATIENCE)
        reader.close()
        with pytest.raises(StreamUnavailable, match="closed"):
            waits.result(PATIENCE / 2)
    for call in (lambda: reader.entries("", 1, 0), reader.last, lambda: reader.append([b"x"])):
        with pytest.raises(StreamUnavailable, match="closed"):
            call()
    reader.close()


def test_trimming_removes_only_the_trimmed_entries(opened: Open, engine: Engine) -> None:
    appender, reader = opened("append"), opened("read")
    appender.begin(b"0")
    appender.append([b"%d" % n for n in range(1, 30)])
    found = read_all(reader, "", 30)
    if isinstance(engine, Rabbitmq):
        assert "a policy with max-age or max-length-bytes" in appender.untrimmed
        with pytest.raises(StreamUnfit, match="RabbitMQ cannot trim a stream at a position"):
            appender.trim([position(found[20])])
        return
    no_entry = f"{found[15].id}.0123456789abcdef"
    assert appender.trim([no_entry, position(found[20])]) == 0
    assert appender.trim([position(found[10]), position(found[20])]) == 20
    assert appender.trim([position(found[10])]) == 0
    assert appender.trim([position(found[20])]) == 0
    ends = appender.ends()
    assert ends is not None and ends[0].data == b"20"
    other = opened("read")
    with pytest.raises(PositionLost):
        other.entries(position(found[5]), 10, 0.2)
    assert read_all(other, position(found[20]), 9) == found[21:]
    assert read_all(other, "", 10) == found[20:]
    assert read_all(other, f"{found[5].id}.", 10) == found[20:]


def test_an_entry_is_found_only_if_it_is_unchanged(opened: Open) -> None:
    appender, looker = opened("append"), opened("read")
    assert looker.look(["5.0123456789abcdef", "5."]) == [False, False]
    appender.begin(b"0")
    appender.append([b"%d" % n for n in range(1, 30)])
    found = read_all(opened("read"), "", 30)
    last = found[-1].id
    beyond = f"{int(last.partition('-')[0]) + 9}-0" if "-" in last else str(int(last) + 9)
    wanted = [
        (position(found[3]), True),
        (f"{found[4].id}.0123456789abcdef", False),
        (f"{found[5].id}.", True),
        (position(found[29]), True),
        (f"{beyond}.{_core.LogBridge.mark(b'29')}", False),
    ]
    for _ in range(2):
        assert looker.look([one for one, _ in wanted]) == [is_there for _, is_there in wanted]
    # The last entry seen is searched again if nothing follows it.
    assert looker.look([position(found[3]), f"{found[6].id}.0123456789abcdef"]) == [True, False]


def test_the_reported_largest_entry_is_accepted(opened: Open) -> None:
    appender, reader = opened("append"), opened("read")
    appender.begin(b"0")
    most, setting = appender.largest()
    assert most >= 1_000_000 and setting
    most = min(most, 16 << 20)
    appender.append([b"x" * most, b"y" * most])
    found = read_all(reader, "", 3)
    assert [len(one.data) for one in found] == [1, most, most]


def test_a_log_that_is_deleted_is_missing_and_lost(
    opened: Open, engine: Engine, table: str
) -> None:
    appender, reader = opened("append"), opened("read")
    appender.begin(b"0")
    after = position(read_all(reader, "", 1)[0])
    engine.delete_log(table, "north_1")

    def lost() -> bool:
        try:
            reader.entries(after, 10, 0.2)
        except PositionLost as error:
            return (error.first, error.last) == ("", "")
        except StreamUnavailable:
            # Earlier requests to it.
            pass
        return False

    eventually(lost, "PositionLost")

    def missing() -> bool:
        try:
            appender.append([b"1"])
        except StreamMissing:
            return True
        except StreamUnavailable:
            pass
        return False

    eventually(missing, "StreamMissing")


def test_a_log_that_its_engine_may_evict_is_refused_with_the_reason(engine: Engine) -> None:
    if not engine.unfit:
        pytest.skip("nodes ask Redis themselves")
    for settings, wanted in engine.unfit:
        table = f"t.{uuid.uuid4().hex}"
        engine.make_log(log_name(table, "north_1"), settings)
        stream = open_log(engine.url, table, "north_1", role="append")
        with pytest.raises(StreamUnfit, match=wanted):
            stream.append([b"x"])
        stream.close()
        stream = open_log(engine.url, table, "north_1")
        with pytest.raises(StreamUnfit, match=wanted):
            stream.entries("", 10, 0.1)
        stream.close()


def test_settings_that_an_operator_changes_are_noticed_while_nodes_read(
    opened: Open, engine: Engine, table: str
) -> None:
    appender, reader = opened("append"), opened("read")
    appender.begin(b"0")
    after = position(read_all(reader, "", 1)[0])
    wanted = engine.spoil_log(log_name(table, "north_1"))
    if wanted is None:
        pytest.skip("nodes ask Redis themselves, and AMQP tells no policy")

    def is_refused() -> bool:
        try:
            reader.entries(after, 10, 0.2)
        except StreamUnfit as error:
            return wanted in str(error)
        return False

    eventually(is_refused, wanted)
