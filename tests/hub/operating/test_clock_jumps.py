"""All that goes by time on a hub whose clock is set: for a moment and for good, on and back."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import redis

from interlock import connect
from interlock.app import App
from tests.engine.calls import Handed, Queue, message
from tests.hub.operating.clocks import SetClock
from tests.hub.servers import HubProcess, hub_process
from tests.worker.workers import wait_for

DAYS = 10 * 86_400
LONG = 3_600_000_000


@pytest.fixture
def clock(tmp_path: Path) -> SetClock:
    return SetClock(tmp_path)


@pytest.fixture
def hub(clock: SetClock, tmp_path: Path) -> Iterator[HubProcess]:
    config = tmp_path / "hub.toml"
    config.write_text(
        f'[queues]\njournal = "{tmp_path}/journal"\n'
        f'[[store]]\nname = "s"\npath = "{tmp_path}/kept/[topic]/[date].log"\nack = "disk"\n'
        'rotate = "4KB"\nkeep = "1d"\n[[table]]\nname = "rows"\ncolumns = "a:U64"\n'
        f'path = "{tmp_path}/rows"\n'
    )
    with hub_process("--config", str(config), environment=clock.environment) as hub:
        yield hub


def ahead(server: redis.Redis) -> float:
    """Return by how much the time that a hub uses for dates is ahead of this machine's."""
    seconds, part = server.time()
    return float(seconds + part / 1e6 - time.time())


@pytest.mark.share(2)
@pytest.mark.watchdog(150)
def test_dates_follow_a_clock_that_is_set_for_good_and_nothing_else_does(
    clock: SetClock, hub: HubProcess, tmp_path: Path
) -> None:
    url = f"interlock://127.0.0.1:{hub.port}"
    server = redis.Redis(port=hub.port)
    queue, lost, dead = Queue(server, "q"), Queue(server, "lost"), Queue(server, "dead")

    def today() -> str:
        return f"{dt.datetime.fromtimestamp(time.time() + clock.ahead, dt.UTC):%Y-%m-%d}.log"

    def set_for_good(seconds: float) -> None:
        clock.set(seconds)
        wait_for(lambda: abs(ahead(server) - seconds) < 2, "the clock is not followed")

    def unhurt() -> None:
        assert live.lost is False
        stats = queue.stats()
        assert (stats["leased"], stats["delayed"]) == (1, 1)
        assert dead.put(message("looks at the dead letter")) and dead.stats()["dead"] == 1
        assert queue.put(message("again", dedup="known")) == [first]
        assert remote.result(done) == "kept"
        assert server.hget("rows:short", "a") == server.hget("rows:until", "a") == b"1"
        found: Any = server.xrange("topic")
        assert server.xlen("topic") == len(found) == published

    ticks: list[int] = []
    app = App(url)

    @app.every(1, args=lambda when: [int(when.timestamp())])
    @app.task
    def look(at: int) -> None:
        ticks.append(at)

    with connect(url) as client, app, app.worker(threads=1):
        # Waits that last longer than the test: a lease that is renewed and one that is long, a
        # delay, the window of a dedup string, a result, rows that expire.
        live_queue = client.queue("live", lease=4)
        live_queue.put("x")
        live = live_queue.get(timeout=30)
        remote = client.queue("results")
        done = remote.put("x", result_ttl=3600)
        remote.get(timeout=30).ack(result="kept")
        (first,) = queue.put(message("x", dedup="known"))
        queue.ack_all(queue.lease().messages)
        queue.put(message("held"), message("later", delay=LONG))
        held = queue.lease(duration=LONG).messages
        server.hset("rows:short", "a", 1)
        server.expire("rows:short", 3600)
        dead.call("configure", "DEAD_TTL", LONG)
        dead.put(message("x"))
        dead.settle(dead.lease().messages[0].reject())
        # Waits that end within it: the lease of a consumer that has stopped.
        lost.put(message("lost"))
        assert len(lost.lease(duration=6_000_000).messages) == 1

        published = 100
        for number in range(published):
            server.publish("topic", f"{number:0100}")
        files = set((tmp_path / "kept/topic").glob("*.log"))
        assert len(files) > 2
        wait_for(lambda: len(ticks) > 0, "no tick")

        # For a moment.
        clock.set(DAYS)
        server.hset("rows:until", "a", 1)
        server.expireat("rows:until", int(time.time()) + 3600)
        time_to_expire = server.ttl("rows:until")
        assert 3590 < time_to_expire <= 3600
        for _ in range(3):
            server.publish("topic", "in between")
            published += 1
            assert abs(ahead(server)) < 2
            unhurt()
        before = len(ticks)
        wait_for(lambda: len(ticks) >= before + 2, "the ticks did not go on")
        assert max(ticks) < time.time() + 60
        assert float(server.info()["clock_distrusted_seconds"]) == pytest.approx(DAYS, abs=2)
        clock.set(-DAYS)
        server.publish("topic", "from the past")
        published += 1
        unhurt()
        before = len(ticks)
        wait_for(lambda: len(ticks) >= before + 2, "the ticks did not go on")
        assert min(ticks) > time.time() - 60
        clock.set(0)
        server.publish("topic", "right again")
        published += 1
        unhurt()
        assert server.info()["clock_distrusted_seconds"] == 0
        before = len(ticks)
        wait_for(lambda: len(ticks) >= before + 2, "the ticks did not go on")
        assert max(ticks) < time.time() + 60

        # For good, ten days on: dates follow, and nothing goes though all is ten days old.
        set_for_good(DAYS)
        server.publish("topic", "in ten days")
        published += 1
        unhurt()
        assert f"{today()}" in {path.name for path in (tmp_path / "kept/topic").glob("*.log")}
        assert files <= set((tmp_path / "kept/topic").glob("*.log"))
        # A lease ran out, and for the first time: no attempt is counted.
        again = leased_again(lost)
        assert (again.attempt, lost.stats()["leases_expired"]) == (1, 1)
        wait_for(lambda: max(ticks) > time.time() + DAYS - 60, "the timetable did not follow")

        # For good, to before the start: new files have the true date, positions still rise.
        set_for_good(-7200)
        lost.put(message("lost later"))
        assert len(lost.lease(duration=1_000_000).messages) == 1
        for topic in ("topic", "another"):
            server.publish(topic, "before the start")
            names = {path.name for path in (tmp_path / "kept" / topic).glob("*.log")}
            assert today() in names, names
        published += 1
        unhurt()
        found: Any = server.xrange("topic")
        positions = [tuple(map(int, at.split(b"-"))) for at, _ in found]
        assert positions == sorted(positions)
        again = leased_again(lost)
        assert (again.attempt, lost.stats()["leases_expired"]) == (1, 2)
        before = len(ticks)
        wait_for(lambda: len(ticks) >= before + 2, "the timetable did not follow")
        assert all(abs(tick - time.time() + 7200) < 60 for tick in ticks[before + 1 :])
        assert len(set(ticks)) == len(ticks)
        live.ack()
        queue.ack_all(held)
        info = server.info()
        assert (info["clock_jumps"], info["clock_stable"]) == (4, 0)
    _, _, logged = hub.end()
    for line in (
        "the system clock jumped by +864000", "was set back to the time before the jump (+86",
        "dates and timetables follow the jump of +864000", "follow the jump of -871",
    ):  # fmt: skip
        assert line in logged, logged


@pytest.mark.share(2)
def test_a_restart_under_a_wrong_clock_ends_nothing_early_nor_late(
    clock: SetClock, tmp_path: Path
) -> None:
    flags = ("--journal", str(tmp_path / "journal"))

    def started() -> AbstractContextManager[HubProcess]:
        return hub_process(*flags, environment=clock.environment)

    clock.set(-DAYS)  # it starts before its machine knows the time
    with started() as hub, connect(f"interlock://127.0.0.1:{hub.port}") as client:
        queue = Queue(client_of(hub))
        results = client.queue("results")
        done = results.put("x", result_ttl=3600)
        results.get(timeout=30).ack(result="kept")
        (first,) = queue.put(message("x", dedup="known"))
        queue.ack_all(queue.lease().messages)
        queue.put(message("held"), message("later", delay=LONG))
        (held,) = queue.lease(duration=LONG).messages
        hub.process.kill()
    for ahead_by in (0, DAYS, -DAYS):
        clock.set(ahead_by)
        with started() as hub, connect(f"interlock://127.0.0.1:{hub.port}") as client:
            server = client_of(hub)
            queue = Queue(server)
            stats = queue.stats()
            assert (stats["leased"], stats["delayed"]) == (1, 1)
            assert queue.put(message("again", dedup="known")) == [first]
            assert client.queue("results").result(done) == "kept"
            # It is ten days behind the true time, as before.
            away = server.info()["journal_clock_ahead_seconds"]
            assert away == pytest.approx(-DAYS - ahead_by, abs=60)
            queue.put(message("short"))
            (short,) = queue.lease(duration=1_000_000).messages
            again = leased_again(queue)
            # The first lease of a message to run out counts no attempt.
            assert (again.id, again.attempt) == (short.id, 1)
            assert queue.stats()["leases_expired"] == stats["leases_expired"] + 1
            queue.ack_all([again])
            hub.end()
    with started() as hub:
        queue = Queue(client_of(hub))
        queue.ack_all([held])


def leased_again(queue: Queue) -> Handed:
    found: list[Handed] = []

    def look() -> bool:
        found.extend(queue.lease().messages)
        return bool(found)

    wait_for(look, "it is kept")
    return found[0]


def client_of(hub: HubProcess) -> redis.Redis:
    return redis.Redis(port=hub.port)
