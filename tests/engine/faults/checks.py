"""Checks of a run, from the lines of its processes alone, and the state of the accounts.

Nothing here looks at the clock to order what two processes did where a token tells it: tokens rise
with every grant, so a message that was leased only after another was settled has higher ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.engine.faults.bank import first_state, names
from tests.engine.faults.lines import Line
from tests.engine.faults.story import Grant, Message, Put, Story

SLACK = 30_000_000
"""ns by which the clock of a lease and that of the lines may differ."""


@dataclass(frozen=True)
class Violation:
    """A check that does not hold, and the lines that prove it."""

    check: str
    text: str
    lines: tuple[Line, ...] = ()

    def __str__(self) -> str:
        return "\n".join([f"{self.check}: {self.text}", *(f"    {line}" for line in self.lines)])


def all_of(
    story: Story, lease: float, state: dict[str, int], applied: dict[str, int]
) -> list[Violation]:
    """Everything that does not hold.

    Args:
        lease: seconds.
        state: of the accounts, at the end.
        applied: the message that each operation was done for.
    """
    return [
        *lost(story),
        *doubled(story),
        *undone(story),
        *order(story),
        *tokens(story),
        *expired(story, lease),
        *attempts(story),
        *counted(story),
        *money(story, state, applied),
    ]


def lost(story: Story) -> Iterator[Violation]:
    """Every put that was answered was handled and settled."""
    for put in story.puts.values():
        if put.answered is None:
            continue
        message = story.messages.get(put.answered["id"])
        if message is None:
            yield Violation("lost", f"{put.what.name} was never leased", _told(put))
    for message in story.messages.values():
        last = message.grants[-1]
        if not last.may_have_acked:
            text = f"{message.what.name} was not settled"
            yield Violation("lost", text, _lines(last))


def doubled(story: Story) -> Iterator[Violation]:
    """An operation has one message, the one whose id its put returned, with its keys."""
    of_name: dict[str, Message] = {}
    for message in story.messages.values():
        name = message.what.name
        other = of_name.setdefault(name, message)
        if other is not message:
            yield Violation(
                "doubled",
                f"{name} was put twice",
                (other.grants[0].begin, message.grants[0].begin),
            )
        put = story.puts.get(name)
        begin = message.grants[0].begin
        if put is None or put.what != message.what:
            yield Violation("doubled", f"nobody put {message.what}", (begin,))
            continue
        keys = (set(message.what.keys), set(message.what.shared))
        if (set(begin["keys"]), set(begin["shared"])) != keys:
            yield Violation("doubled", f"{name} has other keys", (begin, put.lines[0]))
        for answer in put.answers:
            if answer["id"] != message.id:
                yield Violation("doubled", f"{name} was given another id", (answer, begin))
        sequences = {grant.begin["sequence"] for grant in message.grants}
        if len(sequences) > 1:
            text = f"{name} had several places"
            yield Violation("doubled", text, tuple(grant.begin for grant in message.grants))
    ordered = sorted(
        (one for one in story.puts.values() if one.answered), key=lambda one: one.lines[0].at
    )
    for one, two in _after(ordered):
        yield Violation("order", f"{two.what.name} was put later", (*_told(one), *_told(two)))


def undone(story: Story) -> Iterator[Violation]:
    """Acknowledged messages are not leased again, and are acknowledged once."""
    for message in story.messages.values():
        acked = [
            (grant, one)
            for grant in message.grants
            for one in grant.settlings
            if one.said == "acked"
        ]
        for grant, one in acked:
            assert one.answer is not None
            for later in message.grants:
                if later.token > grant.token:
                    text = f"{message.what.name} was acknowledged and leased again, or stale"
                    yield Violation(
                        "undone", text, (grant.begin, one.line, one.answer, later.begin)
                    )
        if len(acked) > 1:
            text = f"{message.what.name} was acknowledged twice"
            yield Violation("undone", text, tuple(one.line for _, one in acked))


def order(story: Story) -> Iterator[Violation]:
    """Of two that conflict, the later one is leased after the earlier one is settled."""
    ordered = story.in_order()
    for at, later in enumerate(ordered):
        for earlier in ordered[:at]:
            if not earlier.what.conflicts(later.what):
                continue
            last, first = earlier.grants[-1], later.grants[0]
            text = f"{later.what.name} was leased before {earlier.what.name} was settled"
            if last.token >= first.token:
                yield Violation("order", text, (last.begin, first.begin))
            settled = min((one.line.at for one in last.may_have_acked), default=None)
            if settled is not None and first.begin.at < settled:
                yield Violation("order", text, (*_lines(last), first.begin))


def tokens(story: Story) -> Iterator[Violation]:
    """A lease that was asked for after another was given has a higher token."""
    given = sorted(story.grants, key=lambda one: one.begin.at)
    asked = sorted(story.grants, key=lambda one: one.get.at)
    at = 0
    highest: Grant | None = None
    for grant in asked:
        while at < len(given) and given[at].begin.at < grant.get.at:
            if highest is None or given[at].token > highest.token:
                highest = given[at]
            at += 1
        if highest is not None and grant.token <= highest.token:
            text = f"token {grant.token} is not above {highest.token}"
            yield Violation("tokens", text, (highest.begin, grant.get, grant.begin))


def expired(story: Story, lease: float) -> Iterator[Violation]:
    """A lease that was not renewed and is over settles nothing."""
    length = int(lease * 1e9)
    for grant in story.grants:
        line = grant.unrenewed
        # A lease is renewed a third after the call was made, not before.
        if line is None or line.at - grant.get.at > length // 3 - SLACK:
            continue
        for one in grant.settlings:
            if one.line.at > grant.begin.at + length + SLACK and one.said not in (
                "lost",
                "unknown",
            ):
                text = f"message {grant.id} was settled with a lease that was over"
                yield Violation("expired", text, _lines(grant))


def attempts(story: Story) -> Iterator[Violation]:
    """The attempt is one higher after each grant, but after a release or a lease that ran out."""
    hidden = 0
    for message in story.messages.values():
        before, released, unsure, ran_out = 0, False, False, False
        for grant in message.grants:
            least = before if released or ran_out else before + 1
            if grant.attempt < least:
                text = f"attempt {grant.attempt} after {before}"
                yield Violation("attempts", text, tuple(one.begin for one in message.grants))
            # A release that was not answered was done, or the lease ran out.
            most = before if released and not unsure else before + 1
            hidden += max(grant.attempt - most, 0)
            before = grant.attempt
            ends = [one.said for one in grant.settlings if one.how == "release"]
            released = "released" in ends or "unknown" in ends
            unsure = "released" not in ends
            # The first one that runs out is not charged.
            ran_out = all(one.said in ("lost", "unknown") for one in grant.settlings)
    if hidden > story.unanswered_gets:
        text = (
            f"{hidden} attempts more than were begun, and only {story.unanswered_gets} messages "
            f"can have been leased without an answer"
        )
        yield Violation("attempts", text)


def counted(story: Story) -> Iterator[Violation]:
    """The server's counts, over all its lives, are what was seen."""
    if story.stats is None:
        yield Violation("counted", "the queue did not drain")
        return
    said = story.stats.said
    wanted = {
        "unsettled": 0,
        "dead": 0,
        "puts": len(story.messages),
        "acks": len(story.messages),
        "held": 0,
        "delayed": 0,
        "cancelled": 0,
    }
    for name, value in wanted.items():
        if said[name] != value:
            text = f"{name} is {said[name]}, and was seen {value} times"
            yield Violation("counted", text, (story.stats,))


def money(story: Story, state: dict[str, int], applied: dict[str, int]) -> Iterator[Violation]:
    """The accounts are as if the messages had been handled one by one, in order, each once."""
    wanted = first_state()
    total = sum(wanted[name] for name in names())
    for message in story.in_order():
        wanted.update(message.what.effect(wanted))
        if message.what.name not in applied:
            text = f"{message.what.name} was settled and never done"
            yield Violation("money", text, _lines(message.grants[-1]))
    if sum(state[name] for name in names()) != total:
        yield Violation("money", f"{total} cents became {sum(state[name] for name in names())}")
    for name, value in wanted.items():
        if state[name] != value:
            yield Violation("money", f"{name} is {state[name]}; in order it is {value}")
    for name, id in applied.items():
        message_of = story.messages.get(id)
        if message_of is None or message_of.what.name != name:
            yield Violation("money", f"{name} was done for message {id}, which was never begun")


def _after(puts: list[Put]) -> Iterator[tuple[Put, Put]]:
    """Puts of which the second began when the first was answered, and yet has a lower id."""
    done = sorted(puts, key=lambda one: one.answers[0].at)
    at = 0
    highest: Put | None = None
    for put in puts:
        while at < len(done) and done[at].answers[0].at < put.lines[0].at:
            if highest is None or done[at].answers[0]["id"] > highest.answers[0]["id"]:
                highest = done[at]
            at += 1
        if highest is not None and put.answers[0]["id"] <= highest.answers[0]["id"]:
            yield highest, put


def _told(put: Put) -> tuple[Line, ...]:
    return (*put.lines, *put.answers)


def _lines(grant: Grant) -> tuple[Line, ...]:
    settled = [
        line for one in grant.settlings for line in (one.line, one.answer) if line is not None
    ]
    return (grant.get, grant.begin, *settled)
