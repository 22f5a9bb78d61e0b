"""Leader election: one leader at a time, by whatever its process or its engine goes through."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock import Client, CurrentLeader, LeaseLost, ShutDown
from tests.hub.servers import redis_server

PATIENCE = 40.0
LONG = 600.0
"""Nothing may wait for a lease of that to run out."""
SHORT = 2.0
# Prints the requested values, line by line.
CAMPAIGNER = """
import sys, interlock
client = interlock.connect(sys.argv[1])
leader = client.leader(sys.argv[2], ttl=float(sys.argv[3]), identity="child")
term = leader.campaign()
print(term.token, flush=True)
for _ in sys.stdin:
    print(term.is_held, term.lost.is_set(), flush=True)
"""


@pytest.fixture(params=["memory", "redis", "hub"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "memory":
        return f"memory://leader-{os.getpid()}-{id(request)}"
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name.replace('{', '')}-{time.monotonic_ns()}"


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with interlock.connect(url) as opened:
        yield opened


def eventually(found: Callable[[], Any]) -> Any:
    until = time.monotonic() + PATIENCE
    while not (value := found()):
        assert time.monotonic() < until
        time.sleep(0.005)
    return value


@contextmanager
def campaigner(url: str, name: str, ttl: float) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that is the leader, and its token."""
    process = subprocess.Popen(
        [sys.executable, "-c", CAMPAIGNER, url, name, str(ttl)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stdin is not None
    try:
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def looked(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None and process.stdin is not None
    process.stdin.write("look\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def test_only_one_of_many_campaigners_leads_at_a_time(url: str, name: str) -> None:
    inside, tokens, guard = [0], list[int](), threading.Lock()

    def campaigns(identity: str) -> None:
        with interlock.connect(url) as own:
            leader = own.leader(name, ttl=LONG, identity=identity)
            for _ in range(5):
                with leader.campaign(PATIENCE) as term:
                    with guard:
                        inside[0] += 1
                        assert inside[0] == 1
                        tokens.append(term.token)
                    now = leader.current()
                    assert now is not None
                    assert (now.identity, now.token) == (identity, term.token)
                    assert abs(now.since - time.time()) < PATIENCE
                    term.check()
                    with guard:
                        inside[0] -= 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(campaigns, "abcd"))
    assert len(tokens) == 20
    assert tokens == sorted(set(tokens))


def test_a_resigned_leader_is_replaced_at_once(client: Client, url: str, name: str) -> None:
    with interlock.connect(url) as other, ThreadPoolExecutor(1) as pool:
        first, second = (one.leader(name, ttl=LONG) for one in (client, other))
        term = first.campaign()
        with pytest.raises(TimeoutError, match="another was the leader"):
            second.campaign(timeout=0)
        waits = pool.submit(second.campaign)
        for way in ("term", "leader", "term"):
            assert term.is_held and not term.lost.is_set() and not term.lost.wait(0)
            (first if way == "leader" else term).resign()
            assert not term.is_held and term.lost.wait(PATIENCE)
            with pytest.raises(LeaseLost, match=str(term.token)):
                term.check()
            after = waits.result(PATIENCE)
            assert after.token > term.token
            # It resigns again in vain: the next term is not its.
            term.resign()
            assert after.is_held
            waits = pool.submit(first.campaign)
            after.resign()
            term = waits.result(PATIENCE)
            waits = pool.submit(second.campaign)
        term.resign()
        waits.result(PATIENCE).resign()


def test_a_block_that_raises_ends_the_term(client: Client, name: str) -> None:
    leader = client.leader(name, ttl=LONG)
    with pytest.raises(ZeroDivisionError), leader.campaign():
        raise ZeroDivisionError
    leader.campaign(PATIENCE).resign()
    assert leader.current() is None


def test_a_leadership_is_renewed_while_it_is_held(client: Client, name: str) -> None:
    leader = client.leader(name, ttl=3)
    other = client.leader(name, ttl=3)
    with leader.campaign() as term:
        first = term._lease._grant.deadline
        eventually(lambda: term._lease._grant.deadline > first + 0.9)
        with pytest.raises(TimeoutError):
            other.campaign(timeout=0.01)
        assert term.is_held


def test_the_leader_is_none_if_there_is_no_leader(client: Client, name: str) -> None:
    leader = client.leader(name, identity="who")
    assert leader.current() is None
    with leader.campaign() as term:
        now = leader.current()
        assert now == CurrentLeader("who", term.token, now.since if now else 0)
    assert leader.current() is None


def test_a_killed_leader_is_replaced_when_its_lease_expires(redis_url: str, name: str) -> None:
    with interlock.connect(redis_url) as client:
        leader = client.leader(name, ttl=SHORT, identity="next")
        with campaigner(redis_url, name, SHORT) as (process, token):
            now = eventually(leader.current)
            assert (now.identity, now.token) == ("child", token)
            process.kill()
            with leader.campaign(PATIENCE) as term:
                assert term.token > token
                now = leader.current()
                assert now is not None and now.identity == "next"


def test_a_frozen_leader_notices_its_lost_term_when_it_resumes(redis_url: str, name: str) -> None:
    with interlock.connect(redis_url) as client:
        leader = client.leader(name, ttl=LONG)
        with campaigner(redis_url, name, SHORT) as (process, token):
            assert looked(process) == "True False"
            process.send_signal(signal.SIGSTOP)
            term = leader.campaign(PATIENCE)
            process.send_signal(signal.SIGCONT)
            assert looked(process) == "False True"
            assert term.token > token and term.is_held
            now = leader.current()
            assert now is not None and now.token == term.token
            term.resign()


def test_an_announcement_of_an_ended_term_is_ignored(redis_url: str, name: str) -> None:
    with interlock.connect(redis_url) as client:
        leader = client.leader(name, ttl=SHORT)
        with campaigner(redis_url, name, SHORT) as (process, _):
            eventually(leader.current)
            process.kill()
            eventually(lambda: leader.current() is None)
        # Another was elected, and has not said so yet; the first one's words are still there.
        lease = leader._queue.get(timeout=PATIENCE, kind="keyed")
        assert len(leader._queue.messages()) == 2
        assert leader.current() is None
        lease.nack(delay=0)


def test_the_term_ends_by_the_local_clock_if_the_engine_is_silent(tmp_path: Path) -> None:
    with redis_server(tmp_path) as (host, port), interlock.connect(f"redis://{host}:{port}") as own:
        leader = own.leader("x", ttl=SHORT)
        term = leader.campaign()
        with frozen(port):
            assert term.lost.wait(PATIENCE)
            assert not term.is_held
            # In vain, and in a bounded time.
            term.resign()
            with pytest.raises(interlock.EngineUnavailable):
                leader.campaign(timeout=0.2)
        # An ended term stays ended, whatever the engine answers.
        assert not term.is_held
        after = leader.campaign(PATIENCE)
        assert after.token > term.token and after.is_held and not term.is_held
        after.resign()


@contextmanager
def frozen(port: int) -> Iterator[None]:
    import redis

    with redis.Redis(port=port) as asked:
        info: Any = asked.info("server")
        pid = int(info["process_id"])
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.watchdog(120)
def test_an_engine_that_lost_its_data_elects_a_new_leader(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        with redis_server(tmp_path) as (host, port):
            url = f"redis://{host}:{port}"
            first, second = interlock.connect(url), interlock.connect(url)
            term = first.leader("x", ttl=SHORT).campaign()
            token = term.token
            waits = pool.submit(second.leader("x", ttl=SHORT).campaign)
        assert not waits.done() or not term.is_held
        with redis_server(tmp_path, wanted=port):
            after = waits.result(PATIENCE)
            assert after.token > token
            assert term.lost.wait(PATIENCE)
            assert after.is_held
            after.resign()
            first.close()
            second.close()


def test_an_operator_may_end_a_term(client: Client, name: str) -> None:
    leader = client.leader(name, ttl=LONG)
    with ThreadPoolExecutor(1) as pool:
        term = leader.campaign()
        waits = pool.submit(term.lost.wait, PATIENCE)
        (lock,) = client.queue(f"leader:{name}").messages(state="leased")
        assert client.queue(f"leader:{name}").revoke(lock.id)
        after = leader.campaign(PATIENCE)
        assert after.token > term.token
        after.resign()
        # Nothing renews so seldom a lease: it learns this from the answer to its own renewal.
        term.resign()
        assert waits.result(PATIENCE)


def test_a_purged_leader_lock_is_created_again(client: Client, name: str) -> None:
    leader = client.leader(name, ttl=LONG)
    token = 0
    for _ in range(2):
        with leader.campaign(PATIENCE) as term:
            assert term.token > token
            token = term.token
        assert client.queue(f"leader:{name}").purge() == 2


def test_many_terms_leave_no_data_behind(client: Client, name: str) -> None:
    leader = client.leader(name, ttl=LONG)
    queue = client.queue(f"leader:{name}")
    for n in range(30):
        with leader.campaign(PATIENCE):
            (lock,) = queue.messages(state="leased")
            # Lost by an operator's hand too.
            assert n % 3 or queue.revoke(lock.id)
    assert len(queue.messages()) == 2
    stats = queue.stats()
    assert (stats.dead, stats.dead_lettered, stats.held, stats.backing_off) == (0, 0, 0, 0)


def test_a_child_of_a_fork_does_not_lead(redis_url: str, name: str) -> None:
    with (
        interlock.connect(redis_url) as client,
        client.leader(name, ttl=LONG).campaign() as term,
    ):
        child = os.fork()
        if child == 0:
            wrong = term.is_held
            term.resign()
            os._exit(int(wrong))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert term.is_held
        now = client.leader(name).current()
        assert now is not None and now.token == term.token


@pytest.mark.parametrize("closes", ["client", "leader"])
def test_closing_ends_a_campaign_and_a_term(url: str, name: str, closes: str) -> None:
    with interlock.connect(url) as first, interlock.connect(url) as second:
        leader, other = first.leader(name, ttl=LONG), second.leader(name, ttl=LONG)
        with ThreadPoolExecutor(2) as pool:
            term = leader.campaign()
            waits = pool.submit(other.campaign)
            waits_here = pool.submit(leader.campaign)
            eventually(lambda: first.queue(f"leader:{name}").stats().deduplicated >= 2)
            (first if closes == "client" else leader).close()
            assert not term.is_held
            with pytest.raises(ShutDown):
                waits_here.result(PATIENCE)
            waits.result(PATIENCE).resign()


def test_a_leader_keeps_its_client(url: str, name: str) -> None:
    leader = interlock.connect(url).leader(name)
    with leader.campaign(PATIENCE) as term:
        assert term.is_held
    leader.close()


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"name": ""}, ValueError, "name"),
        ({"name": "a{b}"}, ValueError, "braces"),
        ({"name": "x" * 257}, ValueError, "256 bytes"),
        ({"name": 5}, TypeError, "name is int"),
        ({"name": "x", "ttl": 0}, ValueError, "ttl is 0"),
        ({"name": "x", "ttl": "3"}, TypeError, "ttl is str"),
        ({"name": "x", "identity": ""}, ValueError, "identity"),
    ],
)
def test_invalid_arguments_of_leader_are_refused(
    given: dict[str, Any], error: type[Exception], says: str
) -> None:
    with interlock.connect("memory://") as client, pytest.raises(error, match=says):
        client.leader(**given)
