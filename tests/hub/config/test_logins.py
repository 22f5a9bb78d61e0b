"""Strangers at the door: wrong passwords hold up nobody but who sends them, and fill no log."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import interlock
from interlock.hub import passwords
from interlock.hub.resp import command
from interlock.hub.serve.control import Controller
from interlock.hub.serve.logins import MOST_LOOKS, Login, Logins, Round, origin_of
from tests.hub.config.test_limits import opened
from tests.hub.servers import needs_hub

HASH = passwords.hashed("secret")
APP = {"name": "app", "passwords": [HASH], "topics": ["*"]}
STRANGERS = 60


class Looks:
    """Takes the place of the slow comparison: counts, and can be held up."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.open = threading.Event()
        self.first = threading.Event()

    def __call__(self, password: bytes, _hash: str) -> bool:
        self.seen.append(password)
        self.first.set()
        assert self.open.wait(30)
        return password == b"secret"


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    made = Looks()
    monkeypatch.setattr(passwords, "matches", made)
    return made


@pytest.fixture
def hub() -> Iterator[interlock.Hub]:
    needs_hub()
    with interlock.Hub(port=0, workers=2, user=[APP]) as running:
        yield running


def caller(stack: ExitStack, hub: interlock.Hub, address: str) -> socket.socket:
    """A connection from one of the addresses that loopback has."""
    made = socket.create_connection(("127.0.0.1", hub.port), 20, source_address=(address, 0))
    return stack.enter_context(made)


def auth(connection: socket.socket, password: str, name: str = "app") -> None:
    connection.sendall(command("AUTH", name, password))


def answer(connection: socket.socket) -> bytes:
    got = b""
    while not got.endswith(b"\r\n"):
        got += connection.recv(4096)
    return got


def asked(hub: interlock.Hub, count: int) -> None:
    """Wait until this number of logins has reached the controller."""
    while hub.info()["total_commands_processed"] < count:
        pass


def waiting(hub: interlock.Hub) -> list[Login]:
    """The logins that wait to be looked at."""
    # Not typed: a finalizer, which alone holds the controller.
    end: Any = hub._end
    controller: Controller = end.peek()[2][1]
    with controller._arrived:
        return controller._logins._all()


def test_strangers_at_one_address_hold_up_no_other(hub: interlock.Hub, looks: Looks) -> None:
    with ExitStack() as stack:
        strangers = [caller(stack, hub, "127.0.0.2") for _ in range(STRANGERS)]
        for number, stranger in enumerate(strangers):
            auth(stranger, f"guess {number}")
        assert looks.first.wait(20)
        asked(hub, STRANGERS)
        mine = caller(stack, hub, "127.0.0.3")
        auth(mine, "secret")
        # One is looked at; all others wait, this one among them.
        while not any(one.password == b"secret" for one in waiting(hub)):
            pass
        looks.open.set()
        assert answer(mine) == b"+OK\r\n"
        before = looks.seen[: looks.seen.index(b"secret")]
        assert len(before) <= 2, "only what was begun, and one, was looked at before"


def test_a_login_that_finds_too_many_waiting_is_told_to_come_again_and_is_no_wrong_password(
    hub: interlock.Hub, looks: Looks
) -> None:
    hub.set({"logins.waiting": 8})
    with ExitStack() as stack:
        strangers = [caller(stack, hub, "127.0.0.2") for _ in range(STRANGERS)]
        for number, stranger in enumerate(strangers):
            auth(stranger, f"guess {number}")
        assert looks.first.wait(20)
        # Eight wait, one is looked at, and the others have been sent away before any look ends.
        while hub.info()["login_refusals"] < STRANGERS - 8 - 1:
            pass
        looks.open.set()
        told = [answer(stranger) for stranger in strangers]
        again = [text for text in told if text.startswith(b"-TRYAGAIN ")]
        wrong = [text for text in told if text.startswith(b"-WRONGPASS ")]
        assert len(again) + len(wrong) == STRANGERS
        assert len(again) >= STRANGERS - 8 - 1, "eight wait, and one is looked at"
        assert hub.info()["login_refusals"] == len(again)
        assert hub.info()["login_failures"] == len(wrong)


def test_a_flood_of_names_does_not_keep_a_user_of_the_same_address_out(
    hub: interlock.Hub, looks: Looks
) -> None:
    hub.set({"logins.waiting": 8})
    with ExitStack() as stack:
        strangers = [caller(stack, hub, "127.0.0.2") for _ in range(STRANGERS)]
        for number, stranger in enumerate(strangers[: STRANGERS // 2]):
            auth(stranger, f"guess {number}", f"name {number}")
        assert looks.first.wait(20)
        mine = caller(stack, hub, "127.0.0.2")
        auth(mine, "secret")
        for number, stranger in enumerate(strangers[STRANGERS // 2 :], STRANGERS // 2):
            auth(stranger, f"guess {number}", f"name {number}")
        asked(hub, STRANGERS + 1)
        while not any(one.password == b"secret" for one in waiting(hub)):
            pass
        while len(waiting(hub)) < STRANGERS // 2:
            pass
        looks.open.set()
        assert answer(mine) == b"+OK\r\n"
        told = {answer(stranger)[:10] for stranger in strangers}
        assert told == {b"-WRONGPASS"}
        assert len(looks.seen) <= 3 * MOST_LOOKS


def test_one_check_answers_all_clients_that_sent_the_same_password(
    hub: interlock.Hub, looks: Looks
) -> None:
    with ExitStack() as stack:
        crowd = [caller(stack, hub, "127.0.0.2") for _ in range(20)]
        auth(crowd[0], "secret")
        assert looks.first.wait(20)
        for one in crowd[1:]:
            auth(one, "secret")
        while sum(len(one.askers) for one in waiting(hub)) < 19:
            pass
        looks.open.set()
        assert {answer(one) for one in crowd} == {b"+OK\r\n"}
        assert len(looks.seen) == 1, "what came while it was looked at is answered with it"


def test_a_flood_of_failures_fills_no_log(
    hub: interlock.Hub, looks: Looks, caplog: pytest.LogCaptureFixture
) -> None:
    looks.open.set()
    hub.set({"log.repeats": 5})
    hub.set({"logins.failures": 0})
    with opened(hub) as client:
        for _ in range(50):
            auth(client, "wrong")
            assert answer(client).startswith(b"-WRONGPASS ")
    hub.stop()
    lines = [r.getMessage() for r in caplog.records if "login failed" in r.getMessage()]
    told = [line for line in lines if "were dropped" not in line]
    summed = [int(line.split()[0]) for line in lines if "were dropped" in line]
    assert len(told) == 5
    assert sum(summed) == 45, "the rest is counted, at the end of the hub at the latest"
    assert all(r.levelno == logging.WARNING for r in caplog.records if "were dropped" in r.message)


class Times:
    """Seconds that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def login(origin: str, password: str, name: str = "app", known: bool = True) -> Login:
    return Login([(0, 0, 0)], origin, name.encode(), password.encode(), known)


def taken(logins: Logins) -> list[tuple[str, str]]:
    """All that can be looked at now, in their order, each found wrong."""
    order = []
    while isinstance(found := logins.next(), Round):
        both = [*found.known, *found.unknown]
        order += [(one.origin, one.password.decode()) for one in both]
        logins.looked(both, right=False, looks=found.looks)
    return order


def test_addresses_take_turns_and_so_do_names_within_one() -> None:
    logins = Logins(waiting=10, failures=0)
    for number in range(3):
        logins.add(login("a", f"a{number}"))
    logins.add(login("a", "other", name="other"))
    logins.add(login("b", "b0"))
    turns = [("a", "a0"), ("a", "other"), ("b", "b0"), ("a", "a1"), ("a", "a2")]
    assert taken(logins) == turns
    assert logins.next() is None
    assert len(logins) == 0


def test_successful_addresses_log_in_first_and_failing_ones_last_and_slowly() -> None:
    times = Times()
    logins = Logins(waiting=10, failures=3, now=times)
    logins.looked([login("good", "secret")], right=True)
    for number in range(5):
        logins.add(login("bad", f"guess {number}"))
    assert taken(logins) == [("bad", f"guess {number}") for number in range(3)]
    pause = logins.next()
    assert isinstance(pause, float)
    assert 0 < pause <= 1
    logins.add(login("new", "n"))
    logins.add(login("good", "g"))
    assert taken(logins) == [("good", "g"), ("new", "n")]
    times.now += pause
    assert taken(logins) == [("bad", "guess 3")], "one in a while"
    times.now += 61
    assert taken(logins) == [("bad", "guess 4")]


@pytest.mark.parametrize("known", [True, False])
def test_passwords_waiting_for_one_name_at_an_address_are_limited(known: bool) -> None:
    logins = Logins(waiting=4, failures=0)
    for number in range(4):
        assert not logins.add(login("a", str(number), known=known))
    assert not logins.add(login("a", "0", known=known)), "it shares a look that waits already"
    (away,) = logins.add(login("a", "one more", known=known))
    assert away.password == b"one more"
    assert not logins.add(login("a", "right", name="other")), "another name has a place"
    assert not logins.add(login("b", "b"))


def test_unknown_names_share_their_checks_and_delay_no_user() -> None:
    times = Times()
    logins = Logins(waiting=4, failures=1, now=times)
    logins.looked([login("a", "guess")], right=False)
    for number in range(500):
        assert not logins.add(login("a", "guess", name=f"name {number}", known=False))
    assert not logins.add(login("a", "secret"))
    for number in range(500, 900):
        assert not logins.add(login("a", "guess", name=f"name {number}", known=False))
    pause = logins.next()
    assert isinstance(pause, float) and pause <= 1
    times.now += pause
    found = logins.next()
    assert isinstance(found, Round)
    assert ([one.password for one in found.known], len(found.unknown)) == ([b"secret"], 900)
    assert found.looks == MOST_LOOKS
    logins.looked(found.unknown, right=False, looks=found.looks)
    logins.add(login("a", "more"))
    assert logins.next() == pytest.approx(MOST_LOOKS * pause), "a look is as rare as ever"


@pytest.mark.parametrize("users", [{"n1", "n2"}, {"n0"}, set(), {f"n{n}" for n in range(9)}])
def test_the_cost_of_a_round_does_not_reveal_which_names_exist(users: set[str]) -> None:
    logins = Logins(waiting=4, failures=0)
    for number in range(3):
        logins.add(login("a", "guess", name=f"n{number}", known=f"n{number}" in users))
    found = logins.next()
    assert isinstance(found, Round) and found.looks == 3
    for number in range(9):
        logins.add(login("a", "guess", name=f"n{number}", known=f"n{number}" in users))
    found = logins.next()
    assert isinstance(found, Round) and found.looks == MOST_LOOKS


def test_passwords_beyond_the_limit_of_a_round_wait_for_the_next() -> None:
    logins = Logins(waiting=4, failures=0)
    for number in range(MOST_LOOKS + 1):
        logins.add(login("a", "guess", name=f"user {number}"))
    logins.add(login("a", "guess", name="nobody", known=False))
    found = logins.next()
    assert isinstance(found, Round)
    assert (len(found.known), found.unknown) == (MOST_LOOKS, [])
    found = logins.next()
    assert isinstance(found, Round)
    assert (len(found.known), len(found.unknown)) == (1, 1)


def test_a_flood_of_names_at_one_address_drops_no_user_who_shares_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("interlock.hub.serve.logins.MOST_WAITING", 20)
    logins = Logins(waiting=10, failures=0)
    logins.add(login("a", "secret"))
    away = [
        one
        for number in range(100)
        for one in logins.add(login("a", "guess", name=f"name {number}", known=False))
    ]
    assert len(away) == 81 and not any(one.known for one in away)


def test_a_crowd_of_addresses_displaces_only_its_own_logins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("interlock.hub.serve.logins.MOST_WAITING", 20)
    logins = Logins(waiting=10, failures=0)
    logins.looked([login("good", "secret")], right=True)
    away = [one for n in range(30) for one in logins.add(login(f"crowd {n}", "guess"))]
    away += logins.add(login("good", "g"))
    assert len(away) == 11
    assert all(one.origin.startswith("crowd") for one in away)
    assert taken(logins)[0] == ("good", "g")


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("[2001:db8::1]", "2001:db8::/64"),
        ("[2001:db8::ffff:1]", "2001:db8::/64"),
        ("[::ffff:10.0.0.1]", "10.0.0.1"),
        ("/run/hub.sock", "/run/hub.sock"),
    ],
)
def test_the_origin_of_an_ipv6_address_is_its_network(host: str, origin: str) -> None:
    assert origin_of(host) == origin
