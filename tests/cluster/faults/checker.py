"""Checks of a history: the guarantees to clients, checked against the replies they got. Pure
functions.

The keys of a workload are of kinds, by the text before the first dash, each with a rule that
does not depend on luck:

- `sum`: increments above zero by everybody. At one node, visible changes only grow.
- `net`: increments of both signs.
- `max`: everybody raises one column, which only grows.
- `own`, `flag`: one client writes, one operation after another. After one of which it cannot know
  the outcome it takes a new key; a client that numbers its writes continues, because a late write
  never lands behind a later one of the same client. So the states of a row are known and in order,
  and so is what one place may show of them: a node, the memory of its machine, or a client, who may
  go from node to node.
- `cas`: compare-and-sets to ever new numbers by all clients of a data centre. So the writes that
  were done are one chain, in an order in which they can have been done.
- `any`: everybody sets, deletes, and lets expire. Only whose write is seen can be judged.
- `ttl`: rows that live briefly.

Times are of one clock, and only used where an operation ended before another began.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.cluster.faults.history import FAILED, OK, UNKNOWN, Operation

Row = Mapping[str, int | str] | None
Rows = Mapping[str, Row]
"""Rows of a node by key, when all was quiet."""

GROWING = {"sum": "count", "max": "high"}
WRITTEN = {"own": "last", "flag": "marks"}


@dataclass(frozen=True)
class Promise:
    """The promises that a run's setting makes."""

    lost: frozenset[str] = frozenset()
    """Data centres whose engines may lose entries. Elsewhere answers are of one history: what was
    read behind a barrier and what a compare-and-set or a counter was answered with holds for ever.
    Where entries were lost, only that each write that was answered is there, once. What others show
    of such a data centre's sums is its latest word; its rows with one writer stay as they were."""

    lasting: bool = True
    """Writes that were answered stay."""

    excused: frozenset[str] = frozenset()
    """Nodes that said that their readers go back, or that forgot what these have seen."""

    staleness: float | None = None
    """Seconds: a node of the data centre where something was written shows it by then, or refuses
    to be read."""


@dataclass(frozen=True)
class Violation:
    """A rule that does not hold, and the operations that prove it."""

    rule: str
    text: str
    operations: tuple[Operation, ...] = ()

    def __str__(self) -> str:
        return "\n".join([f"{self.rule}: {self.text}", *(f"    {one}" for one in self.operations)])


def all_of(
    history: Sequence[Operation], final: Mapping[str, Rows], promise: Promise
) -> list[Violation]:
    """Everything that does not hold.

    Args:
        final: of each node, all rows that it shows, when the faults were over and all was quiet.
    """
    return [
        *unseen(history, final, promise),
        *backwards(history, promise),
        *alone(history, final, promise),
        *linear(history, promise),
        *chains(history, final, promise),
        *stale(history, promise),
        *sums(history, final, promise),
        *highest(history, final, promise),
        *rising(history, promise),
        *gone(final),
        *equal(final),
    ]


def unseen(
    history: Sequence[Operation], final: Mapping[str, Rows], promise: Promise
) -> Iterator[Violation]:
    """Yield what was seen though it was refused, or never asked for.

    What found no row may find one when it is put back into another history.
    """
    by_id = {one.id: one for one in history if not one.reads}
    for who, at, read in _rows_seen(history, final):
        if not who:
            continue
        writer = by_id.get(who)
        if writer is None:
            yield Violation("unseen", f"{at} shows {who}, which nobody wrote", read)
        elif writer.answer == FAILED and (
            writer.dc not in promise.lost or writer.error != "no row"
        ):
            text = f"{at} shows {who}, which was answered as not done"
            yield Violation("unseen", text, (writer, *read))


def backwards(history: Sequence[Operation], promise: Promise) -> Iterator[Violation]:
    """A column that only grows does so in the eyes of one node's readers, and the writers there.

    What found no row, and did find one when it was put back, may find none once more.
    """
    again: dict[str, int] = defaultdict(int)
    for one in history:
        if one.kind == "incr" and one.error == "no row" and one.dc in promise.lost:
            again[one.key] += one.value
    for (node, key), seen in _by_node(history, promise).items():
        column = GROWING.get(_kind(key))
        if column is None:
            continue
        shown: list[tuple[int, Operation]] = []
        for one in seen:
            if one.reads:
                row = one.row or {}
                shown.append((int(row.get(column, 0)), one))
            elif one.kind == "incr" and one.reply is not None and one.dc not in promise.lost:
                shown.append((one.reply, one))
            elif one.kind == "high":
                shown.append((one.value, one))
        for before, after in _falls(shown, again[key]):
            yield Violation("backwards", f"{key} fell at {node}", (before, after))


def alone(
    history: Sequence[Operation], final: Mapping[str, Rows], promise: Promise
) -> Iterator[Violation]:
    """A row with one writer goes through the states that were written, forwards only, and ends
    with the last that was acknowledged, or one behind it."""
    writes: dict[str, list[Operation]] = defaultdict(list)
    for one in history:
        if not one.reads and _kind(one.key) in WRITTEN:
            writes[one.key].append(one)
    states = {key: _states(sorted(ops, key=_start)) for key, ops in writes.items()}
    mixed = {key for key, ops in writes.items() if _mixes(key, ops, promise)}
    for (place, key), seen in _by_node(history, promise).items():
        if key in states:
            yield from _walk(key, place, states[key], seen, key in mixed)
    for key, known in states.items():
        acked = [at for at, (_, op) in enumerate(known) if op is not None and op.answer == OK]
        least = max(acked, default=0) if promise.lasting else 0
        for node, rows in final.items():
            value = _shown(key, rows.get(key))
            if not _places(value, known, least, key in mixed):
                proof = known[least][1]
                text = f"{key} is {value} at {node} in the end, and {known[least][0]} was promised"
                yield Violation("lost", text, (proof,) if proof else ())


def linear(history: Sequence[Operation], promise: Promise) -> Iterator[Violation]:
    """A linearizable read shows all that was answered before in its data centre, to anybody."""
    groups: dict[tuple[str, str], list[Operation]] = defaultdict(list)
    writes: dict[str, list[Operation]] = defaultdict(list)
    unsure = _unsure(history, promise)
    for one in sorted(history, key=lambda one: one.end):
        if not one.reads and _kind(one.key) in WRITTEN:
            writes[one.key].append(one)
        if one.answer == OK and (one.linear or not one.reads):
            groups[one.dc, one.key].append(one)
    for (dc, key), seen in groups.items():
        if not any(one.linear for one in seen) or dc in promise.lost:
            continue
        if key in writes:
            known = _states(sorted(writes[key], key=_start))
            for found in _walk(key, f"linearizable {dc}", known, seen, key in unsure):
                yield Violation("linear", found.text, found.operations)
        elif _kind(key) == "sum" and key not in unsure:
            shown = [
                (one.reply if one.reply is not None else int((one.row or {}).get("count", 0)), one)
                for one in seen
                if one.linear or one.reply is not None
            ]
            for before, after in _falls(shown):
                if after.reads:
                    yield Violation("linear", f"{key} fell in {dc}", (before, after))


def chains(
    history: Sequence[Operation], final: Mapping[str, Rows], promise: Promise
) -> Iterator[Violation]:
    """The compare-and-sets of a key that were done are one chain, in which none comes before one
    that had been answered when it began; what was refused was refused with reason."""
    by_key: dict[str, dict[int, Operation]] = defaultdict(dict)
    refused: dict[str, list[Operation]] = defaultdict(list)
    unsure = _unsure(history, promise)
    for one in history:
        if one.key in unsure:
            continue
        if one.kind == "cas" and one.answer == OK and not one.reply:
            refused[one.key].append(one)
        elif one.kind == "cas" and one.answer != FAILED:
            by_key[one.key][one.value] = one
    for key, written in by_key.items():
        ends = {int((rows.get(key) or {}).get("last", 0)) for rows in final.values()}
        for end in ends:
            chain: list[Operation] = []
            while end:
                if end not in written:
                    yield Violation("chain", f"{key} was {end}, which nobody wrote", tuple(chain))
                    break
                chain.append(written[end])
                end = chain[-1].expected
            chain.reverse()
            for one in written.values():
                if one.answer == OK and one not in chain:
                    same = [other for other in chain if other.expected == one.expected]
                    yield Violation("chain", f"{key}: done, and not in the chain", (one, *same))
            latest: Operation | None = None
            for one in chain:
                if latest is not None and one.end < latest.start:
                    yield Violation("chain", f"{key}: in no order of time", (latest, one))
                if latest is None or one.start > latest.start:
                    latest = one
            for one in refused[key]:
                place = next((n for n, by in enumerate(chain) if by.value == one.expected), -1)
                begun = chain[place].end if place >= 0 else None
                over = chain[place + 1].start if place + 1 < len(chain) else float("inf")
                if begun is not None and begun < one.start and one.end < over:
                    text = f"{key} was {one.expected} all the time, and it was refused"
                    yield Violation("chain", text, (chain[place], one))


def stale(history: Sequence[Operation], promise: Promise) -> Iterator[Violation]:
    """An answered read shows what was acknowledged this long ago in its data centre, or something
    later. Judged by keys with one writer."""
    if promise.staleness is None or not promise.lasting:
        return
    writes: dict[str, list[Operation]] = defaultdict(list)
    for one in sorted(history, key=_start):
        if not one.reads and _kind(one.key) in WRITTEN:
            writes[one.key].append(one)
    for one in history:
        # A node may know less of an engine's lost entries than another did. Shared memory refuses
        # nobody.
        if (
            one.dc in promise.lost
            or not one.reads
            or one.answer != OK
            or one.key not in writes
            or " of " in one.node
        ):
            continue
        known = _states(writes[one.key])
        old = [
            at
            for at, (_, op) in enumerate(known)
            if op is not None
            and op.answer == OK
            and op.dc == one.dc
            and op.end < one.start - promise.staleness
        ]
        least = max(old, default=0)
        mixed = _mixes(one.key, writes[one.key], promise)
        if not _places(_shown(one.key, one.row), known, least, mixed):
            proof = known[least][1]
            text = f"{one.key} at {one.node} is older than {promise.staleness:g} s"
            yield Violation("stale", text, tuple(op for op in (proof, one) if op))


def _walk(
    key: str,
    node: str,
    known: list[tuple[int | None, Operation | None]],
    seen: list[Operation],
    mixed: bool,
) -> Iterator[Violation]:
    """Each look in turn shows the state that was there, or a later one."""
    # How far each of the ended ones had come: a look that began later shows no less.
    ended: list[tuple[float, int, Operation]] = []
    place_of = {op.id: place for place, (_, op) in enumerate(known) if op is not None}
    for one in seen:
        before = [entry for entry in ended if entry[0] < one.start]
        least, proof = max(((place, op) for _, place, op in before), key=_first, default=(0, None))
        if one.reads:
            value = _shown(key, one.row)
            places = _places(value, known, least, mixed)
            if not places:
                text = f"{key} is {value} at {node}, where it was {known[least][0]} before"
                yield Violation("backwards", text, tuple(op for op in (proof, one) if op))
                return
            ended.append((one.end, places[0], one))
        elif one.answer == OK:
            ended.append((one.end, place_of[one.id], one))


def _states(writes: list[Operation]) -> list[tuple[int | None, Operation | None]]:
    """The states of a row in their order, and the write that made each; first, that there is no
    row. A refused write creates none; an unknown one creates a row that need not appear."""
    known: list[tuple[int | None, Operation | None]] = [(None, None)]
    for one in writes:
        if one.answer != FAILED:
            known.append((None if one.kind == "delete" else one.value, one))
    return known


def sums(
    history: Sequence[Operation], final: Mapping[str, Rows], promise: Promise
) -> Iterator[Violation]:
    """A sum has every increment that was acknowledged, once, and none that was refused; each
    unknown one at most once."""
    for kind, column in (("sum", "count"), ("net", "net")):
        least: dict[str, int] = defaultdict(int)
        most: dict[str, int] = defaultdict(int)
        for one in history:
            if one.kind != "incr" or _kind(one.key) != kind:
                continue
            if one.answer == OK and promise.lasting:
                least[one.key] += one.value
                most[one.key] += one.value
            else:
                # Put back into another history, what found no row may find one.
                again = one.dc in promise.lost and one.error == "no row"
                may = one.value if one.answer != FAILED or again else 0
                least[one.key] += min(may, 0)
                most[one.key] += max(may, 0)
        for node, rows in final.items():
            for key in most:
                value = int((rows.get(key) or {}).get(column, 0))
                if not least[key] <= value <= most[key]:
                    text = f"{key} is {value} at {node}; {least[key]} to {most[key]} is right"
                    yield Violation("sums", text)
    # For a growing sum, at any time: no more than was asked for.
    asked = sorted(
        (
            one
            for one in history
            if one.kind == "incr"
            and (one.answer != FAILED or (one.dc in promise.lost and one.error == "no row"))
        ),
        key=_start,
    )
    by_key: dict[str, list[Operation]] = defaultdict(list)
    for one in asked:
        by_key[one.key].append(one)
    for one in history:
        if one.reads and one.row and _kind(one.key) == "sum":
            bound = sum(op.value for op in by_key[one.key] if op.start < one.end)
            if int(one.row.get("count", 0)) > bound:
                yield Violation("sums", f"{one.key} has more than the {bound} asked for", (one,))


def highest(
    history: Sequence[Operation], final: Mapping[str, Rows], promise: Promise
) -> Iterator[Violation]:
    """A max is at least the highest that was acknowledged, and one that was asked for."""
    acked: dict[str, Operation] = {}
    asked: dict[str, set[int]] = defaultdict(set)
    for one in history:
        if one.kind != "high":
            continue
        asked[one.key] |= {one.value} if one.answer != FAILED else set()
        if one.answer == OK and (one.key not in acked or acked[one.key].value < one.value):
            acked[one.key] = one
    for node, rows in final.items():
        for key, values in asked.items():
            value = int((rows.get(key) or {}).get("high", 0))
            if value and value not in values:
                yield Violation("max", f"{key} is {value} at {node}, which nobody wrote")
            if promise.lasting and key in acked and value < acked[key].value:
                yield Violation("lost", f"{key} is {value} at {node}", (acked[key],))


def rising(history: Sequence[Operation], promise: Promise) -> Iterator[Violation]:
    """Within a data centre an increment that began when another was answered adds to that."""
    groups: dict[tuple[str, str], list[Operation]] = defaultdict(list)
    unsure = _unsure(history, promise)
    for one in history:
        counts = _kind(one.key) == "sum" and one.key not in unsure
        if one.kind == "incr" and one.answer == OK and counts:
            groups[one.dc, one.key].append(one)
    for group in groups.values():
        ended = sorted(group, key=lambda one: one.end)
        place = 0
        highest: Operation | None = None
        for one in sorted(group, key=_start):
            while place < len(ended) and ended[place].end < one.start:
                done = ended[place]
                if highest is None or (done.reply or 0) > (highest.reply or 0):
                    highest = done
                place += 1
            if highest is not None and (one.reply or 0) < (highest.reply or 0) + one.value:
                text = f"{one.key} was answered {one.reply} after {highest.reply}"
                yield Violation("rising", text, (highest, one))


def gone(final: Mapping[str, Rows]) -> Iterator[Violation]:
    """Rows that were to live briefly are gone, when their time is long over."""
    for node, rows in final.items():
        for key, row in rows.items():
            if _kind(key) == "ttl" and row is not None:
                yield Violation("gone", f"{key} is still there at {node}: {dict(row)}")


def equal(final: Mapping[str, Rows]) -> Iterator[Violation]:
    """All nodes of all data centres have the same rows."""
    (first, rows), *others = final.items() or [("", {})]
    for other, its in others:
        for key in sorted({*rows, *its}):
            if rows.get(key) != its.get(key):
                text = f"{key} is {rows.get(key)} at {first} and {its.get(key)} at {other}"
                yield Violation("equal", text)


def _rows_seen(
    history: Iterable[Operation], final: Mapping[str, Rows]
) -> Iterator[tuple[str, str, tuple[Operation, ...]]]:
    for one in history:
        if one.reads and one.row:
            yield str(one.row.get("who", "")), one.node, (one,)
    for node, rows in final.items():
        for row in rows.values():
            if row:
                yield str(row.get("who", "")), f"{node}, in the end,", ()


def _by_node(
    history: Iterable[Operation], promise: Promise
) -> dict[tuple[str, str], list[Operation]]:
    """Return what was seen or done at each place of each key, in the order in which it ended."""
    found: dict[tuple[str, str], list[Operation]] = defaultdict(list)
    written = _written(history)
    for one in sorted(history, key=lambda one: one.end):
        far = (written[one.key] - {one.dc}) & promise.lost
        if far and _kind(one.key) == "sum":
            continue
        # Where nodes have different histories for a while, a client who goes from one to another
        # sees that; who waits at one node does not.
        goes_about = one.node.startswith("client ") and one.dc in promise.lost
        node = one.node.rpartition(" ")[2]
        if one.answer not in (FAILED, UNKNOWN) and not goes_about and node not in promise.excused:
            found[one.node, one.key].append(one)
    return found


def _written(history: Iterable[Operation]) -> dict[str, set[str]]:
    """Return the data centres that wrote a key."""
    written: dict[str, set[str]] = defaultdict(set)
    for one in history:
        if not one.reads:
            written[one.key].add(one.dc)
    return written


def _unsure(history: Iterable[Operation], promise: Promise) -> set[str]:
    """Return the keys of which a data centre wrote whose engine may lose entries."""
    return {key for key, dcs in _written(history).items() if dcs & promise.lost}


def _mixes(key: str, writes: Iterable[Operation], promise: Promise) -> bool:
    """Return whether flags may show bits of several writes: those of one that is put back are set,
    though a later one that did not know of them has set others."""
    return _kind(key) == "flag" and any(one.dc in promise.lost for one in writes)


def _places(
    value: int | None,
    known: list[tuple[int | None, Operation | None]],
    least: int,
    mixed: bool,
) -> list[int]:
    """Return the places among the states of a row, from one on, where it shows this."""
    places = []
    before = 0
    for place, (state, _) in enumerate(known):
        before |= state or 0
        same = value == state
        if mixed and state is not None and value is not None:
            same = value & state == state and value & ~before == 0
        if place >= least and same:
            places.append(place)
    return places


def _falls(
    shown: list[tuple[int, Operation]], by: int = 0
) -> Iterator[tuple[Operation, Operation]]:
    """Yield pairs whose second began after the end of the first, and shows less, beyond `by`."""
    place = 0
    highest: tuple[int, Operation] | None = None
    for value, one in sorted(shown, key=lambda pair: pair[1].start):
        while place < len(shown) and shown[place][1].end < one.start:
            if highest is None or shown[place][0] > highest[0]:
                highest = shown[place]
            place += 1
        # A write shows what it raised the row to at least, and that may be less than there is.
        if highest is not None and value < highest[0] - by and one.kind != "high":
            yield highest[1], one


def _shown(key: str, row: Row) -> int | None:
    return None if row is None else int(row.get(WRITTEN[_kind(key)], 0))


def _kind(key: str) -> str:
    return key.partition("-")[0]


def _start(one: Operation) -> float:
    return one.start


def _first(pair: tuple[int, object]) -> int:
    return pair[0]
