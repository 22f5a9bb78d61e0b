"""Turns steps into calls, each with what the naive model says of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.engine.naive.model import BACKING_OFF, HELD, LEASED, QUEUED, Entry, Refused, Spec
from tests.engine.naive.watch import WatchedModel
from tests.engine.schedules.reasons import LIMIT, wrong_reason
from tests.engine.schedules.steps import Pick, Step
from tests.engine.timed import START

LATELY = 12
SOON = 10_000_000
"""µs; what ends later is not waited for."""
KEPT = 300_000_000
"""µs for which a consumer's last reply is kept."""
KINDS = (
    "put", "replaced", "due", "lease", "ack", "release", "defer", "lease_expired", "retry", "dead",
    "hold", "readied", "skip", "cancel",
)  # fmt: skip
NOBODY = ("5", "7")
"""A lease that never was."""
SOME = 8
"""Messages whose reasons are looked at when consumers have nothing to do."""


@dataclass
class Call:
    """A call, when it is made, and what the model says: a reply, or the code of a refusal."""

    name: str
    arguments: list[str]
    expected: list[str] | str
    now: int

    def __str__(self) -> str:
        return f"il1_{self.name} {' '.join(map(repr, self.arguments))}"


@dataclass
class Director:
    """A consumer's calls are numbered, and its last one is known, to be sent again."""

    model: WatchedModel
    calls: list[Call] = field(default_factory=list)
    error: int = 0
    """µs by which the clock is ahead of what it would be if nobody had set it."""
    latest: int = 0
    """The latest time of a call."""
    tally: Counter[str] = field(default_factory=Counter)
    """Counts of the model's refusals, and of losses and repeats; the rest is in its own counts."""
    leased: list[tuple[str, str]] = field(default_factory=lambda: [NOBODY])
    """All that ever were: token and id."""
    numbers: dict[str, int] = field(default_factory=dict)
    last: dict[str, Call] = field(default_factory=dict)

    def take(self, step: Step) -> None:
        getattr(self, "_" + step[0])(step[1])

    def _call(self, name: str, arguments: list[str], expected: list[str] | str) -> Call:
        call = Call(name, arguments, expected, self.model.now)
        self.calls.append(call)
        self.latest = max(self.latest, call.now)
        if isinstance(expected, str):
            self.tally[expected] += 1
        return call

    def _ask(self, name: str, arguments: list[str], ask: Callable[[], list[str]]) -> Call:
        expected: list[str] | str
        try:
            expected = ask()
        except Refused as refused:
            expected = str(refused)
        return self._call(name, arguments, expected)

    def _numbered(
        self, name: str, consumer: str, rest: list[str], ask: Callable[[], list[str]]
    ) -> list[str]:
        number = self.numbers.get(consumer, 0) + 1 if consumer else 0
        call = self._ask(name, [consumer, str(number), *rest], ask)
        if isinstance(call.expected, str):
            # A call that was refused has done nothing and is not kept.
            return []
        if consumer:
            self.numbers[consumer] = number
            self.last[consumer] = call
        return call.expected

    def _tick(self, span: int) -> None:
        self.model.now += span

    def _clock(self, step: tuple[str, int]) -> None:
        """The clock is set: ahead, back, or to what it would be if it never had been."""
        way, span = step
        error = {"ahead": self.error + span, "back": self.error - span, "right": 0}[way]
        # Numbers have 16 digits.
        error = max(error, START + self.error - self.model.now)
        self.model.now += error - self.error
        self.error = error

    def _due(self, step: tuple[int, int]) -> None:
        """To the very time at which something ends, or one before it."""
        pick, before = step
        model = self.model
        kept = {until: id for id, (_, until, _) in model.kept.items()}
        ends = [model.watched, *[worker.until for worker in model.announced.values()]]
        ends += map(int, model.opens())
        if soon := self._soon([*[entry.due for entry in model.unsettled()], *kept, *ends]):
            until = soon[pick % len(soon[:3])]
            model.now = until - before
            if until in kept:
                id = str(kept[until])
                self._call("result", [id, "0"], model.result(id))

    def _soon(self, times: list[int]) -> list[int]:
        return sorted(time for time in times if self.model.now < time < self.model.now + SOON)

    def _window(self, step: tuple[int, int]) -> None:
        """A put of a dedup string whose window ends then, or a moment later."""
        pick, before = step
        named = {until: name for name, (_, until) in self.model.named.items() if until is not None}
        if soon := self._soon(list(named)):
            until = soon[pick % len(soon)]
            self.model.now = until - before
            self._put(("", "0", [Spec("again", options=(("DEDUP", named[until]),))]))

    def _put(self, step: tuple[str, str, list[Spec]]) -> None:
        consumer, wait, specs = step
        rest = [wait, *[part for spec in specs for part in spec.arguments()]]
        self._numbered("put", consumer, rest, lambda: self.model.put(specs))

    def _together(self, step: tuple[str, list[Spec], int, bool]) -> None:
        """Puts of several callers, as a client sends them: in one call, and if that is refused,
        each in a call of its own. One of them may be malformed; a reply may be lost."""
        consumer, given, pick, is_lost = step
        specs = list(given)
        wrong = pick % len(specs) if pick % 4 == 0 else None
        if wrong is not None:
            specs[wrong] = Spec("p", ("k",), (), (("BARRIER", "1"),))
        before = len(self.calls)
        if wrong is None:
            self._put((consumer, "0", specs))
        else:
            self._malformed(consumer, specs)
        if not isinstance(self.calls[before].expected, str):
            if is_lost:
                self._again(consumer)
            return
        for spec in specs:
            if wrong is not None and spec is specs[wrong]:
                self._malformed(consumer, [spec])
            else:
                self._put((consumer, "0", [spec]))
                if is_lost:
                    self._again(consumer)

    def _malformed(self, consumer: str, specs: list[Spec]) -> None:
        number = self.numbers.get(consumer, 0) + 1 if consumer else 0
        rest = [part for spec in specs for part in spec.arguments()]
        self._call("put", [consumer, str(number), "0", *rest], "BADARG")

    def _note(self, granted: list[str]) -> None:
        """Notes the leases at the end of a reply."""
        if granted and granted[0]:
            now = [entry for entry in self.model.line if str(entry.token) == granted[0]]
            self.leased += [(granted[0], str(entry.id)) for entry in now]

    def _lease(self, step: tuple[str, list[str]]) -> None:
        consumer, rest = step
        _, count, duration, kind = rest
        self._note(
            self._numbered(
                "lease",
                consumer,
                rest,
                lambda: self.model.lease(consumer, int(count), int(duration), kind),
            )
        )

    def _settlements(self, picks: list[Pick]) -> list[list[str]]:
        """Settlements of leased messages, mostly each once; also with the token of another, and of
        settled ones."""
        out = [(str(e.token), str(e.id)) for e in self.model.line if e.state == LEASED]
        tokens = [token for token, _ in out]
        lately = self.leased[-LATELY:]
        made = []
        for verb, pick, rest in picks:
            way = pick % 9
            if way == 0:
                made.append([verb, *lately[pick % len(lately)], *rest])
            elif out:
                token, id = out[pick % len(out)]
                if way < 3:
                    others = [other for other in tokens if other != token] or tokens
                    token = others[pick % len(others)]
                elif way > 3:
                    out.remove((token, id))
                made.append([verb, token, id, *rest])
        return made

    def _run(self, step: tuple[str, int, int, list[Pick]]) -> None:
        """The first messages of a run are acknowledged in order, and the next one is settled."""
        consumer, pick, count, picks = step
        heads = [e for e in self.model.line if e.state == LEASED and not e.head]
        if not heads:
            return
        head = next(filter(self.model.riders, heads), heads[pick % len(heads)])
        run = [head, *self.model.riders(head)]
        made = [["ACK", str(head.token), str(one.id)] for one in run[:count]]
        for (verb, _, rest), one in zip(picks, run[count:], strict=False):
            made.append([verb, str(head.token), str(one.id), *rest])
        if made:
            flat = [part for one in made for part in one]
            self._numbered("settle", consumer, flat, lambda: self._settled(made))

    def _settled(self, made: list[list[str]]) -> list[str]:
        answers = self.model.settle(made)
        self.tally["LEASELOST"] += answers.count("LEASELOST")
        return answers

    def _settle(self, step: tuple[str, list[Pick]]) -> None:
        consumer, picks = step
        made = self._settlements(picks)
        flat = [part for one in made for part in one]
        if made:
            self._numbered("settle", consumer, flat, lambda: self._settled(made))

    def _next(self, step: tuple[str, list[str], list[Pick]]) -> None:
        consumer, wanted, picks = step
        _, count, duration, kind = wanted
        made = self._settlements(picks)

        def ask() -> list[str]:
            answers = self._settled(made)
            reply = self.model.grant(consumer, int(count), int(duration), kind)
            return [str(len(made)), *answers, *reply]

        flat = [part for one in made for part in one]
        reply = self._numbered("next", consumer, [*wanted, *flat], ask)
        self._note(reply[1 + len(made) :])

    def _extend(self, step: tuple[int, str, list[str]]) -> None:
        pick, duration, waiting = step
        # Mostly of a suspect message, of which its holder has something to say.
        suspects = [str(e.token) for e in self.model.line if e.state == LEASED and e.suspect]
        lately = suspects if suspects and pick % 3 else [one for one, _ in self.leased[-LATELY:]]
        token = lately[pick % len(lately)]
        reply = self.model.extend(token, int(duration), *waiting)
        self.tally["LEASELOST"] += reply == ["LEASELOST"]
        self._call("extend", [token, duration, *waiting], reply)

    def _kept(self, consumer: str) -> Call | None:
        """The last call, while its reply is kept: no call since came when it was too old."""
        call = self.last.get(consumer)
        return call if call and max(self.latest, self.model.now) < call.now + KEPT else None

    def _again(self, consumer: str) -> None:
        if before := self._kept(consumer):
            self.tally["again"] += 1
            self._call(before.name, before.arguments, before.expected)

    def _stale(self, consumer: str) -> None:
        number = self.numbers.get(consumer, 0)
        before = self._kept(consumer)
        if before and number > 1:
            old = [consumer, str(number - 1), "0", "1", "9", "any"]
            self._call("lease", old, "STALECALL")
            # Other arguments do not count: the number identifies the call.
            kept = before.expected if before.name == "settle" else "STALECALL"
            self._call("settle", [consumer, str(number), "ACK", *NOBODY], kept)

    def _id(self, pick: int, name: str = "") -> str:
        """Mostly of a message of which the call changes something, sometimes of any, or of none."""
        model = self.model
        entries: list[Entry] = model.unsettled()
        if pick % 4:
            fit = {
                "requeue": lambda: model.dead,
                "discard": lambda: model.dead if pick % 3 else entries,
                "revoke": lambda: [e for e in entries if e.state == LEASED],
                "cancel": lambda: [e for e in entries if e.state != LEASED],
                "": lambda: entries,
            }.get(name, lambda: [e for e in entries if e.state in (HELD, BACKING_OFF)])()
            entries = fit or entries
        elif pick % 3 == 0:
            entries = model.dead
        if not entries or pick % 11 == 0:
            return str(max(model.number - pick % 13, 1))
        return str(entries[pick % len(entries)].id)

    def _operate(self, step: tuple[str, int, list[str]]) -> None:
        """Makes an operator's call on one message."""
        name, pick, more = step
        id = self._id(pick, name)
        if name == "forget" and self.model.kept and pick % 5:
            id = str(list(self.model.kept)[pick % len(self.model.kept)])
        arguments = [id, *more]
        self._ask(name, arguments, lambda: getattr(self.model, name)(*arguments))

    def _revoke(self, step: tuple[int, str]) -> None:
        """By a token: of a lease, of one that is over, or of another message's."""
        pick, then = step
        out = [(str(e.token), str(e.id)) for e in self.model.line if e.state == LEASED]
        lately = out if out and pick % 3 else self.leased[-LATELY:]
        token, id = lately[pick % len(lately)]
        if pick % 5 == 0:
            id = lately[-1][1]
        arguments = [id, then, token]
        self._ask("revoke", arguments, lambda: self.model.revoke(id, then, token))

    def _direct(self, step: tuple[str, list[str]]) -> None:
        """Makes an operator's call on the queue."""
        name, arguments = step
        method = getattr(self.model, name)
        taken = [arguments] if name in ("pause", "resume", "configure") else arguments
        self._ask(name, arguments, lambda: method(*taken))

    def _restore(self, step: tuple[str, list[tuple[list[str], int, Spec]]]) -> None:
        window, items = step
        arguments = [window]
        for (mark, state, attempt, error), after, spec in items:
            time = str(self.model.now + after)
            arguments += [mark, state, attempt, time, error, *spec.arguments()]
        self._ask("restore", arguments, lambda: self.model.restore(arguments))

    def _events(self, step: tuple[int, int, str]) -> None:
        """From the last event, from one before, from what is gone or was never, or from now on."""
        pick, count, duration = step
        ways = [0, 0, 1, 3, 5_000, -7, self.model.last_event]
        after = str(max(self.model.last_event - ways[pick % len(ways)], 0)) if pick % 9 else ""
        reply = self.model.watch(after, count, int(duration))
        self.tally["events told"] += sum(part in KINDS for part in reply)
        self._call("events", [after, str(count), duration], reply)

    def _workers(self, step: tuple[str, list[str]]) -> None:
        name, arguments = step
        self._call(name, arguments, getattr(self.model, name)(*arguments))

    def _wrong(self, step: tuple[str, str, list[str]]) -> None:
        code, name, arguments = step
        self._call(name, arguments, code)

    def _read(self, step: tuple[int, int, str]) -> None:
        """Some of what can be read: all of it would be the most of all calls."""
        pick, limit, key = step
        model, id, most = self.model, self._id(pick), str(limit)
        dead = str(model.dead[pick % len(model.dead)].id) if model.dead else id
        gone = str(max(model.number - pick % 40, 1))
        self._call("stats", [], model.stats())
        if pick % 4 == 0:
            for after, only in (("", None), (dead, None), (id, None), ("", key), (dead, key)):
                arguments = [most, after, *([] if only is None else [only])]
                self._call("dead_letters", arguments, model.dead_letters(limit, after, only))
        elif pick % 4 == 1:
            for one in (id, dead, gone):
                self._call("peek", [one], model.peek(one))
                self._call("result", [one, "0"], model.result(one))
        elif pick % 4 == 2:
            self._roots(pick, id, key, limit)
            # In lanes as deep as those of runs, Redis counts what is ahead of no more than these.
            limit = min(limit, 10)
            self._call("explain", ["id", id, str(limit)], model.explain("id", id, limit))
            self._call("explain", ["key", key, str(limit)], model.explain("key", key, limit))
        else:
            # This and join apply what is due; the other two do not.
            self._call("configure", [], model.configure([]))
            for named in ([], [id], [gone]):
                arguments = ["0", *named]
                self._call("join", arguments, model.join(*arguments))
            scanned = [part for one in model.scan() for part in one]
            self._call("scan", ["0", "1000"], ["0", *scanned])
            for cursor in ("0", id, gone):
                told = model.scan_key(key, limit, model.find(cursor))
                self._call("scan", [cursor, most, "key", key], told)
            for cursor in ("0", id, gone):
                ids = [str(max(model.number - n, 1)) for n in range(pick % 9, -1, -1)]
                told = model.scan_ids([*ids, dead], limit, int(cursor))
                self._call("scan", [cursor, most, "ids", *ids, dead], told)
            for state in (
                None,
                ("ready", "waiting", "leased", "held", "delayed", "parked")[pick % 6],
            ):
                least = ("0", id)[pick % 2]
                told = model.scan_larger(least, state)
                arguments = ["0", "1000", "larger", least, *([state] if state else [])]
                self._call("scan", arguments, told)
            rare = ("leased", "backing_off", "held", "delayed")[pick // 4 % 4]
            for least, state in (
                ("0", None),
                ("0", "waiting"),
                ("0", "ready"),
                ("0", rare),
                (id, rare),
            ):
                told = model.scan_front(limit, least, state)
                arguments = ["0", most, "front", least, *([state] if state else [])]
                self._call("scan", arguments, told)
            delayed = [part for one in model.scan_delayed(key) for part in one]
            self._call("scan", ["0", "1000", "delayed", key], ["0", *delayed])
            self._call("hot", ["0"], ["0", *[part for one in model.hot() for part in one]])
            self._call("limits", [most], model.limits_used(int(most)))
            self._call("scan", ["0", most, "dead"], model.scan_dead(limit))
            self._call("scan", ["0", most, "newest"], model.scan_dead(limit, newest=True))
            if model.dead:
                letter = model.dead[pick % len(model.dead)]
                for way in ("dead", "newest"):
                    told = model.scan_dead(limit, way == "newest", letter)
                    self._call("scan", [str(letter.id), most, way], told)
            halted = [""] if model.halted else []
            self._call("paused", ["0"], ["0", *halted, *sorted(model.paused)])

    def _roots(self, pick: int, id: str, key: str, limit: int) -> None:
        """Ask what holds others up, and how many wait behind that, or behind anything."""
        model = self.model
        asked = [str((0, 1, 30)[pick % 3]), str(limit)]
        self._call("roots", asked, model.roots(*asked))
        out = [str(entry.id) for entry in model.line if entry.state != QUEUED]
        named = [("id", id), ("key", key), *[("id", one) for one in out], ("key", "")]
        for some in (named[:1], named[1:2], named[2:-1], named[:-1], named[-1 - pick % 2 :]):
            ids = [name for by, name in some if by == "id"]
            keys = [name for by, name in some if by == "key"]
            if some:
                arguments = [str(limit), *[part for one in some for part in one]]
                self._call("blocked", arguments, model.blocked_by(limit, ids, keys))

    def work_off(self) -> None:
        """Consumers handle what they can, with all the time that it takes.

        For what is left a reason must be named that only an operator, or a long backoff, ends.
        """
        model, idle = self.model, 0
        model.now = max(model.now, self.latest)
        while idle < 2 and model.unsettled():
            model.now += 100_000_000
            self._lease(("last", ["0", "1000", "999", "any"]))
            out = [entry for entry in model.line if entry.state == LEASED]
            made = [["ACK", str(entry.token), str(entry.id)] for entry in out]
            idle = 0 if made else idle + 1
            if made:
                flat = [part for one in made for part in one]
                self._numbered("settle", "last", flat, lambda made=made: model.settle(made))  # type: ignore[misc]
        left = model.unsettled()
        roots = model.roots("0", str(LIMIT))
        for entry in left[:: len(left) // SOME + 1]:
            asked = ["id", str(entry.id), str(LIMIT)]
            told = model.explain("id", str(entry.id), LIMIT)
            self._call("explain", asked, told)
            wrong = wrong_reason(model, told, roots)
            assert not wrong, wrong
        self._call("roots", ["0", str(LIMIT)], roots)

    def drain(self) -> None:
        """Calls that leave nothing unsettled and nothing known, at the latest time of all."""
        self.model.now = max(self.model.now, self.latest)
        self._direct(("resume", []))
        if self.model.paused:
            self._direct(("resume", list(self.model.paused)))
        while self.model.unsettled():
            self.model.now += 100_000_000
            self._lease(("last", ["0", "1000", "999", "any"]))
            out = [entry for entry in self.model.line if entry.state == LEASED]
            made = [["ACK", str(entry.token), str(entry.id)] for entry in out]
            if made:
                flat = [part for one in made for part in one]
                self._numbered("settle", "last", flat, lambda made=made: self.model.settle(made))  # type: ignore[misc]
            # A backoff may last longer than the test waits.
            for entry in [e for e in self.model.line if e.state in (HELD, BACKING_OFF)]:
                id = str(entry.id)
                self._ask("skip", [id], lambda id=id: self.model.skip(id))  # type: ignore[misc]
        self.model.now += 301_000_000
        self._direct(("purge", ["dead"]))
        self._lease(("last", ["0", "1", "1", "any"]))
        self._call("stats", [], self.model.stats())


def directed(steps: list[Step], now: int) -> Director:
    """All calls of a schedule that begins at this time, and those that empty the queue."""
    director = Director(WatchedModel(now))
    for step in steps:
        director.take(step)
    director.work_off()
    director.drain()
    return director
