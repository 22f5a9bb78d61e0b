"""Publishers and subscribers that are stopped, continued and killed under load.

Messages arrive in the order of each publisher, and in one order for all subscribers. A subscriber
that stayed connected has received each message or a report of how many it missed at that place.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.hub.faults.measures import Measured, measured_hub
from tests.hub.faults.peer import MISSED, recorded

PUBLISHERS = 4
# Messages that each publisher publishes before the first fault.
STEP = 25
# Approximate number per run.
KILLS = 4


@dataclass
class Peer:
    process: subprocess.Popen[str]
    record: Path | None = None
    mode: str = ""
    stopped: bool = False
    killed: bool = False
    owed: int = 0
    """Lines that a publisher has not yet answered."""

    said: dict[str, int] = field(default_factory=dict)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        self.stopped = number == signal.SIGSTOP
        self.killed = self.killed or number == signal.SIGKILL

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        # A disconnected one no longer listens.
        with suppress(BrokenPipeError):
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()

    def answer(self) -> None:
        """A publisher's answers to all its requests."""
        assert self.process.stdout is not None
        for _ in range(self.owed):
            assert int(self.process.stdout.readline()) > 0
        self.owed = 0

    def hear(self) -> None:
        """Its last word."""
        assert self.process.stdout is not None
        self.said = json.loads(self.process.stdout.readline())
        assert self.process.wait(60) == 0


def run(seed: int, messages: int, folder: Path) -> dict[str, object]:
    """This number of messages, twice: once everybody stays, once some are killed and
    disconnected."""
    chance = random.Random(seed)
    calm = suffered(chance, messages, folder / "calm", deadly=False)
    deadly = suffered(chance, messages, folder / "deadly", deadly=True)
    return {
        **{f"paused: {name}": value for name, value in calm.items()},
        **{f"paused and killed: {name}": value for name, value in deadly.items()},
    }


def suffered(
    chance: random.Random, messages: int, folder: Path, *, deadly: bool
) -> dict[str, object]:
    folder.mkdir()
    path = folder / "s"
    # Maximum pending output of a client that asked to drop; others are cut off at the hard limit.
    limits = {
        "limits__pubsub__soft": 64 << 10,
        "limits__pubsub__soft_seconds": 3600,
        "limits__pubsub__hard": (512 << 10) if deadly else (1 << 30),
    }
    with ExitStack() as stack:
        hub = stack.enter_context(measured_hub("--workers", "3", "--unix", str(path), **limits))
        addresses = [hub.address, f"unix:{path}"]

        def subscriber(number: int, mode: str) -> Peer:
            record = folder / str(number)
            words = ("subscribe", addresses[number % 2], str(record), mode)
            return stack.enter_context(peer(*words, record=record, mode=mode))

        # The first is never touched: its order is that with which the others' are compared.
        subscribers = [subscriber(0, "close")]
        subscribers += [subscriber(number, "drop") for number in range(1, 5)]
        subscribers += [subscriber(number, "close") for number in range(5, 8)]
        publishers = [
            stack.enter_context(peer("publish", addresses[number % 2], str(number)))
            for number in range(PUBLISHERS)
        ]
        actions = torment(chance, hub, publishers, subscribers, messages, deadly=deadly)
        for publisher in publishers:
            if not publisher.killed:
                assert publisher.process.stdin is not None
                publisher.process.stdin.close()
                assert publisher.process.wait(60) == 0
        sent = published_in_the_end(hub, subscribers)
        for one in subscribers:
            if not one.killed:
                one.tell(str(sent))
                one.hear()
        verify(subscribers, sent, deadly=deadly)
        figures = hub.figures()
        received = sum(one.said.get("received", 0) for one in subscribers)
        missed = sum(one.said.get("missed", 0) for one in subscribers)
        if not deadly:
            assert figures["messages_delivered"] == received
            assert figures["messages_dropped"] == missed
            assert figures["client_output_buffer_limit_disconnections"] == 0
        else:
            ended = sum(one.said.get("ended", False) for one in subscribers)
            killed = sum(one.killed for one in subscribers)
            closed = figures["client_output_buffer_limit_disconnections"]
            assert ended <= closed <= ended + killed
            assert figures["messages_delivered"] >= received
            assert figures["messages_dropped"] >= missed
        return {
            "messages": sent,
            "received": received,
            "reported as missed": missed,
            "stops and kills": actions,
            "disconnected": figures["client_output_buffer_limit_disconnections"],
        }


def torment(
    chance: random.Random,
    hub: Measured,
    publishers: Sequence[Peer],
    subscribers: Sequence[Peer],
    messages: int,
    *,
    deadly: bool,
) -> int:
    """Stop, continue and kill, by the number of messages published and not by time.

    All wait until the first subscriber has read everything: it is slow as others are, and
    must not be disconnected. Two publishers are never touched, so that there is always load.
    """
    actions = published = 0
    while published < messages:
        working = [one for one in publishers if not (one.stopped or one.killed)]
        for one in working:
            one.tell(str(STEP))
            one.owed += 1
        for one in working:
            one.answer()
        published = hub.figures()["messages_published"]
        while noted(subscribers[0]) < published:
            assert subscribers[0].process.poll() is None
        touched = [one for one in [*publishers[2:], *subscribers[1:]] if not one.killed]
        for one in touched:
            if one.stopped and chance.random() < 0.15:
                one.signal(signal.SIGCONT)
        chance.shuffle(touched)
        for one in [one for one in touched if one.process.poll() is None][:2]:
            if not one.stopped and chance.random() < 0.5:
                # However long the run, most must stay to the end of it.
                kills = deadly and chance.random() < KILLS * STEP * PUBLISHERS / messages
                one.signal(signal.SIGKILL if kills else signal.SIGSTOP)
                actions += 1
    for one in [*publishers, *subscribers]:
        if one.stopped:
            one.signal(signal.SIGCONT)
    for one in publishers:
        if not one.killed:
            one.answer()
    return actions


def noted(one: Peer) -> int:
    """The number of entries that a subscriber has written down."""
    assert one.record is not None
    return one.record.stat().st_size // 8


def published_in_the_end(hub: Measured, subscribers: Sequence[Peer]) -> int:
    """Once the hub has seen the end of all publishers, those included that were killed."""
    while True:
        figures = hub.figures()
        if figures["connected_clients"] == 1 + sum(
            one.process.poll() is None for one in subscribers
        ):
            return figures["messages_published"]


def verify(subscribers: Sequence[Peer], sent: int, *, deadly: bool) -> None:
    first = recorded(subscribers[0].record or Path())
    assert len(first) == sent == len(set(first))
    for number in range(PUBLISHERS):
        own = [one & ((1 << 40) - 1) for one in first if one >> 40 == number]
        assert own == list(range(len(own))), f"publisher {number} is out of order"
    for at, one in enumerate(subscribers[1:], 1):
        found = recorded(one.record or Path())
        place = 0
        for entry in found:
            if entry >= MISSED:
                place += entry - MISSED
            else:
                assert first[place] == entry, f"subscriber {at} differs at {place} of {sent}"
                place += 1
        if one.mode == "close":
            assert not any(entry >= MISSED for entry in found)
        if not one.killed and not one.said["ended"]:
            assert place == sent, f"subscriber {at} was notified of {place} of {sent}"
            assert one.said["received"] + one.said["missed"] == sent
        else:
            assert deadly
            assert place <= sent


@contextmanager
def peer(*words: str, record: Path | None = None, mode: str = "") -> Iterator[Peer]:
    """A process that has said it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.hub.faults.peer", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield Peer(process, record, mode)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        with suppress(BrokenPipeError):
            process.stdin.close()
