"""Memory that queues take, and what is counted of it: for each kind of thing that a caller can make
grow, the resident growth of a hub is within what INFO counts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

import pytest

from interlock.hub import introspection
from interlock.hub.client import Client
from tests import seeds
from tests.hub.servers import HubProcess, hub_process

MOST = 1.3
"""Bytes resident for one that is counted, at most."""

ENOUGH = 24 << 20
"""Bytes by which a hub must grow before they are compared: far more than it takes for itself."""

LONG = 3_600_000_000
"""µs: longer than any of these tests lasts."""

Words = tuple[str | int | bytes, ...]


def call(name: str, queue: str, *args: str | int | bytes) -> Words:
    return ("FCALL", f"il1_{name}", 1, f"il:{{{queue}}}", *args)


def text(number: int, length: int) -> str:
    """One of many texts of a length."""
    return f"{number:08d}".ljust(length, "x")


def send(client: Client, calls: Iterator[Words], at_once: int = 500) -> list[object]:
    """All of them, some at a time; the answers."""
    answers: list[object] = []
    some: list[Words] = []
    for one in calls:
        some.append(one)
        if len(some) == at_once:
            answers += client.pipeline(some)
            some = []
    answers += client.pipeline(some)
    return answers


def message(number: int, payload: int, keys: list[str], *options: str | int) -> Words:
    """A message of a put."""
    return text(number, payload), len(keys), 0, len(options) // 2, *keys, *options


def put(client: Client, messages: Iterable[Words]) -> None:
    """Put them, many in a call."""
    send(client, (call("put", "q", "", 0, 0, *itertools.chain(*some))
                  for some in chunks(messages, 200)), 10)  # fmt: skip


def chunks(messages: Iterable[Words], size: int) -> Iterator[list[Words]]:
    rest = iter(messages)
    while some := list(itertools.islice(rest, size)):
        yield some


def leased(client: Client, count: int) -> Iterator[tuple[str, str]]:
    """Token and id of this number of messages, each leased on its own."""
    calls = (call("lease", "q", "me", 0, 0, 1, LONG, "any") for _ in range(count))
    for answer in send(client, calls):
        assert isinstance(answer, list)
        yield answer[0].decode(), answer[4].decode()


def plain(client: Client) -> None:
    put(client, (message(n, 10, []) for n in range(150_000)))


def payloads(client: Client) -> None:
    put(client, (message(n, 700, []) for n in range(50_000)))


def one_key(client: Client) -> None:
    put(client, (message(n, 10, [text(n, 12)]) for n in range(120_000)))


def same_key(client: Client) -> None:
    put(client, (message(n, 10, ["same"]) for n in range(150_000)))


def long_keys(client: Client) -> None:
    put(client, (message(n, 10, [text(n * 4 + k, 1000) for k in range(4)]) for n in range(10_000)))


def delayed(client: Client) -> None:
    put(client, (message(n, 10, [text(n, 12)], "DELAY", LONG) for n in range(80_000)))


def prioritised(client: Client) -> None:
    put(client, (message(n, 10, [], "PRIORITY", n % 9) for n in range(150_000)))


def with_policies(client: Client) -> None:
    put(client, (message(n, 10, [], "ATTEMPTS", 3, "FIRST", 9) for n in range(100_000)))


def dedup_strings(client: Client) -> None:
    put(client, (message(n, 10, [], "DEDUP", text(n, 20)) for n in range(80_000)))


def long_dedup_strings(client: Client) -> None:
    put(client, (message(n, 10, [], "DEDUP", text(n, 1000)) for n in range(30_000)))


def leases(client: Client) -> None:
    put(client, (message(n, 10, []) for n in range(70_000)))
    for _ in leased(client, 70_000):
        pass


def last_errors(client: Client) -> None:
    put(client, (message(n, 10, []) for n in range(16_000)))
    every = leased(client, 16_000)
    send(client, (call("settle", "q", "me", 0, "NACK", token, id, LONG, text(n, 1000))
                  for n, (token, id) in enumerate(every)))  # fmt: skip


def dead_letters(client: Client) -> None:
    client.call(*call("configure", "q", "MAXDEAD", 1_000_000))
    put(client, (message(n, 10, [text(n, 12)]) for n in range(16_000)))
    every = leased(client, 16_000)
    send(client, (call("settle", "q", "me", 0, "REJECT", token, id, text(n, 1000))
                  for n, (token, id) in enumerate(every)))  # fmt: skip


def results(client: Client) -> None:
    client.call(*call("configure", "q", "RESULTS", 1 << 30))
    put(client, (message(n, 10, [], "RESULT", LONG) for n in range(50_000)))
    every = leased(client, 50_000)
    send(client, (call("settle", "q", "me", 0, "DONE", token, id, text(n, 100))
                  for n, (token, id) in enumerate(every)))  # fmt: skip


def paused_keys(client: Client) -> None:
    send(client, (call("pause", "q", *(text(n * 100 + k, 12) for k in range(100)))
                  for n in range(1500)))  # fmt: skip


def long_paused_keys(client: Client) -> None:
    send(client, (call("pause", "q", *(text(n * 100 + k, 1000) for k in range(100)))
                  for n in range(300)))  # fmt: skip


def consumers(client: Client) -> None:
    send(client, (call("lease", "q", text(n, 1000), 1, 0, 1, LONG, "any") for n in range(30_000)))


def holders(client: Client) -> None:
    put(client, (message(n, 10, []) for n in range(16_000)))
    send(client, (call("lease", "q", text(n, 1000), 0, 0, 1, LONG, "any") for n in range(16_000)))


def kept_replies(client: Client) -> None:
    send(client, (call("put", "q", text(n, 20), 1, 0, *(("x", 0, 0, 0) * 20))
                  for n in range(10_000)))  # fmt: skip


def declared_queues(client: Client) -> None:
    send(client, (call("configure", text(n, 20), "MAXSIZE", 10) for n in range(10_000)))


def queues_that_held_something(client: Client) -> None:
    send(client, (call("put", text(n, 20), "", 0, 0, "x", 1, 0, 0, "k") for n in range(8_000)))
    answers = send(client, (call("lease", text(n, 20), "me", 0, 0, 1, LONG, "any")
                            for n in range(8_000)))  # fmt: skip
    pairs = [(one[0], one[4]) for one in answers if isinstance(one, list)]
    send(client, (call("settle", text(n, 20), "me", 0, "ACK", *pair)
                  for n, pair in enumerate(pairs)))  # fmt: skip


def watched_queues(client: Client) -> None:
    send(client, (call("events", text(n, 20), "", 1, 60_000_000) for n in range(60_000)))


def events(client: Client) -> None:
    for queue in range(8):
        client.call(*call("events", f"q{queue}", "", 1, 60_000_000))
        send(client, (call("put", f"q{queue}", "", 0, 0, *message(n, 0, [text(n, 900)]))
                      for n in range(2500)))  # fmt: skip
        # Only the events of the puts remain.
        while int(client.call(*call("purge", f"q{queue}", "pending"))[0]):  # type: ignore[index]
            pass


def announcements(client: Client) -> None:
    send(client, (call("announce", text(n, 20), "w", LONG, "{}") for n in range(20_000)))


def announced_workers(client: Client) -> None:
    send(client, (call("announce", text(n // 9_000, 20), text(n, 20), LONG, "{}")
                  for n in range(60_000)))  # fmt: skip


def requests(client: Client) -> None:
    client.call(*call("announce", "q", "w", LONG, ""))
    send(client, (call("announce", "q", text(n, 20), LONG, "") for n in range(3_000)))
    send(client, (call("ask", "q", text(n // 16, 20), "x" * 500) for n in range(48_000)))


KINDS = [
    watched_queues, events, announcements, announced_workers, requests,
    plain, payloads, one_key, same_key, long_keys, delayed, prioritised, with_policies,
    dedup_strings, long_dedup_strings, leases, last_errors, dead_letters, results, paused_keys,
    long_paused_keys, consumers, holders, kept_replies, declared_queues,
    queues_that_held_something,
]  # fmt: skip


def figures(client: Client) -> tuple[int, int]:
    """Bytes resident, and bytes counted of queues."""
    found = introspection.info(client)
    resident, counted = found["used_memory_rss"], found["queues_bytes"]
    assert isinstance(resident, int)
    assert isinstance(counted, int)
    return resident, counted


@pytest.fixture
def hub() -> Iterator[HubProcess]:
    with hub_process("--port", "0", "--workers", "1") as running:
        yield running


@pytest.mark.watchdog(120)
@pytest.mark.parametrize("make", seeds.share(KINDS), ids=lambda make: make.__name__)
def test_the_memory_that_queues_take_is_counted(
    hub: HubProcess, make: Callable[[Client], None]
) -> None:
    with Client(hub.addresses[0], timeout=60) as client:
        # Memory of the very first calls does not belong to the queues.
        client.pipeline([call("put", "first", "", 0, 0, text(n, 100), 0, 0, 0) for n in range(500)])
        before = figures(client)
        make(client)
        after = figures(client)
    grown, counted = after[0] - before[0], after[1] - before[1]
    print(f"{make.__name__}: grown {grown >> 10} KiB, counted {counted >> 10} KiB, "
          f"{grown / max(counted, 1):.2f}")  # fmt: skip
    if make is consumers:
        # Only this number of consumers with empty leases is remembered.
        assert grown < ENOUGH / 3
        return
    assert max(grown, counted) > ENOUGH / 3, "it did something"
    assert grown <= MOST * counted
