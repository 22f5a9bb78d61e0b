"""Behind a failure (clause 31): long sweeps and returns answer alike on model, hub and Redis.

And an order property: whatever parks, nothing is lost, nothing waits for ever, and on one key the
messages that park keep their order.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests import seeds
from tests.engine.naive.model import HELD, LEASED, Entry, Spec
from tests.engine.naive.watch import WatchedModel
from tests.engine.schedules.compare import difference
from tests.engine.schedules.director import Director
from tests.engine.schedules.servers import Servers, both

MANY = 2_500
"""More than two calls move."""
BATCH = 500
LEASE = ["0", "1", "5000000", "any"]


@pytest.fixture(scope="module")
def servers(engine_port: int) -> Iterator[Servers]:
    with both(engine_port) as servers:
        yield servers


def same(servers: Servers, director: Director) -> None:
    wrong = difference(servers.ask(director.calls), servers.answered())
    assert wrong is None or wrong.startswith("left over"), wrong[-3_000:]


class Play:
    """Steps of a story, and what the model says of each."""

    def __init__(self, servers: Servers, **declared: str) -> None:
        self.director = Director(WatchedModel(servers.now))
        self.model = self.director.model
        options = [part for pair in declared.items() for part in pair]
        self.direct("configure", "REPLACE", *options)

    def direct(self, name: str, *arguments: str) -> None:
        self.director.take(("direct", (name, list(arguments))))

    def put(self, *specs: Spec) -> None:
        self.director.take(("put", ("", "0", list(specs))))

    def put_many(self, keys: list[tuple[str, ...]]) -> None:
        for at in range(0, len(keys), BATCH):
            self.put(*[Spec(str(at + n), one) for n, one in enumerate(keys[at : at + BATCH])])

    def lease(self) -> None:
        self.director.take(("lease", ("", LEASE)))

    def fail(self) -> str:
        """Fail what is leased, and return what happened to it."""
        (one,) = [entry for entry in self.model.line if entry.state == LEASED]
        made = [["NACK", str(one.token), str(one.id), "0", "broken"]]
        answers = self.model.settle(made)
        self.director._call("settle", ["", "0", *made[0]], answers)
        return answers[0]

    def skip_held(self) -> None:
        (one,) = [entry for entry in self.model.line if entry.state == HELD]
        self.director._call("skip", [str(one.id)], self.model.skip(str(one.id)))

    def look(self) -> dict[str, int]:
        told = self.model.stats()
        self.director._call("stats", [], told)
        return {name: int(count) for name, count in zip(told[::2], told[1::2], strict=True)}


def held_behind_which(play: Play, keys: list[tuple[str, ...]]) -> None:
    play.put(Spec("stuck", ("a",), (), (("ATTEMPTS", "1"), ("THEN", "hold"))))
    play.lease()
    play.put_many(keys)


@pytest.mark.share(2)
def test_many_that_wait_behind_a_held_message_are_parked_and_return_over_several_calls(
    servers: Servers,
) -> None:
    play = Play(servers, BEHIND="park")
    held_behind_which(play, [("a", f"b{n % 7}") for n in range(MANY)])
    assert play.fail() == "HELD"
    assert play.look()["parked"] == 1_000
    # The key opens before all of it is swept, and is shut again while they return.
    play.direct("pause", "b1")
    play.skip_held()
    play.direct("pause", "a")
    for _ in range(4):
        play.lease()
        play.look()
    play.direct("resume", "a", "b1")
    for _ in range(4):
        play.lease()
        play.look()
    assert play.look()["parked"] == 0
    same(servers, play.director)


@pytest.mark.parametrize("value", ["bury", "cancel"])
def test_many_that_go_with_a_message_hold_it_until_they_are_gone(
    servers: Servers, value: str
) -> None:
    play = Play(servers, BEHIND=value)
    play.put(Spec("fails", ("a",), (), (("ATTEMPTS", "1"), ("THEN", "dead"))))
    play.lease()
    play.put_many([("a",)] * MANY)
    assert play.fail() == "HELD"
    assert (play.look()["held"], play.look()["dead"]) == (1, 1_000 * (value == "bury"))
    play.lease()
    assert play.look()["held"] == 1
    play.lease()
    assert (play.look()["held"], play.look()["unsettled"]) == (0, 0)
    assert play.look()["dead"] == 1 + MANY * (value == "bury")
    same(servers, play.director)


def test_a_call_moves_messages_with_at_most_4096_keys(servers: Servers) -> None:
    play = Play(servers, BEHIND="park")
    keys = tuple(f"k{n}" for n in range(1023))
    held_behind_which(play, [])
    for n in range(10):
        play.put(Spec(str(n), ("a", *keys)))
    play.fail()
    parked = [play.look()["parked"]]
    for _ in range(2):
        play.lease()
        parked.append(play.look()["parked"])
    assert parked == [4, 8, 10]
    play.skip_held()
    assert play.look()["parked"] == 6
    same(servers, play.director)


def test_another_value_sweeps_many_keys_over_several_calls(servers: Servers) -> None:
    play = Play(servers)
    keys = [f"k{n:04}" for n in range(1_200)]
    play.put_many([(key,) for key in keys])
    play.direct("pause", *keys[:600])
    play.direct("pause", *keys[600:])
    play.direct("configure", "CHANGE", "BEHIND", "park")
    # With more than 100 paused keys the figures are not compared before nothing waits.
    assert 0 < len(play.model.parked) < 1_200
    for _ in range(3):
        play.lease()
    assert play.look()["parked"] == 1_200
    same(servers, play.director)


def test_an_empty_sealed_queue_is_sealed_while_its_shut_keys_are_swept(servers: Servers) -> None:
    play = Play(servers)
    keys = [f"k{n:04}" for n in range(2_100)]
    for at in range(0, len(keys), 700):
        play.direct("pause", *keys[at : at + 700])
    play.direct("seal")
    play.direct("configure", "CHANGE", "BEHIND", "park")
    play.lease()
    assert play.model.has_moves()
    assert play.director.calls[-1].expected[2] == "sealed"
    same(servers, play.director)


class NotedModel(WatchedModel):
    """Notes the keys under which each message was ever parked."""

    def _park(self, entry: Entry, key: str) -> None:
        noted: dict[int, set[str]] = self.__dict__.setdefault("unders", {})
        noted.setdefault(entry.id, set()).add(key)
        super()._park(entry, key)


def random_story(chance: random.Random, values: list[str]) -> NotedModel:
    """Puts, leases, failures, pauses; then all keys are resumed."""
    model = NotedModel(1_700_000_000_000_000)
    keys = "abcd"[: chance.choice([2, 3, 4])]
    model.configure(["REPLACE", "BEHIND", chance.choice(values), "ATTEMPTS", "1", "THEN", "hold"])
    for n in range(60):
        model.now += 1
        way = chance.choice("pppplllfaosr")
        out = [entry for entry in model.line if entry.state == LEASED]
        held = [entry for entry in model.line if entry.state == HELD]
        if way == "p":
            own = (("BEHIND", chance.choice(values)),) if chance.random() < 0.3 else ()
            some = tuple(dict.fromkeys(chance.choices(keys, k=chance.choice([1, 1, 2, 3]))))
            cut = chance.randint(0, len(some)) if chance.random() < 0.3 else 0
            model.put([Spec(str(n), some[cut:], some[:cut], own)])
        elif way == "l":
            model.lease("", chance.choice([1, 3]), 10**12, "any")
        elif out and way in "fa":
            one = chance.choice(out)
            rest = ["0", "broken"] if way == "f" else []
            model.settle([["NACK" if rest else "ACK", str(one.token), str(one.id), *rest]])
        elif way == "o":
            getattr(model, chance.choice(["pause", "resume"]))([chance.choice(keys)])
        elif held and way in "sr":
            getattr(model, "skip" if way == "s" else "retry")(str(chance.choice(held).id))
    model.configure(["CHANGE", "ATTEMPTS", "0"])
    model.resume(list(keys))
    return model


def test_nothing_is_lost_and_nothing_waits_for_ever_whatever_was_parked() -> None:
    chance = random.Random(seeds.seed())
    for _ in range(150):
        model = random_story(chance, ["park", "park", "wait", "bury", "cancel"])
        left = {entry.id for entry in model.unsettled()}
        done: list[int] = []
        for _ in range(400):
            for entry in [one for one in model.line if one.state == HELD]:
                model.retry(str(entry.id))
            model.lease("", 5, 10**12, "any")
            for entry in [one for one in model.line if one.state == LEASED]:
                done.append(entry.id)
                model.settle([["ACK", str(entry.token), str(entry.id)]])
            if not model.unsettled():
                break
        ended = {*done, *[entry.id for entry in model.dead]}
        assert not model.unsettled(), "something waits for ever"
        assert len(done) == len(set(done))
        # With other values than park a message may be cancelled behind another.
        assert left - ended == set() or model.counts["cancelled"]


def test_messages_that_park_keep_their_order_on_a_key() -> None:
    chance = random.Random(seeds.seed())
    overtakes = 0
    for _ in range(150):
        model = random_story(chance, ["park"])
        order = {entry.id: entry.first or entry.sequence for entry in model.unsettled()}
        begun: dict[str, list[Any]] = {}
        for _ in range(400):
            for entry in [one for one in model.line if one.state == HELD]:
                model.skip(str(entry.id))
            model.lease("", 5, 10**12, "any")
            for entry in [one for one in model.line if one.state == LEASED]:
                for key in entry.exclusive:
                    for other in begun.get(key, []):
                        if order[other] > order[entry.id]:
                            overtakes += 1
                            # It had been parked, and under another key.
                            assert model.__dict__["unders"][entry.id] - {key}
                    begun.setdefault(key, []).append(entry.id)
                model.settle([["ACK", str(entry.token), str(entry.id)]])
            if not model.unsettled():
                break
        assert not model.unsettled()
    assert overtakes, "no message was overtaken: the schedules show nothing"
