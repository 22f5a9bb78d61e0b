"""A node without its threads and sockets: entries, commands and time in, effects out by its ports.

Nothing here waits or reads a clock by itself, so that a simulation can run many nodes of it. The
caller holds one lock around every call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from interlock.cluster.entry import BARRIER, Change, Entry, Origin, UnreadableEntry, decode
from interlock.cluster.fence import Fence, Mark, Verdict
from interlock.cluster.lag import LagEstimate
from interlock.cluster.offers import Offers
from interlock.cluster.ports import Leader, Ports
from interlock.cluster.primary import Primary, Sent
from interlock.cluster.replica import Replica
from interlock.cluster.requests import Asker, Request, Requests
from interlock.cluster.stamps import HybridClock

if TYPE_CHECKING:
    from interlock.cluster.commands import Commands

logger = logging.getLogger("interlock.cluster")


class Machine:
    """One node's part of a cluster."""

    def __init__(
        self,
        *,
        node: str,
        dc: str,
        ack: int,
        replica: Replica,
        commands: Commands,
        clock: HybridClock,
        ports: Ports,
        now_ms: Callable[[], int],
        monotonic: Callable[[], float],
        beat: float = 0.5,
        write_timeout: float = 10.0,
        capacity: int = 1 << 62,
    ) -> None:
        self.node = node
        """Its name, and a word that is new with each start, so that old answers are not taken."""
        self.dc = dc
        self.replica = replica
        self.fence = Fence()
        self.links: dict[str, Origin] = {}
        self.leader = Leader()
        self.primary: Primary | None = None
        self.requests = Requests()
        self.offers = Offers()
        self.joining = True
        """It has not yet read all that there was when it began, or lacks something."""
        self.reads = True
        """It goes on reading; not while a snapshot is on its way."""
        self.missing = 0
        """Changes up to this number must be in a snapshot."""
        self.lacks_rows = False
        """Changes were lost here; the links ask other data centres for all rows, once."""
        self.heard = float("-inf")
        """The moment of the last accepted entry, by the monotonic clock."""
        self.lag = LagEstimate()
        self.successor = ""
        self.fenced = 0
        """Entries of primaries that were none any more."""
        self._address = ""
        self._ack = ack
        self._their_ack = 0
        self._acked = 0
        self._commands = commands
        self._clock = clock
        self._ports = ports
        self._now_ms = now_ms
        self._monotonic = monotonic
        self._beat = beat
        self._write_timeout = write_timeout
        self._capacity = capacity
        self._last_append = float("-inf")
        # The entry of this node that is to come back next, and since when.
        self._waits_for = (0, 0, 0.0)
        self._gap_entry: Entry | None = None
        self._unseen: dict[bytes, None] = {}
        # Own writes under way in terms that are over here: until another's barrier they may count.
        self._past: dict[tuple[int, int], Sent] = {}
        self.replicas: Callable[[], Iterable[str]] = lambda: ()
        """Names of the other nodes of the data centre that are there now."""

    @property
    def wants_haves(self) -> bool:
        """The primary counts which replicas have a change before it answers."""
        return self._their_ack > 0

    @property
    def identity(self) -> str:
        """The settings that all nodes of the data centre must have in common, as text."""
        return f"data centre {self.dc}: {self.replica.rules.fingerprint}"

    # -- Roles --------------------------------------------------------------------------------

    @property
    def is_primary(self) -> bool:
        """It is believed to be the primary, by itself and all who have read as far."""
        return self.primary is not None and self.primary.active

    def elected(self, token: int, address: str) -> None:
        """Begin a term: it holds the lease."""
        if token <= self.fence.mark.token:
            # The engine forgot its counter. Of two that count on from the same place that one is
            # believed whose barrier comes first; the other finds out.
            logger.warning(
                "node %s: the lease has the token %d, and the stream %d already: it counts on from "
                "there", self.name, token, self.fence.mark.token,
            )  # fmt: skip
            token = self.fence.mark.token + 1
        self._clock.begin_term(token)
        self.primary = Primary(
            token=token,
            node=self.node,
            address=address,
            ack=self._ack,
            states=self.replica.states,
            commands=self._commands,
            clock=self._clock,
            now_ms=self._now_ms,
            append=self._append,
            has_room=lambda: len(self.replica) < self._capacity,
            replicas=lambda: self.replicas(),
        )
        self.primary.begin(self.identity)

    def lost(self, why: str = "the lease was lost") -> None:
        """End the term: the lease is gone, or the stream has another primary."""
        if self.primary is None:
            return
        if self.primary.active:
            logger.warning("node %s is the primary no more: %s", self.name, why)
        for sent in self.primary.sent:
            self._past[self.primary.token, sent.number] = sent
        self.primary = None
        self._ports.rests()
        self._ports.drop_appends()

    @property
    def name(self) -> str:
        """The node's name alone."""
        return self.node.partition("/")[0]

    def hand_over(self, successor: str = "") -> None:
        """Take no more writes; let the lease go as soon as nothing is under way."""
        if self.primary is not None:
            self.primary.handing_over = True
            self.successor = successor
            self.primary.beat(successor)
            self._resign_if_idle()

    def _resign_if_idle(self) -> None:
        primary = self.primary
        if primary is not None and primary.handing_over and primary.is_idle:
            self._ports.resign(self.successor)

    def _append(self, entry: bytes) -> None:
        self._last_append = self._monotonic()
        self._ports.append(entry)

    # -- Writes -------------------------------------------------------------------------------

    def write(self, asker: Asker, arguments: list[bytes], resp3: bool) -> None:
        """Take a write of an own client."""
        self.requests.new(asker, arguments, resp3, self._monotonic())

    def perform(self) -> None:
        """Do the writes that have come, if this is the primary; else have them passed on."""
        if not self.requests.unsent:
            return
        primary = self.primary
        if primary is None or not primary.active or primary.handing_over:
            if not self.joining and primary is None:
                self._ports.wake_forwarder()
            return
        for request in self.requests.take_unsent(primary.token, len(self.requests)):
            primary.write(self.node, request.number, request.arguments, request.resp3)

    def passed_on(self, token: int, node: str, writes: Iterable[Request]) -> bool:
        """Take writes of another node's clients; False: it is no primary under that token."""
        primary = self.primary
        if primary is None or not primary.active or primary.token != token or primary.handing_over:
            return False
        seen = primary.seen.get(node, 0)
        for request in writes:
            if request.number > seen:
                primary.write(node, request.number, request.arguments, request.resp3)
        return True

    def flush(self) -> None:
        """Append what has gathered; called when the stream has taken what was given before."""
        if self.primary is not None and self.primary.active:
            self.primary.flush()

    def offered(self, token: int, changes: list[Change]) -> int | None:
        """Take changes that a node has and this primary has not; return up to which number.

        None: it is no primary under that token.
        """
        primary = self.primary
        if primary is None or not primary.active or primary.token != token:
            return None
        primary.merge(changes)
        primary.flush()
        return primary.seq

    def offer(self, most: int) -> None:
        """Give itself what it has to offer, if it is the primary."""
        primary = self.primary
        if primary is not None and self.offers.waits:
            changes = self.offers.take(most)
            seq = self.offered(primary.token, changes)
            if seq is None:
                self.offers.back(changes)
            else:
                self.offers.given(primary.token, seq, changes)

    def came(self, dc: str, clock: int, origin: Origin, changes: list[Change]) -> bool:
        """Take changes of another data centre; False: this is not the primary."""
        primary = self.primary
        if primary is None or not primary.active or primary.handing_over:
            return False
        self._clock.saw((clock, dc))
        primary.bring(changes, origin)
        return True

    def drop(self, keys: Iterable[bytes], known: int) -> None:
        """Delete rows that another data centre does not have, though it knew of them.

        It has deleted them, and forgotten that, while the two were cut apart.

        Args:
            known: the hybrid clock up to which it had the changes made here.
        """
        primary = self.primary
        if primary is None or not primary.active:
            return
        rules, states = self.replica.rules, self.replica.states
        gone = [
            key
            for key in self.replica.old(keys, self._now_ms())
            if rules.newest(states[key])[0] <= known and not rules.is_tombstone(states[key])
        ]
        for key in gone:
            primary.merge([(key, rules.deleted(self._clock.next()))])

    # -- The stream ---------------------------------------------------------------------------

    def read(self, entries: Sequence[tuple[str, bytes]], *, caught_up: bool) -> None:
        """Apply what was read; `caught_up`: there was no more at that moment."""
        rows: list[Change] = []
        accepted = False
        for position, data in entries:
            if not self.reads:
                return
            try:
                entry = decode(data)
            except UnreadableEntry as error:
                logger.error("node %s, %s: %s", self.name, position, error)
                self.fence.passed(position)
                continue
            verdict = self.fence.judge(entry)
            if verdict is Verdict.GAP:
                self._save(rows)
                self._gap(entry)
                return
            if verdict in (Verdict.FENCED, Verdict.KNOWN):
                self.fenced += verdict is Verdict.FENCED
                self.fence.passed(position)
                continue
            accepted = True
            self._clock.saw((entry.clock, self.dc))
            if entry.kind == BARRIER:
                if not self._new_leader(entry, data, position):
                    return
            else:
                if verdict is Verdict.BEHIND:
                    self._give_more(entry)
                rows += self._apply(entry, data, position)
        self._save(rows)
        if accepted:
            self.heard = self._monotonic()
            if entries:
                self.lag.note(self._now_ms() - entry.time)
        self._answer()
        self._resign_if_idle()
        if caught_up and self.reads:
            self._joined()

    def _apply(self, entry: Entry, data: bytes, position: str) -> list[Change]:
        changes, primary = entry.changes, self.primary
        rows: list[Change] = []
        if changes:
            own = primary is not None and (entry.token, entry.node) == (primary.token, self.node)
            known = primary.settled(entry.number) if own and primary is not None else None
            rows = self.replica.apply(entry.seq, changes, self._now_ms(), known)
        self.fence.accept(entry, data, position)
        self.offers.seen(entry.seq)
        if entry.address and entry.token != self.leader.token:
            self._follow(entry)
        if entry.schema and entry.schema != self.identity:
            self._ports.mismatch(entry.schema)
        if entry.origin is not None and entry.origin.position:
            self.links[entry.origin.dc] = entry.origin
        self._their_ack, self._acked = entry.ack, entry.acked
        for answer in entry.answers:
            if answer.node == self.node:
                self.requests.reply(answer.number, answer.reply, entry.seq)
        if entry.successor:
            self.successor = entry.successor
        if primary is not None and (entry.token, entry.node) == (primary.token, self.node):
            sent = primary.came_back(entry.number)
            if sent is None:
                self._lost_entries()
            else:
                self._reply(sent)
                primary.count()
        elif (sent := self._past.pop((entry.token, entry.number), None)) is not None:
            self._reply(sent)
        elif changes and entry.ack:
            self._ports.wake_forwarder()
        return rows

    def _reply(self, sent: Sent) -> None:
        for number, reply in sent.own:
            self.requests.reply(number, reply, sent.seq)

    def _lost_entries(self) -> None:
        # The engine lost some of its end: what no node has read was not done.
        self.lost("the stream lacks entries that it had taken")
        self._ports.resign("")

    def _follow(self, entry: Entry) -> None:
        self.leader = Leader(entry.token, entry.node, entry.address, entry.time)
        self.offers.begin(entry.token)

    def _give_more(self, entry: Entry) -> None:
        """Give the primary what it lacks: the engine lost what it had once shown."""
        first = entry.seq - len(entry.changes)
        logger.warning(
            "node %s has changes up to %d, the new primary only up to %d: it is given them",
            self.name, self.fence.mark.seq, first,
        )  # fmt: skip
        lacking = self.replica.since(first, self.fence.mark.seq)
        self.replica.forget_tail()
        self.offers.add(self.replica.states.items() if lacking is None else lacking)
        self._ports.wake_forwarder()
        self.fence.mark = replace(self.fence.mark, seq=first, lineage=entry.lineage)

    def _new_leader(self, entry: Entry, data: bytes, position: str) -> bool:
        if entry.schema != self.identity:
            self._ports.mismatch(entry.schema)
            return False
        self.fence.accept(entry, data, position)
        self._follow(entry)
        primary = self.primary
        if primary is not None and (primary.token, self.node) != (entry.token, entry.node):
            self.lost(f"{entry.node.partition('/')[0]} is, under the token {entry.token}")
            self._ports.resign("")
        self.successor = ""
        self._past = {key: sent for key, sent in self._past.items() if key[0] >= entry.token}
        self.requests.fence(entry.token)
        if self.primary is not None:
            self.primary.came_back(0)
            self.primary.begin_after(self.fence.mark.seq, self.fence.mark.lineage)
            self._ports.leads(entry.token)
            logger.info("node %s is the primary, under the token %d", self.name, entry.token)
        self.perform()
        self.flush()
        return True

    def _gap(self, entry: Entry) -> None:
        mark = self.fence.mark
        self.lost("changes are missing here")
        self._ports.resign("")
        self.joining, self.reads = True, False
        self._gap_entry = entry
        self.missing = entry.seq - len(entry.changes)
        first = entry.seq - len(entry.changes)
        why = f"changes {mark.seq + 1} to {first} are missing" if first > mark.seq else (
            f"the stream had other entries up to change {mark.seq}"
        )  # fmt: skip
        self._ports.answer(self.requests.lose())
        self._ports.resync_from(why)

    def resync(self, why: str) -> None:
        """Take a snapshot as if something were missing."""
        self.joining, self.reads = True, False
        self._ports.resync_from(why)

    def position_lost(self, first: str, last: str) -> None:
        """Go on with a stream that does not have this node's place any more."""
        mark = self.fence.mark
        if first == "" or last == "":
            logger.error("node %s: the stream is empty; it goes on with what nodes have", self.name)
            self.fence.passed("")
        else:
            logger.error(
                "node %s: the stream has no %s any more, it goes from %s to %s",
                self.name, mark.position, first, last,
            )  # fmt: skip
            # From the beginning: what is known is passed over, what is missing is noticed.
            self.fence.passed("")

    def copies(self) -> None:
        """Begin to take a snapshot."""
        self._unseen = dict.fromkeys(self.replica.states)

    def installed(self, mark: Mark, links: dict[str, Origin]) -> None:
        """Go on behind a snapshot whose rows are joined."""
        if self._unseen:
            states = self.replica.states
            # What is as old as a forgotten tombstone is gone; what is not, an engine has lost.
            old = set(self.replica.old(self._unseen, self._now_ms()))
            self._save(self.replica.forget(old))
            self.offers.add((key, states[key]) for key in self._unseen if key not in old)
            self._ports.wake_forwarder()
            self._unseen = {}
        if mark.token > self.fence.mark.token or (
            mark.token == self.fence.mark.token and mark.seq >= self.fence.mark.seq
        ):
            self.fence.mark = mark
        self.replica.forget_tail()
        for dc, origin in links.items():
            mine = self.links.get(dc)
            if mine is None or (mine.token, mine.number) < (origin.token, origin.number):
                self.links[dc] = origin
        self.reads = True

    def copied(self, clock: int, rows: list[Change]) -> None:
        """Take rows of a snapshot."""
        self._clock.saw((clock, self.dc))
        self._save(self.replica.join(rows, self._now_ms()))
        states = self.replica.states
        for key, state in rows:
            self._unseen.pop(key, None)
            if states[key] != state:
                # This node has seen what the other has not: the engine lost it since.
                self._unseen[key] = None

    def adopt(self) -> None:
        """Go on where the stream is, with what this node has: nobody has what is missing."""
        entry = self._gap_entry
        if entry is None:
            return
        first = entry.seq - len(entry.changes)
        logger.error("node %s: changes up to %d are lost", self.name, first)
        # Other data centres may have rows that this one has lost.
        self.lacks_rows = True
        self.fence.mark = replace(
            self.fence.mark, seq=first, lineage=entry.lineage, token=entry.token,
            number=max(entry.number - 1, 0),
        )  # fmt: skip
        self.reads = True

    def _joined(self) -> None:
        if self.joining:
            self.joining = False
            self._ports.joined()
            logger.info("node %s has all changes up to %d", self.name, self.fence.mark.seq)
            self.perform()

    def _save(self, rows: list[Change]) -> None:
        self._ports.save(rows, self.fence.mark, self.links)

    # -- Answers and time ---------------------------------------------------------------------

    def has(self, node: str, token: int, seq: int) -> bool:
        """Note that a replica has applied all up to `seq`; False: this is not its primary."""
        primary = self.primary
        if primary is None or primary.token != token:
            return False
        # Nobody has what there is not: it would be taken for an acknowledgement of what comes.
        primary.has(node.partition("/")[0], min(seq, primary.seq))
        self._answer()
        if primary.owes:
            primary.beat()
        return True

    def _answer(self) -> None:
        primary = self.primary
        if primary is not None and primary.active:
            ready = self.requests.answerable(self._ack, primary.acked, here=False)
        else:
            ready = self.requests.answerable(self._their_ack, self._acked, here=True)
        if ready:
            self._ports.answer(ready)

    def tick(self) -> None:
        """Do what time asks for; called ten times a second or so."""
        now = self._monotonic()
        primary = self.primary
        if primary is not None and self._is_silent(primary, now):
            self.lost("its entries do not come back through the stream")
            self._ports.resign("")
        elif primary is not None and primary.active:
            primary.count()
            if now - self._last_append >= self._beat or primary.owes:
                primary.beat()
            self._resign_if_idle()
        self._answer()
        timeout = self._write_timeout
        late = self.requests.overdue(now - timeout, self._their_ack or self._ack)
        if late:
            self._ports.answer(late)
        if self.requests.unsent:
            self.perform()

    def _is_silent(self, primary: Primary, now: float) -> bool:
        if not primary.sent:
            self._waits_for = (0, 0, now)
            return False
        first = (primary.token, primary.sent[0].number)
        if self._waits_for[:2] != first:
            self._waits_for = (*first, now)
        return now - self._waits_for[2] > self._write_timeout
