"""The answer to one call, and its cost to a server, are bounded whatever the queue holds."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import redis

import interlock
from interlock.client.admin.server import Server
from tests.engine.calls import Argument, Queue, message
from tests.engine.naive.model import LEASED, Spec
from tests.engine.naive.read import NAMED, NAMED_BYTES
from tests.engine.naive.watch import WatchedModel
from tests.engine.schedules.compare import difference
from tests.engine.schedules.director import Director
from tests.engine.schedules.servers import Servers, both

MOST = "1000"
"""Messages that an explanation may be asked for."""


@pytest.fixture(scope="module")
def servers(engine_port: int) -> Iterator[Servers]:
    with both(engine_port) as servers:
        yield servers


class Asking:
    """Puts, and explanations, with what the model says of them."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._director = Director(WatchedModel(servers.now))
        self.told: list[list[str]] = []

    def put(self, *specs: Spec) -> None:
        """In batches that a call takes."""
        batch: list[Spec] = []
        for spec in specs:
            if len(batch) == 1_000 or sum(len(s.keys + s.shared) for s in [*batch, spec]) > 4_096:
                self._director.take(("put", ("", "0", batch)))
                batch = []
            batch.append(spec)
        self._director.take(("put", ("", "0", batch)))

    def lease(self, count: int) -> None:
        self._director.take(("lease", ("", ["0", str(count), "1000000", "any"])))

    def explain(self, what: str, name: str) -> list[str]:
        """Call explain, and return the answer of the model."""
        told = self._director.model.explain(what, name, int(MOST))
        self._director._call("explain", [what, name, MOST], told)
        return told

    def explain_last(self) -> list[str]:
        return self.explain("id", str(self._director.model.number))

    def bury_all(self) -> None:
        """All that is put becomes a dead letter."""
        model = self._director.model
        while model.unsettled():
            # A lease has no more messages than this if each has a thousand keys.
            self.lease(4)
            out = [entry for entry in model.line if entry.state == LEASED]
            made = [["REJECT", str(entry.token), str(entry.id), "bad"] for entry in out]
            flat = [part for one in made for part in one]
            self._director._call("settle", ["", "0", *flat], model.settle(made))

    def dead_letters(self, count: int, after: str = "", *key: str) -> list[str]:
        told = self._director.model.dead_letters(count, after, *key or [None])
        self._director._call("dead_letters", [str(count), after, *key], told)
        return told

    def scan_dead(self, count: int) -> list[str]:
        told = self._director.model.scan_dead(count)
        self._director._call("scan", ["0", str(count), "dead"], told)
        return told

    def must_agree(self) -> None:
        """Hub and Redis say the same."""
        asked = self._servers.ask(self._director.calls)
        wrong = difference(asked, self._servers.answered())
        assert wrong is None or wrong.startswith("left over"), wrong[-2_000:]


def holders(told: list[str]) -> int:
    """Count those that are named in front of others, in all."""
    parts = iter(told)
    count = 0
    next(parts)
    for _ in range(int(next(parts))):
        for _ in range(8):
            next(parts)
        for _ in range(int(next(parts))):
            next(parts)
        assert next(parts) == "0", "no limits"
        assert next(parts) == "0", "no groups"
        assert next(parts) == "0", "not parked"
        for _ in range(int(next(parts))):
            for _ in range(3):
                next(parts)
            named = int(next(parts))
            count += named
            for _ in range(named):
                next(parts)
    assert next(parts, None) is None
    return count


def names(letter: str, count: int, size: int = 4) -> tuple[str, ...]:
    return tuple(f"{letter}{n:0{size - 1}}" for n in range(count))


def test_an_explanation_names_a_bounded_number_of_blockers_over_all_keys(servers: Servers) -> None:
    asking = Asking(servers)
    keys = names("k", 16)
    asking.put(*[Spec("reads", shared=keys) for _ in range(400)])
    asking.put(*[Spec("writes", keys) for _ in range(3)])
    told = asking.explain_last()
    asking.explain("key", keys[0])
    asking.must_agree()
    assert told[0] == "1" and int(told[1]) > 1
    # Of 6,400 in front of each writer; to name a reader the first time is to go through its keys.
    assert 3_000 < holders(told) <= NAMED


def test_the_bytes_of_keys_in_an_answer_are_bounded(servers: Servers) -> None:
    asking = Asking(servers)
    for n in range(20):
        asking.put(Spec("x", (*names(f"{n:02}", 100, 1_000), "all")))
    told = asking.explain_last()
    asking.explain("key", "all")
    asking.must_agree()
    assert told[0] == "0" and told[1] == "2"
    front = asking.explain("key", "all")
    assert front[0] == "1" and 10 < int(front[1]) < 15
    assert sum(map(len, front)) < 2 * NAMED_BYTES


def test_an_explanation_names_a_bounded_number_of_messages_that_block_barriers(
    servers: Servers,
) -> None:
    asking = Asking(servers)
    asking.put(*[Spec("x", (f"{n}", "b", "c")) for n in range(300)])
    asking.put(*[Spec("unkeyed") for _ in range(100)])
    asking.lease(80)
    for n in range(60):
        asking.put(Spec(f"barrier {n}", options=(("BARRIER", "1"),)), Spec("gated", ("b",)))
    told = asking.explain_last()
    asking.must_agree()
    assert told[0] == "0" and int(told[1]) == 82


def test_an_explanation_takes_redis_a_bounded_number_of_commands(queue: Queue) -> None:
    """The hash of lanes and those of links are what an explanation reads."""
    keys = names("k", 64)
    for _ in range(10):
        queue.put(*[message("reads", [], keys) for _ in range(60)])
    ids = queue.put(*[message("writes", keys) for _ in range(60)])
    before = commands(queue.connection)
    told = queue.call("explain", "id", ids[-1], MOST)
    count = commands(queue.connection) - before
    assert told[0] == "1"
    # Each step counted takes two, each of those named three at most, and each message has its own.
    assert count < 2 * 2_000 + 3 * (NAMED + 128)
    assert len(told) < 2 * NAMED


def commands(connection: redis.Redis) -> int:
    """Count the commands that a server has executed, in functions too."""
    found: Any = connection.info("commandstats")
    return sum(one["calls"] for one in found.values())


def test_counting_the_messages_before_a_barrier_stops_after_a_number_of_steps(queue: Queue) -> None:
    barriers = [message("alone", barrier=1) for _ in range(1_000)]
    ids = [id for _ in range(5) for id in queue.put(*barriers)]
    asked: list[tuple[Argument, Argument]] = [(ids[-1], "4999"), (ids[900], "900")]
    for id, ahead in asked:
        before = commands(queue.connection)
        told = queue.call("explain", "id", id, 1)
        assert told[15:18] == ["", ahead, "1"]
        assert commands(queue.connection) - before < 100
    told = queue.call("explain", "id", ids[2_500], 1)
    assert told[17] == "0" and 0 < int(told[16]) < 2_500


def test_a_page_of_dead_letters_has_a_bounded_size(servers: Servers) -> None:
    asking = Asking(servers)
    for n in range(6):
        asking.put(Spec("x" * 200_000, names(f"{n}", 100, 1_000)))
    asking.put(Spec("last", ("key",)))
    asking.bury_all()
    page = asking.dead_letters(100)
    letters = [at for at, part in enumerate(page) if part.startswith("bad\x1f")]
    assert 0 < len(letters) < 7 and sum(map(len, page)) < 1_400_000
    scanned = asking.scan_dead(100)
    assert scanned[0] == page[letters[0] - 3 :][0] or scanned[0] != "0"
    asking.must_agree()


def test_a_page_of_dead_letters_with_long_errors_has_a_bounded_size(
    servers: Servers,
) -> None:
    asking = Asking(servers)
    director = asking._director
    history = "\x1e".join(f"{'x' * 4_000}\x1f{n}\x1f5" for n in (3, 2, 1))
    for n in range(2):
        items = [([f"{n}.{m}", "dead", "3", history], 0, Spec("p")) for m in range(60)]
        director.take(("restore", ("1000", items)))
    page = asking.dead_letters(1000)
    assert 80 < page.count(history) < 100
    asking.scan_dead(1000)
    asking.must_agree()


def test_a_dead_letter_behind_ten_thousand_keys_is_found_by_its_key(servers: Servers) -> None:
    asking = Asking(servers)
    for n in range(12):
        asking.put(Spec(f"{n}", names(f"{n:02}", 1_000)))
    asking.put(Spec("far", ("far",)))
    asking.bury_all()
    letters = asking.dead_letters(100)
    assert letters[-1] == "far"
    assert asking.dead_letters(100, "", names("08", 1)[0]) != []
    assert asking.dead_letters(100, letters[0], "far")[-1] == "far"
    asking.must_agree()


def test_pages_of_the_dead_letters_on_a_key_have_all_of_them_if_an_earlier_release_wrote_some(
    queue: Queue,
) -> None:
    for n in range(12):
        queue.put(message("x", names(f"{n:02}", 1_000)))
    far = queue.put(message("y", ["far"]))
    while some := queue.lease(4).messages:
        queue.settle(*[one.reject() for one in some])
    queue.connection.delete(f"{queue.key}:xk")
    far += queue.put(message("y", ["far"]))
    queue.settle(*[one.reject() for one in queue.lease(4).messages])
    after, found, pages = "", [], 0
    while page := queue.call("dead_letters", 100, after, "far"):
        pages += 1
        while page:
            after, exclusive, shared = page[0], int(page[6]), int(page[7])
            keys, page = page[8 : 8 + exclusive + shared], page[8 + exclusive + shared :]
            found += [after] * ("far" in keys)
    assert found == far
    assert pages == 2


def test_a_purge_of_dead_letters_with_many_keys_is_bounded(queue: Queue) -> None:
    for n in range(24):
        queue.put(message("x", names(f"{n:02}", 1_000)))
    while some := queue.lease(4).messages:
        queue.settle(*[one.reject() for one in some])
    purged = [int(queue.call("purge", "dead")[0]) for _ in range(4)]
    assert purged == [8, 8, 8, 0]
    assert not queue.connection.exists(f"{queue.key}:xk")


@pytest.fixture(params=["redis", "hub"])
def either(request: pytest.FixtureRequest) -> Iterator[Queue]:
    """A queue on either server."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    if request.param == "redis":
        request.getfixturevalue("connection")
    with redis.Redis(port=int(url.rpartition(":")[2])) as connection:
        yield Queue(connection, uuid.uuid4().hex)


def pages(queue: Queue, function: str, *more: Argument) -> Iterator[list[str]]:
    cursor = "0"
    while True:
        cursor, *page = queue.call(function, cursor, *more)
        yield page
        if cursor == "0":
            return


def test_a_page_of_messages_has_a_bounded_size(either: Queue) -> None:
    ids = []
    for _ in range(24):
        ids += either.put(message("x" * 500_000))
    some = list(pages(either, "scan", 1_000))
    assert sorted({id for page in some for id in page[::10]}) == ids
    # A page of Redis is what eight places of a hash hold.
    assert len(some) > 1 and max(sum(map(len, page)) for page in some) < 20 * 500_000


def test_paused_keys_are_listed_in_pages(either: Queue) -> None:
    keys = names("k", 3_000, 6)
    for start in range(0, 3_000, 1_000):
        either.call("pause", *keys[start : start + 1_000])
    either.call("pause")
    some = list(pages(either, "paused"))
    assert len(some) > 1 and sorted(key for page in some for key in page) == ["", *keys]


@pytest.mark.parametrize("delay", [0, 9_000_000], ids=["waiting", "delayed"])
def test_a_purge_drops_few_messages_at_a_time_if_they_have_many_keys(
    either: Queue, delay: int
) -> None:
    for n in range(9):
        either.put(message("x", names(f"{n}", 1_000), delay=delay))
    purged: list[int] = []
    while not purged or purged[-1]:
        purged.append(int(either.call("purge", "pending")[0]))
    assert sum(purged) == 9 and max(purged) == 5
    assert either.stats()["lanes"] == 0


def test_pausing_a_key_looks_at_a_bounded_number_of_ready_messages(either: Queue) -> None:
    for _ in range(12):
        either.put(*[message("reads", [], ["a"]) for _ in range(1_000)])
    either.call("pause", "a")
    assert either.stats()["ready"] == 2_000
    # A lease sets aside those that come up.
    while either.lease().next == "0":
        pass
    assert either.stats()["ready"] == 0


def test_the_names_of_many_queues_are_listed_in_pages(hub_url: str) -> None:
    made = [b"q%05d" % n for n in range(10_001)]
    with redis.Redis(port=int(hub_url.rpartition(":")[2])) as connection:
        lines = connection.pipeline(transaction=False)
        for name in made:
            lines.fcall("il1_seal", 1, b"il:{%s}" % name)
        lines.execute()
        told: list[bytes] = []
        cursor = b"0"
        while not told or cursor != b"0":
            cursor, *some = connection.fcall("il1_queues", 0, cursor)
            assert len(some) <= 1_000
            told += some
        assert sorted(told) == made
        with pytest.raises(redis.ResponseError, match=r"^TOOBIG il1_queues: .*10000 queues"):
            connection.fcall("il1_queues", 0)
        with pytest.raises(redis.ResponseError, match=r"^BADARG il1_queues: cursor"):
            connection.fcall("il1_queues", 0, "first")
    with interlock.connect(hub_url) as client:
        assert sorted(Server(client).queues()) == made


@pytest.mark.parametrize("what", ["DOCS", "INFO"])
def test_command_info_refuses_more_than_a_thousand_names(hub_url: str, what: str) -> None:
    port = int(hub_url.rpartition(":")[2])
    many = ["get"] * 1_001
    with (
        redis.Redis(port=port) as connection,
        pytest.raises(redis.ResponseError, match="more than 1000 commands"),
    ):
        connection.execute_command("COMMAND", what, *many)
