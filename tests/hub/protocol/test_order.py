"""Several publishers, several subscribers, several workers: all that was sent arrives, once, and in
one order for everybody."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

import interlock
from interlock.hub.client import Client
from tests.hub.servers import needs_hub

PUBLISHERS = 4
SUBSCRIBERS = 6
MESSAGES = 3000


class Subscriber(threading.Thread):
    """Keeps all it gets until it has had the end of every publisher."""

    def __init__(self, port: int, *, topics: Sequence[str] = (), pattern: str = "") -> None:
        super().__init__(daemon=True)
        self.client = Client(f"127.0.0.1:{port}", timeout=30)
        if pattern:
            self.client.psubscribe(pattern)
        else:
            self.client.subscribe(*topics)
        self.found: list[bytes] = []
        self.start()

    def run(self) -> None:
        ends = 0
        with self.client:
            while ends < PUBLISHERS:
                published = self.client.message(30)
                if published is None:
                    return
                if published.payload == b"end":
                    ends += 1
                else:
                    self.found.append(published.payload)


def publish(port: int, number: int, burst: int, errors: list[BaseException]) -> None:
    try:
        with Client(f"127.0.0.1:{port}", timeout=30) as client:
            for start in range(0, MESSAGES, burst):
                client.pipeline(
                    [
                        ("PUBLISH", f"t{count % 2}", f"{number}:{count}")
                        for count in range(start, min(start + burst, MESSAGES))
                    ]
                )
            # To both topics at once would be two; the last topic alone ends it.
            client.publish("t0", "end")
    except BaseException as error:
        errors.append(error)


@pytest.mark.parametrize("burst", [1, 7, 100])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_all_that_was_sent_arrives_once_and_in_one_order(workers: int, burst: int) -> None:
    needs_hub()
    with interlock.Hub(port=0, workers=workers) as hub:
        subscribers = [Subscriber(hub.port, topics=["t0", "t1"]) for _ in range(SUBSCRIBERS - 2)]
        subscribers += [Subscriber(hub.port, pattern="t*") for _ in range(2)]
        errors: list[BaseException] = []
        publishers = [
            threading.Thread(target=publish, args=(hub.port, number, burst, errors))
            for number in range(PUBLISHERS)
        ]
        for thread in publishers:
            thread.start()
        for thread in [*publishers, *subscribers]:
            thread.join()
    assert not errors
    for subscriber in subscribers:
        assert len(subscriber.found) == PUBLISHERS * MESSAGES
        for number in range(PUBLISHERS):
            own = [payload for payload in subscriber.found if payload.startswith(b"%d:" % number)]
            assert own == [b"%d:%d" % (number, count) for count in range(MESSAGES)]
    for subscriber in subscribers[1:]:
        assert subscriber.found == subscribers[0].found


def test_subscriptions_that_come_and_go_lose_nothing_of_those_that_stay() -> None:
    needs_hub()
    with interlock.Hub(port=0, workers=2) as hub:
        staying = [Subscriber(hub.port, topics=["t0", "t1"]) for _ in range(3)]
        stop = threading.Event()
        errors: list[BaseException] = []

        def come_and_go() -> None:
            try:
                while not stop.is_set():
                    with Client(f"127.0.0.1:{hub.port}", timeout=30) as client:
                        client.subscribe("t0", "t1", "other")
                        client.psubscribe("t*")
                        client.unsubscribe("t0")
            except BaseException as error:
                errors.append(error)

        goers = [threading.Thread(target=come_and_go) for _ in range(2)]
        publishers = [
            threading.Thread(target=publish, args=(hub.port, number, 10, errors))
            for number in range(PUBLISHERS)
        ]
        for thread in [*goers, *publishers]:
            thread.start()
        for thread in [*publishers, *staying]:
            thread.join()
        stop.set()
        for thread in goers:
            thread.join()
    assert not errors
    assert all(one.found == staying[0].found for one in staying)
    assert len(staying[0].found) == PUBLISHERS * MESSAGES
