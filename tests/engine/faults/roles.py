"""The programs that are killed and stopped: producers and workers, over the public client."""

from __future__ import annotations

import os
import random
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import interlock
from interlock import EngineUnavailable, LeaseLost
from interlock.client.faces.lease import RemoteLease
from interlock.client.faces.queue import RemoteQueue
from tests.engine.faults.bank import Bank, Operation, Stale, names, operation
from tests.engine.faults.job import Job
from tests.engine.faults.lines import Line, Log, begun, read
from tests.engine.faults.looped import looped


def producer(job: Job, who: str, life: int) -> None:
    """Puts its operations, each until it is answered if that is safe, and continues where its
    previous life ended."""
    before = read(job.folder).get(who, [])
    log = Log(job.folder, who)
    chance = random.Random(f"{job.seed} {who} {life}")
    queue = job.queue()
    log.say("life", number=life)
    number, last = where(before)
    if last is not None and last["dedup"]:
        put(queue, job, log, last.said)
    while number < job.messages:
        number += 1
        delay = chance.choice([0.0] * 9 + [0.05, 0.3])
        put(queue, job, log, {
            "number": number,
            "what": asdict(some_operation(chance, f"{who}-{number}")),
            "delay": delay,
            # A delayed message has its place later than those with a higher id.
            "priority": chance.choice([0, 0, -50, 100]),
            "dedup": chance.random() < 0.5,
        })  # fmt: skip
        # Work of a program between two puts.
        time.sleep(chance.uniform(0, 0.04))
    log.say("done")


def where(before: list[Line]) -> tuple[int, Line | None]:
    """The last number that was put, and its line if it was never answered."""
    last = None
    number = 0
    for line in before:
        if line.what == "put":
            last, number = line, line["number"]
        elif line.what == "answered":
            last = None
    return number, last


def put(queue: RemoteQueue[dict[str, Any]], job: Job, log: Log, said: dict[str, Any]) -> None:
    what = operation(said["what"])
    name = what.name if said["dedup"] else None
    while True:
        log.say("put", **said)
        try:
            found = queue.put_known(
                said["what"],
                keys=what.keys,
                shared=what.shared,
                barrier=what.kind == "barrier",
                priority=said["priority"],
                delay=said["delay"],
                dedup=name,
            )
        except EngineUnavailable as error:
            log.say("unknown", name=what.name, error=str(error))
            if name is None:
                return
        else:
            log.say("answered", name=what.name, id=found.id, known=found.known)
            os.write(job.bell, b".")
            return


def some_operation(chance: random.Random, name: str) -> Operation:
    kind = chance.random()
    if kind < 0.02:
        return Operation(name, "barrier")
    if kind < 0.08:
        return Operation(name, "rate", amount=chance.randrange(80, 125))
    source, target = chance.sample(names(), 2)
    return Operation(name, "transfer", source, target, chance.randrange(1, 6_000))


class Worker:
    """Handles messages one by one, in batches, or in one round trip with the next."""

    def __init__(self, job: Job, who: str, life: int) -> None:
        self.job = job
        self.log = Log(job.folder, who)
        self.chance = random.Random(f"{job.seed} {who} {life}")
        self.queue = job.queue()
        self.bank = Bank(job.bank, fenced=job.mutant != "unfenced")
        self.life = life
        self.gets = 0

    def run(self) -> None:
        """Until the queue is sealed and drained."""
        self.log.say("life", number=self.life)
        mode: Callable[[], None]
        mode = self.chance.choice([self.one, self.some, self.exchanging])
        with suppress(interlock.ShutDown):
            while True:
                mode()
        self.log.say("done")

    def one(self) -> None:
        for lease in self.asked(1, lambda: [self.queue.get(timeout=1)]):
            self.begin(lease)
            if self.handle(lease):
                self.settle(lease, "ack", lease.ack)

    def some(self) -> None:
        limit = self.chance.randrange(2, 5)
        leases = self.asked(limit, lambda: self.queue.get_many(limit, timeout=1))
        for lease in leases:
            self.begin(lease)
        for lease in leases:
            if self.handle(lease):
                self.settle(lease, "ack", lease.ack)

    def exchanging(self) -> None:
        handled: list[RemoteLease[dict[str, Any]]] = []
        while True:
            settlements = [(lease, lease.acking()) for lease in handled]
            for lease, _ in settlements:
                self.log.say("settling", id=lease.id, token=lease.token, how="ack")
            answers: list[str] = []

            def exchange() -> list[RemoteLease[dict[str, Any]]]:
                given = [one for _, one in settlements]  # noqa: B023
                found, leases = self.queue.exchange(given, 2, timeout=1)
                answers.extend(found)  # noqa: B023
                return leases

            leases = self.asked(2, exchange)
            for (lease, _), answer in zip(settlements, answers, strict=False):
                self.log.say("settled", id=lease.id, token=lease.token, answer=answer)
            for lease in leases:
                self.begin(lease)
            handled = [lease for lease in leases if self.handle(lease)]

    def asked(
        self, limit: int, get: Callable[[], list[RemoteLease[dict[str, Any]]]]
    ) -> list[RemoteLease[dict[str, Any]]]:
        """The leases that a get gives; none where nothing is ready, or nobody answers."""
        self.gets += 1
        self.log.say("get", number=self.gets, limit=limit)
        try:
            leases = get()
        except interlock.Empty:
            leases = []
        except EngineUnavailable as error:
            self.log.say("unknown", number=self.gets, error=str(error))
            return []
        self.log.say("got", number=self.gets, count=len(leases))
        return leases

    def begin(self, lease: RemoteLease[dict[str, Any]]) -> None:
        self.log.say("begin", get=self.gets, **begun(lease))

    def handle(self, lease: RemoteLease[dict[str, Any]]) -> bool:
        """Handles a message, and returns whether it is to be acknowledged still."""
        way = self.chance.random()
        if way < 0.04:
            self.settle(lease, "release", lease.release)
            return False
        if way < 0.08:
            self.settle(lease, "nack", lease.nack)
            return False
        frozen = way < 0.1
        if frozen:
            # A handler that hangs and is not renewed: its lease is over before it writes.
            self.log.say("unrenewed", id=lease.id, token=lease.token)
            lease.stop_renewing()
        if self.job.mutant == "early-ack":
            self.settle(lease, "ack", lease.ack)
        # How long the handler takes.
        pause = self.job.lease * self.chance.uniform(0.5, 1.3) if frozen else 0.0
        try:
            done = self.bank.apply(
                operation(lease.payload),
                lease.id,
                lease.token,
                lambda: time.sleep(pause + self.chance.expovariate(200)),
            )
        except Stale:
            done = "stale"
        self.log.say("end", id=lease.id, token=lease.token, done=done)
        return self.job.mutant != "early-ack"

    def settle(
        self, lease: RemoteLease[dict[str, Any]], how: str, call: Callable[[], None]
    ) -> None:
        """Until it is answered; the second time it may have been done already."""
        for _ in range(3):
            self.log.say("settling", id=lease.id, token=lease.token, how=how)
            try:
                call()
            except LeaseLost:
                answer = "lost"
            except EngineUnavailable:
                self.log.say("unsettled", id=lease.id, token=lease.token)
                continue
            else:
                answer = {"ack": "acked", "nack": "retried", "release": "released"}[how]
            self.log.say("settled", id=lease.id, token=lease.token, answer=answer)
            return


def sealer(job: Job, who: str, life: int) -> None:
    """At the end: no more puts; and what the server has counted once nothing is left."""
    log = Log(job.folder, who)
    queue = job.queue()
    queue.seal()
    queue.join(timeout=40)
    stats = queue.stats()
    log.say(
        "stats",
        **{
            name: getattr(stats, name)
            for name in ("unsettled", "dead", "puts", "acks", "held", "delayed", "cancelled")
        },
    )
    log.say("life", number=life)


def worker(job: Job, who: str, life: int) -> None:
    """On threads, or, in some of its lives, on an event loop."""
    # Messages of an unanswered settlement are dropped, as any program may do.
    warnings.simplefilter("ignore", ResourceWarning)
    if random.Random(f"{job.seed} {who} {life}").random() < 0.25 and not job.mutant:
        looped(job, who, life)
    else:
        Worker(job, who, life).run()


ROLES: dict[str, Callable[[Job, str, int], None]] = {
    "producer": producer,
    "worker": worker,
    "sealer": sealer,
}
