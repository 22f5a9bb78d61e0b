"""A caller that waits for work or room is woken by the call that has some, and costs nothing."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from redis.exceptions import ResponseError

from tests.engine.calls import LONG, Argument, Queue, leased, message
from tests.engine.timed import TimedQueue

WAIT = 60_000_000


class Sleeper:
    """A caller that waits on a list, on a connection of its own."""

    def __init__(self, queue: Queue, part: str) -> None:
        port = queue.connection.connection_pool.connection_kwargs["port"]
        self.connection = redis.Redis(port=port)
        self.list = f"{queue.key}:{part}"
        self.id = self.connection.client_id()
        self.woken: Any = None
        self.thread = threading.Thread(target=self._sleep, daemon=True)
        self.thread.start()
        clients: Callable[[], list[Any]] = queue.connection.client_list
        while not any(int(c["id"]) == self.id and c["flags"] == "b" for c in clients()):
            pass

    def _sleep(self) -> None:
        if "settled:" in self.list:
            self.woken = self.connection.blmove(self.list, self.list, 30, "LEFT", "LEFT")
        else:
            self.woken = self.connection.blpop([self.list], 30)

    def wakes(self) -> bool:
        self.thread.join(20)
        return self.woken is not None


@pytest.fixture
def sleeper(queue: Queue) -> Iterator[Callable[[str], Sleeper]]:
    made: list[Sleeper] = []

    def make(part: str) -> Sleeper:
        made.append(Sleeper(queue, part))
        return made[-1]

    yield make
    for one in made:
        with redis.Redis(port=queue.connection.connection_pool.connection_kwargs["port"]) as other:
            other.client_unblock(one.id)
        one.thread.join(20)
        one.connection.close()


def wait(queue: Queue, name: str, kind: str = "any", span: int = WAIT) -> None:
    assert queue.call("lease", name, 0, span, 1, LONG, kind)[3] == "0"


def elements(queue: Queue, part: str) -> int:
    count: Any = queue.connection.llen(f"{queue.key}:{part}")
    return int(count)


@pytest.mark.parametrize(("kind", "keys"), [("any", ["a"]), ("keyed", ["a"]), ("unkeyed", [])])
def test_a_put_wakes_a_consumer_waiting_for_its_kind(
    queue: Queue, sleeper: Callable[[str], Sleeper], kind: str, keys: list[str]
) -> None:
    wait(queue, "w", kind)
    asleep = sleeper(f"wake:{kind}")
    queue.put(message("one", keys))
    assert asleep.wakes()
    got = leased(queue.call("lease", "w", 0, WAIT, 1, LONG, kind)).messages
    assert [one.payload for one in got] == ["one"]


def test_a_consumer_of_another_kind_is_not_woken(queue: Queue) -> None:
    wait(queue, "w", "unkeyed")
    wait(queue, "v", "keyed")
    queue.put(message("one", ["a"]))
    assert (elements(queue, "wake:unkeyed"), elements(queue, "wake:keyed")) == (0, 1)


def test_a_put_wakes_one_consumer_for_each_ready_message(queue: Queue) -> None:
    for name in "abc":
        wait(queue, name)
    queue.put(message("one", ["a"]), message("two", ["a"]))
    assert elements(queue, "wake:any") == 1
    queue.put(message("three"))
    assert elements(queue, "wake:any") == 2
    queue.put(*[message("more") for _ in range(100)])
    assert elements(queue, "wake:any") == 3
    # And they do not stay for ever if nobody takes them.
    assert 0 < queue.connection.pttl(f"{queue.key}:wake:any") <= WAIT // 1_000 + 1


def test_a_settlement_wakes_a_consumer_for_each_message_it_readies(
    queue: Queue, sleeper: Callable[[str], Sleeper]
) -> None:
    queue.put(message("one", ["a"]), message("two", ["a"]))
    (first,) = queue.lease(1).messages
    wait(queue, "w")
    asleep = sleeper("wake:any")
    queue.settle(first.ack())
    assert asleep.wakes()


@pytest.mark.parametrize("free", [["resume"], ["resume", "a"]], ids=["the queue", "a key"])
def test_a_resumed_queue_wakes_waiting_consumers(
    queue: Queue, sleeper: Callable[[str], Sleeper], free: list[str]
) -> None:
    queue.call("pause", *free[1:])
    queue.put(message("one", ["a"]))
    wait(queue, "w")
    assert elements(queue, "wake:any") == 0
    asleep = sleeper("wake:any")
    queue.call(free[0], *free[1:])
    assert asleep.wakes()


def test_a_consumer_that_calls_again_is_no_longer_waiting(queue: Queue) -> None:
    wait(queue, "w")
    queue.put(message("one"))
    assert elements(queue, "wake:any") == 1
    queue.connection.lpop(f"{queue.key}:wake:any")
    assert leased(queue.call("lease", "w", 0, WAIT, 1, LONG, "any")).messages
    queue.put(message("two"))
    assert queue.parts() == {"c", "c.place", "c.mark", "c.lease", "fu", "due"}


def test_a_wake_up_for_a_dead_consumer_is_passed_on(queue: Queue) -> None:
    wait(queue, "dead")
    wait(queue, "living")
    queue.put(message("one"))
    # The dead one took the element and never asks. The next call that writes pushes again.
    assert queue.connection.lpop(f"{queue.key}:wake:any")
    assert elements(queue, "wake:any") == 0
    queue.call("extend", 5, 1)
    assert elements(queue, "wake:any") == 1


def test_a_wait_that_is_over_leaves_no_waiter(queue: Queue) -> None:
    wait(queue, "brief", span=1)
    queue.put(message("one"))
    assert elements(queue, "wake:any") == 0
    assert queue.payloads() == ["one"]
    wait(queue, "long")
    queue.put(message("two"), message("three"))
    assert elements(queue, "wake:any") == 1
    assert queue.connection.zrange(f"{queue.key}:w:any", 0, -1) == [b"long"]


def test_a_put_that_waits_for_room_is_woken_by_a_settlement(
    queue: Queue, sleeper: Callable[[str], Sleeper]
) -> None:
    queue.call("configure", "MAXSIZE", 2)
    queue.put(message("one"), message("two"))
    full: list[Argument] = ["p", 1, WAIT, *message("three")]
    with pytest.raises(ResponseError, match="FULL il1_put: 2 messages are unsettled; MAXSIZE is 2"):
        queue.call("put", *full)
    asleep = sleeper("room:p")
    (first,) = queue.lease(1).messages
    assert asleep.woken is None
    queue.settle(first.ack())
    assert asleep.wakes()
    # The refused call was not kept: its number is free.
    assert queue.call("put", *full)[1] == "0"
    assert elements(queue, "room:p") == 0
    (second,) = queue.lease(1).messages
    queue.settle(second.ack())
    assert elements(queue, "room:p") == 0, "nobody waits any more"


def refused(queue: Queue, *arguments: Argument) -> str:
    with pytest.raises(ResponseError) as error:
        queue.call("put", *arguments)
    return str(error.value)


def test_waiting_puts_are_woken_in_order_as_far_as_there_is_room(queue: Queue) -> None:
    queue.call("configure", "MAXSIZE", 4)
    queue.put(*[message("m") for _ in range(4)])
    for name, count in [("three", 3), ("a", 1), ("two", 2), ("b", 1), ("c", 1)]:
        refused(queue, name, 1, WAIT, *message("new") * count)

    def woken() -> list[str]:
        return [n for n in ("three", "a", "two", "b", "c") if elements(queue, f"room:{n}")]

    messages = queue.lease(4).messages
    queue.settle(messages[0].ack(), messages[1].ack())
    assert woken() == ["a", "b"], "behind a one more would be enough for one"
    # A client that asks again and is refused keeps its place, and is woken only for later messages.
    queue.connection.delete(f"{queue.key}:room:a")
    queue.call("put", "a", 2, WAIT, *message("new"))
    refused(queue, "three", 2, WAIT, *message("new") * 3)
    queue.settle(messages[2].ack())
    assert woken() == ["two", "b"]
    queue.settle(messages[3].ack())
    assert woken() == ["three", "two", "b"]
    for name in ("three", "a", "two", "b", "c"):
        assert queue.connection.pttl(f"{queue.key}:room:{name}") <= WAIT // 1_000 + 1
    queue.call("seal")
    assert woken() == ["three", "two", "b", "c"]


def test_a_waiting_put_whose_client_died_blocks_no_other(connection: redis.Redis) -> None:
    queue = TimedQueue(connection, uuid.uuid4().hex)
    queue.call("configure", "MAXSIZE", 3)
    queue.put(message("one"), message("two"))
    queue.lease(1)
    # The line is kept by the server's own clock for as long as somebody may wait.
    late = 30_000_000
    refused(queue, "dead", 1, late, *message("new") * 3)
    refused(queue, "living", 1, WAIT, *message("new") * 2)

    def small() -> None:
        queue.call("cancel", queue.put(message("small"))[0])

    for _ in range(64):
        small()
    assert "room is reserved" in refused(queue, "small", 1, 0, *message("small"))
    queue.at(late)
    for _ in range(64):
        small()
    assert "room is reserved" in refused(queue, "small", 1, 0, *message("small"))
    queue.at(late + 9_999)
    assert "room is reserved" in refused(queue, "small", 1, 0, *message("small"))
    # Nothing was settled: those who fit pass again for as long.
    queue.at(late + 10_000)
    for _ in range(200):
        small()
    queue.at(late + 19_999)
    small()
    queue.at(late + 20_000)
    assert "room is reserved" in refused(queue, "small", 1, 0, *message("small"))
    queue.call("put", "living", 2, 0, *message("new"))
    assert queue.connection.zcard(f"{queue.key}:w:room") == 0
    queue.settle(*[one.ack() for one in queue.lease().messages])
    small()
    assert not queue.parts() & {"w:needs", "w:room", "room:dead", "room:living"}


@pytest.mark.parametrize("back", [1, 5_000, 30_000_000])
def test_a_clock_that_is_set_back_ends_the_reservation_of_room(
    connection: redis.Redis, back: int
) -> None:
    """The reservation is extended while messages are settled, so that only its end may be ahead."""
    queue = TimedQueue(connection, uuid.uuid4().hex)
    queue.at(60_000_000)
    queue.call("configure", "MAXSIZE", 8)
    queue.put(*[message("one") for _ in range(7)])
    leased = queue.lease(7).messages
    refused(queue, "large", 1, WAIT, *message("new") * 7)
    for _ in range(64):
        queue.call("cancel", queue.put(message("small"))[0])
    assert "room is reserved" in refused(queue, "small", 1, 0, *message("small"))
    if back < 10_000:
        queue.at(60_000_000 + 10_000)
        queue.settle(leased[0].ack())
        assert "room is reserved" in refused(queue, "small", 1, 0, *message("small"))
        queue.at(60_000_000 + 10_000 - back)
    else:
        queue.at(60_000_000 - back)
    queue.put(message("small"))


def test_no_room_is_kept_for_a_put_that_waits_since_before_the_clock_was_set_back(
    connection: redis.Redis,
) -> None:
    """Its wait may be over long since: its end is as far ahead as the clock was."""
    queue = TimedQueue(connection, uuid.uuid4().hex)
    queue.at(600_000_000)
    queue.call("configure", "MAXSIZE", 4)
    queue.put(message("one"), message("two"), message("three"))
    queue.lease(1)
    refused(queue, "large", 1, WAIT, *message("new") * 2)
    queue.at(0)
    queue.call("cancel", queue.put(message("small"))[0])
    queue.at(1_000_000)
    queue.put(message("small"))


def test_a_wait_that_is_over_does_not_affect_the_next_one(connection: redis.Redis) -> None:
    """Of how often it was passed, and since when: by its end, and by a put that entered."""
    queue = TimedQueue(connection, uuid.uuid4().hex)
    queue.call("configure", "MAXSIZE", 3)
    first, second, *_ = queue.put(message("one"), message("two"))
    # The line is kept by the server's own clock for as long as somebody may wait.
    refused(queue, "other", 1, 60_000_000, *message("new") * 3)
    refused(queue, "large", 1, 5, *message("new") * 2)
    queue.call("put", "other", 2, 0, *message("new"))
    queue.at(10)
    queue.call("cancel", first)
    # The line was empty meanwhile: this alone keeps it now, by a clock that the queue does not see.
    refused(queue, "large", 2, 1_000_000, *message("new") * 3)
    queue.call("cancel", queue.put(message("small"))[0])
    queue.at(2_000_000)
    refused(queue, "large", 3, 60_000_000, *message("new") * 3)
    queue.call("cancel", queue.put(message("passes: it waits since now"))[0])
    queue.call("cancel", second)
    queue.call("put", "large", 4, 0, *message("new"))
    queue.at(4_000_000)
    refused(queue, "large", 5, 5, *message("new") * 3)
    queue.put(message("passes as well"))


def test_a_requeued_dead_letter_passes_waiting_puts_and_uses_no_reserved_room(
    connection: redis.Redis,
) -> None:
    queue = TimedQueue(connection, uuid.uuid4().hex)
    dead = queue.put(*[message("small") for _ in range(65)])
    queue.settle(*[one.reject() for one in queue.lease(65).messages])
    queue.call("configure", "MAXSIZE", 3)
    queue.put(message("one"), message("two"))
    queue.lease(1)
    refused(queue, "large", 1, WAIT, *message("new") * 2)
    *passing, last = dead
    for id in passing:
        queue.call("cancel", *queue.call("requeue", id))
    with pytest.raises(ResponseError, match="room is reserved"):
        queue.call("requeue", last)
    assert "room is reserved" in refused(queue, "small", 1, 0, *message("small"))
    queue.at(10_000)
    assert queue.call("requeue", last)


def test_sealing_a_queue_wakes_all_waiting_consumers(
    queue: Queue, sleeper: Callable[[str], Sleeper]
) -> None:
    for name in "ab":
        wait(queue, name)
    asleep = [sleeper("wake:any"), sleeper("wake:any")]
    queue.call("seal")
    assert all(one.wakes() for one in asleep)
    assert queue.lease().next == "sealed"


def test_sealing_a_queue_wakes_puts_that_wait_for_room(queue: Queue) -> None:
    queue.call("configure", "MAXSIZE", 1)
    queue.put(message("one"))
    with pytest.raises(ResponseError, match="FULL"):
        queue.call("put", "p", 0, WAIT, *message("two"))
    queue.call("seal")
    assert elements(queue, "room:p") == 1
    with pytest.raises(ResponseError, match="SEALED il1_put: the queue accepts no messages"):
        queue.call("put", "p", 0, WAIT, *message("two"))


def test_a_call_that_does_not_wait_stores_no_waiter(connection: redis.Redis) -> None:
    queue = Queue(connection, uuid.uuid4().hex)
    queue.lease()
    assert queue.parts() <= {"c"}


def test_one_consumer_is_woken_for_a_message_that_falls_due_before_any_timeout(
    queue: Queue,
) -> None:
    for name in "ab":
        wait(queue, name)
    queue.put(message("later", delay=LONG))
    assert elements(queue, "wake:any") == 1
    queue.connection.lpop(f"{queue.key}:wake:any")
    asked = queue.call("lease", "a", 0, WAIT, 1, LONG, "any")
    assert asked[2] != ""
    # One that waits knows now: nobody is woken for what falls due after that.
    queue.put(message("even later", delay=2 * LONG))
    assert elements(queue, "wake:any") == 0
    queue.put(message("sooner", delay=LONG // 2))
    assert elements(queue, "wake:any") == 1


def test_a_waiting_consumer_is_woken_when_another_s_lease_expires(queue: Queue) -> None:
    wait(queue, "w")
    queue.put(message("one"))
    queue.connection.delete(f"{queue.key}:wake:any")
    # Another consumer is quicker, and may die with it.
    assert queue.payloads() == ["one"]
    assert elements(queue, "wake:any") == 1
    assert queue.call("lease", "w", 0, WAIT, 1, LONG, "any")[2] != ""
