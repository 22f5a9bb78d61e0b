"""A cluster in one thread: machines over a stream and a lease that a seed lets fail.

Every step is chosen by the seed: who reads how far, whose append arrives, whose message is lost,
who is elected while another still believes to be, which node dies and comes back with nothing, when
the engine forgets the end of its stream. Nothing waits, and no clock runs but the simulation's own.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Annotated, Any

from interlock import I64, U32, Max, Row, Sum
from interlock.cluster.entry import Change, Origin
from interlock.cluster.fence import Mark
from interlock.cluster.machine import Machine
from interlock.cluster.replica import Replica
from interlock.cluster.stamps import HybridClock
from interlock.cluster.state import TableRules


class Account(Row):
    total: Annotated[I64, Sum]
    high: Annotated[U32, Max]
    last: U32


class Shown:
    """A stand-in for the shared memory: the rows that were shown, each time."""

    def __init__(self, rules: TableRules) -> None:
        self.rules = rules
        self.rows: dict[bytes, tuple[Any, ...] | None] = {}

    def put_many(self, rows: list[Change], now_ms: int) -> None:
        for key, state in rows:
            before, after = self.rows.get(key), self.rules.values(state, now_ms)
            if before is not None and after is not None:
                assert after[0] >= before[0], f"{key!r} went back from {before} to {after}"
            self.rows[key] = after


@dataclass
class Outcome:
    reply: bytes
    changes: list[Change]
    states: dict[bytes, bytes] = field(default_factory=dict)


class Raises:
    """Commands of one kind: HINCRBY of a row's total."""

    def __init__(self, rules: TableRules) -> None:
        self.rules = rules
        self.total = rules.columns[0]

    def run(
        self, arguments: list[bytes], resp3: bool, read: Any, clock: HybridClock, now_ms: int
    ) -> Outcome:
        key, by = arguments[1].removeprefix(b"t:"), int(arguments[3])
        state, rules = read(key), self.rules
        stamp = clock.next()
        if state is None or not rules.is_alive(rules.cells(state), now_ms):
            cells = None if state is None else rules.cells(state)
            delta = rules.created_by(cells, self.total, by, stamp, now_ms, 0)
            return Outcome(b":%d\r\n" % by, [(key, delta)])
        cells = rules.cells(state)
        total = rules.values(state, now_ms)[0] + by  # type: ignore[index]
        return Outcome(b":%d\r\n" % total, [(key, rules.raised(cells, self.total, total, stamp))])


@dataclass
class Write:
    """A write of a client, and what became of it."""

    key: bytes
    by: int
    node: Any
    answer: bytes | None = None


@dataclass
class Stream:
    """The engine's: entries with their positions, of which the last may be lost."""

    entries: list[tuple[str, bytes]] = field(default_factory=list)
    made: int = 0

    def append(self, data: bytes) -> None:
        self.made += 1
        self.entries.append((str(self.made), data))

    def read(self, after: str, most: int) -> list[tuple[str, bytes]] | None:
        """Return what comes behind a position; None if it is not there any more."""
        if not after:
            return self.entries[:most]
        for place, (position, _) in enumerate(self.entries):
            if position == after:
                return self.entries[place + 1 : place + 1 + most]
        return None


class Node:
    """One node with its queues, which the simulation empties as it likes."""

    def __init__(self, world: World, name: str, boot: int) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.rules = TableRules.of(Account)
        self.shown = Shown(self.rules)
        self.replica = Replica(self.rules, self.shown, tail=world.tail)  # type: ignore[arg-type]
        self.appends: deque[bytes] = deque()
        self.holds = 0
        """The token that it believes to hold; 0: none."""
        self.resigns = False
        self.wants_snapshot = False
        clock = HybridClock(world.dc, now_ms=lambda: world.now_ms + world.skew.get(name, 0))
        self.machine = Machine(
            node=f"{name}/{boot}",
            dc=world.dc,
            ack=world.ack,
            replica=self.replica,
            commands=Raises(self.rules),  # type: ignore[arg-type]
            clock=clock,
            ports=self,
            now_ms=lambda: world.now_ms + world.skew.get(name, 0),
            monotonic=lambda: world.now_ms / 1000,
        )
        self.machine.replicas = lambda: [n.name for n in world.nodes if n is not self and n.alive]

    # -- Ports ----------------------------------------------------------------------------------

    def append(self, entry: bytes) -> None:
        self.appends.append(entry)

    def drop_appends(self) -> None:
        self.appends.clear()

    def answer(self, replies: list[tuple[int, bytes]]) -> None:
        for asker, reply in replies:
            write = self.world.writes[asker]
            assert write.answer is None, "answered twice"
            write.answer = reply

    def wake_forwarder(self) -> None:
        pass

    def resync_from(self, why: str) -> None:
        self.wants_snapshot = True

    def resign(self, successor: str) -> None:
        self.resigns = True

    def save(self, rows: list[Change], mark: Mark, links: dict[str, Origin]) -> None:
        pass

    def leads(self, token: int) -> None:
        pass

    def rests(self) -> None:
        pass

    def joined(self) -> None:
        pass

    def mismatch(self, theirs: str) -> None:
        raise AssertionError(theirs)


class World:
    """All of it."""

    def __init__(
        self, seed: int, *, nodes: int = 3, ack: int = 0, dc: str = "east",
        loses_tail: bool = False,
        dies: bool = True,
        tail: int = 100_000,
    ) -> None:  # fmt: skip
        self.random = random.Random(seed)
        self.dc, self.ack, self.tail = dc, ack, tail
        self.loses_tail, self.dies = loses_tail, dies
        self.now_ms = 1_800_000_000_000
        self.skew = {f"n{i}": self.random.choice((0, 0, -40_000, 40_000)) for i in range(nodes)}
        self.stream = Stream()
        self.token = 0
        self.writes: list[Write] = []
        self.boots = nodes
        self.nodes = [Node(self, f"n{i}", i) for i in range(nodes)]
        self.keys = [b"k%d" % i for i in range(4)]
        self.faults = True
        self.counts: dict[str, int] = {}

    # -- Steps ----------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Take so many steps of the seed's choice."""
        choices = (
            (self.write, 30), (self.appended, 25), (self.read, 40), (self.pass_on, 25),
            (self.elect, 2), (self.lease_ends, 1), (self.snapshot, 8), (self.tick, 8),
            (self.lose_append, 1), (self.die, 0.5), (self.lose_tail, 0.3),
        )  # fmt: skip
        names = [step for step, _ in choices]
        weights = [weight for _, weight in choices]
        for step in self.random.choices(names, weights, k=steps):
            self.counts[step.__name__] = self.counts.get(step.__name__, 0) + 1
            step()

    def one(self) -> Node | None:
        alive = [node for node in self.nodes if node.alive]
        return self.random.choice(alive) if alive else None

    def write(self) -> None:
        """A client raises a row's total at some node; its answer tells what it is then."""
        node = self.one()
        if node is None or not self.faults:
            return
        key, by = self.random.choice(self.keys), self.random.randint(1, 9)
        self.writes.append(Write(key, by, node))
        arguments = [b"HINCRBY", b"t:" + key, b"total", b"%d" % by]
        node.machine.write(len(self.writes) - 1, arguments, self.random.random() < 0.5)
        node.machine.perform()
        if self.random.random() < 0.7:
            node.machine.flush()

    def appended(self) -> None:
        """The engine takes an entry; now and then twice, as when its answer was lost."""
        node = self.one()
        if node is None or not node.appends:
            return
        taken = [node.appends.popleft()]
        if node.appends and self.random.random() < 0.5:
            taken.append(node.appends.popleft())
        for _ in range(2 if self.faults and self.random.random() < 0.1 else 1):
            for entry in taken:
                self.stream.append(entry)
        if not node.appends:
            node.machine.flush()

    def read(self) -> None:
        node = self.one()
        if node is None or not node.machine.reads:
            return
        most = self.random.choice((1, 2, 5, 50))
        found = self.stream.read(node.machine.fence.mark.position, most)
        if found is None:
            first = self.stream.entries[0][0] if self.stream.entries else ""
            last = self.stream.entries[-1][0] if self.stream.entries else ""
            node.machine.position_lost(first, last)
            return
        node.machine.read(found, caught_up=len(found) < most)
        if node.resigns:
            node.resigns, node.holds = False, 0
            node.machine.lost("resigned")

    def pass_on(self) -> None:
        """A node gives its writes to whom it believes to be the primary; the way may be cut."""
        node = self.one()
        if node is None:
            return
        machine = node.machine
        leader = machine.leader
        target = next((n for n in self.nodes if n.name == leader.address and n.alive), None)
        own = machine.primary
        if own is not None and own.active:
            machine.offer(self.random.choice((1, 100)))
            return
        if machine.joining or not leader.token:
            return
        cut = self.faults and self.random.random() < 0.2
        if machine.offers.waits and target is not None and not cut:
            changes = machine.offers.take(self.random.choice((1, 100)))
            seq = target.machine.offered(leader.token, changes)
            if seq is None or self.random.random() < 0.1:
                machine.offers.back(changes)
            else:
                machine.offers.given(leader.token, seq, changes)
        writes = machine.requests.take_unsent(leader.token, self.random.choice((1, 3, 100)))
        late = self.faults and self.random.random() < 0.1
        if writes and target is not None and not cut:
            taken = target.machine.passed_on(leader.token, machine.node, writes)
            target.machine.flush()
            if not taken or late:
                machine.requests.send_again(leader.token)
        elif writes:
            machine.requests.send_again(leader.token)
        if machine.wants_haves and target is not None and not cut:
            target.machine.has(machine.node, leader.token, machine.fence.mark.seq)

    def elect(self) -> None:
        """The lease goes to somebody; who had it may not know."""
        node = self.one()
        if node is None or node.machine.joining or node.holds:
            return
        if any(n.holds and n.alive for n in self.nodes) and not self.faults:
            return
        if any(n.holds and n.alive for n in self.nodes) and self.random.random() < 0.6:
            return
        self.token += 1
        node.holds = self.token
        node.resigns = False
        node.machine.elected(self.token, node.name)
        if node.resigns:
            node.resigns, node.holds = False, 0

    def lease_ends(self) -> None:
        """Somebody notices that the lease is gone."""
        node = self.one()
        if node is not None and node.holds and self.faults:
            node.holds = 0
            node.machine.lost()

    def snapshot(self) -> None:
        node = self.one()
        if node is None or not node.wants_snapshot:
            return
        others = [n for n in self.nodes if n is not node and n.alive and not n.machine.joining]
        if not others:
            # All lack something: what any of them has is put together.
            if self.random.random() < 0.1:
                node.wants_snapshot = False
                for other in self.nodes:
                    if other.alive and other is not node:
                        node.machine.copied(0, list(other.replica.states.items()))
                node.machine.adopt()
            return
        if self.faults and self.random.random() < 0.2:
            return
        source = max(others, key=lambda n: (n.machine.is_primary, n.machine.fence.mark.seq))
        if source.machine.fence.mark.seq < node.machine.missing and not source.machine.is_primary:
            return
        node.machine.copies()
        node.machine.copied(0, list(source.replica.states.items()))
        node.machine.installed(source.machine.fence.mark, source.machine.links)
        node.wants_snapshot = False

    def tick(self) -> None:
        self.now_ms += self.random.choice((10, 100, 1000))
        for node in self.nodes:
            if node.alive:
                node.machine.tick()

    def lose_append(self) -> None:
        """Drop what a primary meant to append: it dies, or the engine goes on without."""
        node = self.one()
        if node is not None and node.appends and self.faults and self.loses_tail:
            node.appends.popleft()

    def die(self) -> None:
        """A node dies, with all it knew, and another of its name begins with nothing."""
        node = self.one()
        if node is None or not self.faults or not self.dies:
            return
        others = [n for n in self.nodes if n is not node and n.alive and not n.machine.joining]
        if not others:
            return
        self.boots += 1
        for write in self.writes:
            if write.node is node and write.answer is None:
                write.answer = b"-GONE"
        self.nodes[self.nodes.index(node)] = Node(self, node.name, self.boots)

    def lose_tail(self) -> None:
        """The engine's replica takes its place, which lacks the last entries."""
        if self.faults and self.loses_tail and self.stream.entries:
            lost = self.random.randint(1, 3)
            del self.stream.entries[-lost:]

    def heal(self) -> None:
        """End all faults, and go on until nothing moves."""
        self.faults = False
        for node in self.nodes:
            # By now who held an older lease knows that it is gone.
            if node.holds != self.token:
                node.holds = 0
                node.machine.lost()
        for _ in range(400):
            self.run(60)
            if self.is_quiet():
                return
        raise AssertionError("it does not come to rest")

    def is_quiet(self) -> bool:
        marks = {node.machine.fence.mark.seq for node in self.nodes}
        return (
            len(marks) == 1
            and not any(n.machine.joining or n.machine.offers or n.appends for n in self.nodes)
            and all(write.answer is not None for write in self.writes)
            and sum(n.machine.is_primary for n in self.nodes) == 1
        )
