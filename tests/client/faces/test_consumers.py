"""Several producers and consumers at once: order, exclusion, and a consumer that is killed."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import uuid
from collections import Counter
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

import pytest
import redis

from tests import seeds
from tests.engine.calls import LONG, Argument, Handed, Queue, leased, message

KEYS = "abcd"
PRODUCERS, CONSUMERS, EACH = 2, 4, 600


class Watched:
    """The messages being handled, seen from outside: overlaps and order, key by key."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside: dict[str, Handed] = {}
        self.handled: list[Handed] = []
        self.overlaps: list[tuple[Handed, Handed]] = []

    def enter(self, one: Handed) -> None:
        with self.lock:
            self.overlaps += [(one, other) for other in self.inside.values() if meet(one, other)]
            self.inside[one.id] = one

    def leave(self, one: Handed, settled: bool) -> None:
        with self.lock:
            del self.inside[one.id]
            if settled:
                self.handled.append(one)

    def check(self) -> None:
        assert not self.overlaps
        assert max(Counter(one.id for one in self.handled).values()) == 1
        last_writer: dict[str, int] = {}
        last_reader: dict[str, int] = {}
        for one in self.handled:
            id = int(one.id)
            for key in one.exclusive:
                assert id > max(last_writer.get(key, 0), last_reader.get(key, 0)), one
                last_writer[key] = id
            for key in one.shared:
                assert id > last_writer.get(key, 0), one
                last_reader[key] = max(id, last_reader.get(key, 0))


class Left:
    """The number of messages that are still to be settled."""

    def __init__(self, count: int) -> None:
        self.lock = threading.Lock()
        self.count = count

    def settled(self, count: int) -> bool:
        """Count further settled messages; return whether they were the last."""
        with self.lock:
            self.count -= count
            return self.count <= 0


def meet(one: Handed, other: Handed) -> bool:
    alone, both = set(one.exclusive), set(one.exclusive + one.shared)
    theirs = set(other.exclusive)
    return bool(alone & (theirs | set(other.shared)) or both & theirs)


def produce(port: int, name: str, seed: int) -> None:
    rng = random.Random(seed)
    with redis.Redis(port=port) as connection:
        queue = Queue(connection, name, f"producer {seed}")
        for number in range(1, EACH // 3 + 1):
            messages: list[Argument] = []
            for _ in range(3):
                named = rng.sample(KEYS, rng.randint(0, 3))
                cut = rng.randint(0, len(named))
                messages += message(
                    "x", named[:cut], named[cut:], priority=rng.choice([0, 5]), attempts=0
                )
            queue.call("put", queue.consumer, number, 0, *messages)


def consume(port: int, name: str, seed: int, watched: Watched, left: Left) -> None:
    rng = random.Random(seed)
    with redis.Redis(port=port) as connection:
        queue = Queue(connection, name, f"consumer {seed}")
        settlements: list[Argument] = []
        number = 0
        done_now = 0
        while True:
            number += 1
            count = rng.choice([1, 2, 5])
            reply = queue.call("next", queue.consumer, number, 0, count, LONG, "any", *settlements)
            done = int(reply[0])
            assert set(reply[1 : 1 + done]) <= {"ACKED", "RETRIED", "RELEASED"}
            if left.settled(done_now):
                return
            settlements, done_now = [], 0
            for one in leased(reply[1 + done :]).messages:
                watched.enter(one)
                verb = rng.choice([one.ack, one.ack, one.ack, one.nack, one.release])
                watched.leave(one, verb == one.ack)
                done_now += verb == one.ack
                settlements += verb()


def test_messages_sharing_a_key_never_overlap_nor_overtake(engine_port: int, queue: Queue) -> None:
    seed = seeds.seed()
    name = queue.key[4:-1]
    watched, left = Watched(), Left(PRODUCERS * EACH)
    with ThreadPoolExecutor(PRODUCERS + CONSUMERS) as pool:
        running = [pool.submit(produce, engine_port, name, seed + n) for n in range(PRODUCERS)]
        running += [
            pool.submit(consume, engine_port, name, seed + 100 + n, watched, left)
            for n in range(CONSUMERS)
        ]
        ended, _ = wait(running, return_when=FIRST_EXCEPTION)
        # If one failed, the others must not ask for ever for what will not come.
        left.settled(left.count)
        for one in ended:
            one.result()
    assert len(watched.handled) == PRODUCERS * EACH
    watched.check()
    assert {part for part in queue.parts() if not part.startswith("k")} - {"c.reply"} == {"c"}


# Leases with a short deadline, prints it, and then hangs.
VICTIM = """
import sys
import redis
from tests.engine.calls import Queue
queue = Queue(redis.Redis(port=int(sys.argv[1])), sys.argv[2], "victim")
lease = queue.lease(2, 50_000)
print(lease.token, *[one.id for one in lease.messages], flush=True)
sys.stdin.read()
"""


def test_messages_of_a_killed_consumer_are_redelivered_before_their_successors(
    engine_port: int, queue: Queue
) -> None:
    ids = queue.put(*[message(str(n), ["a"], first=0) for n in range(3)], message("free", first=0))
    command = [sys.executable, "-c", VICTIM, str(engine_port), queue.key[4:-1]]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as victim:
        assert victim.stdout is not None
        token, *held = victim.stdout.readline().split()
        assert held == [ids[0], ids[3]]
        victim.kill()
    got: list[Handed] = []
    while len(got) < 2:
        got += queue.lease(10).messages
    assert [(one.payload, one.attempt) for one in got] == [("0", 1), ("free", 1)]
    # The dead one's settlement, on its way all this time.
    assert queue.settle(["ACK", token, ids[0]], ["ACK", token, ids[3]]) == ["LEASELOST"] * 2
    assert all(int(one.token) > int(token) for one in got)
    assert queue.payloads() == []
    queue.ack_all(got)
    assert queue.payloads() == ["1"]


@pytest.mark.parametrize("answer", ["ack", "nack"])
def test_consumers_with_the_same_name_settle_only_their_own_messages(
    connection: redis.Redis, answer: str
) -> None:
    queue = Queue(connection, uuid.uuid4().hex)
    queue.put(message("one", ["a"]), message("two", ["b"]))
    one, two = queue.lease(1).messages[0], queue.lease(1).messages[0]
    assert queue.settle(getattr(one, answer)()) == [{"ack": "ACKED", "nack": "RETRIED"}[answer]]
    assert queue.settle(two.ack(), one.ack()) == ["ACKED", "LEASELOST"]
