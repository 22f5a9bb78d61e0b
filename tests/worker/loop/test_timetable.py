"""Each tick of a timetable once: real workers, in real time, killed, with clocks that are set."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import uuid
from pathlib import Path

import pytest
import redis

from interlock import current_lease
from interlock.app import App
from interlock.app.timetable import keeper as keepers
from interlock.app.timetable.keeper import Keeper
from interlock.cli import main
from interlock.client.lua.library import Library
from tests.hub.servers import redis_server
from tests.worker.apps import clocked
from tests.worker.workers import Workers, wait_for

ENGINES = os.environ.get("INTERLOCK_TIMETABLE_ENGINES", "redis").split(",")
"""Engines of the long test: "redis,hub" for both."""
LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
CLOCKED = "tests.worker.apps.clocked:app"


def faked(offset: Path) -> dict[str, str]:
    """The environment in which a process has a clock that goes by what a file says."""
    if not LIBRARIES:
        assert os.environ.get("CI") != "1", "libfaketime is missing"
        pytest.skip("libfaketime is missing")
    return {
        "LD_PRELOAD": str(LIBRARIES[0]),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


@pytest.mark.share(2)
@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_each_tick_once_over_kills_and_clocks_that_are_set(
    app: App, workers: Workers, tmp_path: Path
) -> None:
    offset = tmp_path / "offset"
    offset.write_text("-3h\n")
    flags = ("--lease", "1", "--concurrency", "2")
    wrong = workers.start(*flags, app=CLOCKED, **faked(offset)).ready()
    rest = workers.start("--no-timetable", app=CLOCKED)
    dying = [workers.start(*flags, app=CLOCKED, DIES=where) for where in ("before", "after")]
    for worker in dying:
        worker.ready()
    done = "select number, count(distinct token) from done group by number order by number"
    for index, worker in enumerate(dying):
        assert worker.ended() < 0
        offset.write_text(("+2d\n", "-1h\n")[index])
    before = len(workers.rows(done))
    wait_for(lambda: len(workers.rows(done)) >= before + 3, "the ticks have ended")
    # Not asked to end: to wait for a time is not reliable under a clock that is made up.
    wrong.signal(signal.SIGKILL)
    wrong.ended()
    for path in Path("/dev/shm").glob(f"*faketime_*_{wrong.process.pid}"):
        # A lock may be held in there, and process ids are reused.
        path.unlink()
    wait_for(lambda: app._queue("default").stats().unsettled == 0, "something is left")
    assert rest.stopped() == 0
    ticks = [row[0] for row in workers.rows(done)]
    first, last = int(str(ticks[0])), int(str(ticks[-1]))
    assert ticks == list(range(first, last + 1)), "none is missing"
    # A handler that was killed ran twice; its call was sent once.
    assert app._queue("default").stats().puts == len(ticks)
    assert abs(time.time() - last) < 60, "by the engine's clock"


@pytest.mark.parametrize("engine", ["memory", "redis", "hub"], indirect=True)
def test_workers_of_one_process_share_the_ticks(app: App) -> None:
    seen: list[tuple[int, int]] = []
    there = threading.Event()

    @app.every(1, args=lambda when: [int(when.timestamp())])
    @app.task
    def look(at: int) -> None:
        seen.append((at, current_lease().id))
        if len(seen) >= 2:
            there.set()

    with app.worker(threads=1, timetable=False) as worker:
        assert worker.wait_until_ready(30)
        assert app._queue("default:timetable").stats().puts == 0
    with app.worker(threads=1), app.worker(threads=1):
        assert there.wait(40)
    ticks = [at for at, _ in seen]
    assert len(ticks) == len(set(ticks))


@pytest.mark.parametrize("engine", ["memory", "redis", "hub"], indirect=True)
def test_an_entry_stored_while_workers_run_is_served_until_it_is_removed(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    from interlock.app.timetable import runner

    seen: list[str] = []

    @app.task
    def look(at: str) -> None:
        seen.append(at)

    # Both look at once, for the change is made in their process, and then by themselves.
    monkeypatch.setattr(runner, "AGAIN", 0.1)
    with app.worker(threads=1) as worker, app.worker(threads=1):
        assert worker.wait_until_ready(30)
        timers = app._queue("default:timetable")
        assert not timers.drop(), "without an entry it costs no queue"
        assert app.timetable.add("a", look, every=1, args=["a"])
        wait_for(lambda: len(seen) >= 2, "no tick")
        app.timetable.change("a", look, every=1, args=["b"])
        wait_for(lambda: "b" in seen, "it did not change")
        assert app.timetable.remove("a")
        wait_for(lambda: timers.stats().unsettled == 0, "it was not removed")
    assert sorted(seen) == seen, "the old one ended"


def test_a_timetable_outlives_its_engine(
    app: App, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from interlock.app.timetable import runner

    monkeypatch.setattr(runner, "LOOK", 0.1)
    seen: list[int] = []

    @app.every(1, args=lambda when: [int(when.timestamp())])
    @app.task
    def look(at: int) -> None:
        seen.append(at)

    with app.worker(threads=1):
        wait_for(lambda: len(seen) >= 1, "no tick")
        # As after a restart of one that stores nothing.
        app._queue("default:timetable").drop(force=True)
        before = len(seen)
        wait_for(lambda: len(seen) >= before + 2, "the timers did not come back")
    assert len(seen) == len(set(seen))


def test_entries_of_a_queue_that_the_app_has_no_more_are_named_listed_and_removed(
    app: App, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interlock(*words: str) -> tuple[int, str, str]:
        code = main(("cron", *words))
        said = capsys.readouterr()
        return code, said.out, said.err

    monkeypatch.setattr(clocked.app, "url", app.url)
    earlier, queue = App(app.url), f"gone{uuid.uuid4().hex}"
    try:
        task = earlier.task(name="report", queue=queue)(lambda: None)
        earlier.timetable.add("daily", task, every="1d")
        assert queue in app.timetable.other_queues()
        assert queue not in earlier.timetable.other_queues()
        code, out, err = interlock("list", CLOCKED)
        assert code == 0 and "daily" not in out
        assert f"entries are stored for queue {queue}, on which {CLOCKED} has no task" in err
        code, out, err = interlock("list", CLOCKED, "--queue", queue, "--json")
        told = json.loads(out)
        assert (told["name"], told["task"], told["queue"]) == ("daily", "report", queue)
        code, _, err = interlock("remove", CLOCKED, "daily")
        assert code == 2 and "no stored entry 'daily'" in err
        code, _, err = interlock("remove", CLOCKED, "weekly", "--queue", queue)
        assert code == 2 and f"no stored entry 'weekly' for queue {queue}" in err
        assert interlock("remove", CLOCKED, "daily", "--queue", queue)[0] == 0
        assert interlock("list", CLOCKED, "--queue", queue)[1].startswith("no entry is stored for")
        assert queue not in interlock("list", CLOCKED)[2]
        assert earlier.timetable.stored() == []
    finally:
        earlier._queue(f"{queue}:timetable").drop(force=True)
        earlier.close()


def test_the_command_shows_and_runs_a_timetable(
    app: App, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interlock(*words: str) -> tuple[int, str, str]:
        code = main(words)
        said = capsys.readouterr()
        clocked.app.url = None
        return code, said.out, said.err

    code, out, err = interlock("cron", "list", CLOCKED)
    assert code == 0 and "every 1s" in out and "last tick" in out, err
    told = json.loads(interlock("cron", "list", CLOCKED, "--json")[1])
    assert (told["name"], told["queue"], told["missed"]) == ("tick", "default", "all")
    assert told["last"] is None and told["next"] is None, "no worker ran yet"
    Keeper("default", clocked.app.timetable, app._open).plan()
    assert json.loads(interlock("cron", "list", CLOCKED, "--json")[1])["next"].startswith("20")
    _, out, _ = interlock("cron", "next", CLOCKED, "tick", "--count", "3", "--json")
    times = [json.loads(line)["time"] for line in out.splitlines()]
    assert times == [times[0], times[0] + 1, times[0] + 2]
    _, out, _ = interlock("cron", "run", CLOCKED, "tick", "--json")
    assert [one.id for one in app._queue("default").messages()] == [json.loads(out)["id"]]
    code, _, err = interlock("cron", "run", CLOCKED, "tock")
    assert code == 2 and "allowed: tick" in err
    hourly = (CLOCKED, "hourly", "--task", "tick", "--args", "[7]", "--copies", "2", "--every")
    assert interlock("cron", "add", *hourly, "1h")[0] == 0
    told = json.loads(interlock("cron", "list", CLOCKED, "--json")[1].splitlines()[1])
    assert (told["name"], told["args"], told["kwargs"], told["copies"]) == ("hourly", [7], {}, 2)
    code, _, err = interlock("cron", "add", *hourly, "2h")
    assert code == 2 and err.startswith("interlock: there is an entry 'hourly' (every 1h, task")
    assert interlock("cron", "remove", CLOCKED, "hourly")[0] == 0
    code, _, err = interlock("cron", "add", CLOCKED, "hourly", "--task", "tick")
    assert code == 2 and "the schedule is missing or given twice; allowed: --cron or" in err
    code, out, err = interlock("cron", "list", CLOCKED, "--url", "redis://127.0.0.1:1?timeout=0.5")
    assert code == 1 and "every 1s" in out and "cannot read which ticks were fired" in err
    monkeypatch.delenv("INTERLOCK_URL")
    entry = ("tick", "--task", "tick", "--every", "1h")
    for words in (("run", "tick"), ("add", *entry), ("change", *entry), ("remove", "tick")):
        code, out, err = interlock("cron", words[0], CLOCKED, *words[1:])
        assert (code, out) == (2, "") and "give --url" in err


def test_a_look_at_a_stored_timer_on_redis_costs_the_same_however_many_entries_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with redis_server(tmp_path) as (_, port), redis.Redis(port=port) as server:

        def commands() -> int:
            told = server.info("commandstats").values()
            return sum(one["calls"] for one in told if isinstance(one, dict))

        def of_ten_looks(entries: int) -> int:
            """Return the commands of ten looks at a timer, while this number of others sleeps."""
            app = App(f"redis://127.0.0.1:{port}")
            task = app.task(name="report", queue=f"among {entries}")(lambda: None)
            keeper = Keeper(f"among {entries}", {}, app._open, tasks=app.tasks)
            for number in range(entries):
                app.timetable.add(str(number), task, every="1d")
                assert keeper.step(time.monotonic() + 40)
            with monkeypatch.context() as patch, app:
                # Otherwise it is looked at once a minute.
                patch.setattr(keepers, "LONGEST_SLEEP", 0.0)
                app.timetable.add("looked at", task, every="1d")
                assert keeper.step(time.monotonic() + 40)
                before = commands()
                for _ in range(10):
                    assert keeper.step(time.monotonic() + 40)
                return commands() - before

        assert of_ten_looks(50) < 1.5 * of_ten_looks(0)


STORED = ("--appendonly", "yes", "--appendfsync", "always")


def ticking(app: App, seen: list[int]) -> None:
    @app.every(1, missed="all", args=lambda when: [int(when.timestamp())])
    @app.task
    def look(at: int) -> None:
        seen.append(at)


def test_ticks_go_on_where_an_engine_was_that_is_started_again(tmp_path: Path) -> None:
    seen: list[int] = []
    app = App(send_timeout=3)
    ticking(app, seen)
    with redis_server(tmp_path, *STORED) as (_, port):
        app.url = f"redis://127.0.0.1:{port}?timeout=3"
        workers = [app.worker(threads=1).start() for _ in range(2)]
        wait_for(lambda: len(seen) >= 1, "no tick")
    last = seen[-1]
    # No engine: the ticks of this time are missed, and made up for.
    wait_for(lambda: time.time() > last + 2, "the time stands still")
    with redis_server(tmp_path, *STORED, wanted=port):
        wait_for(lambda: max(seen) > last + 2 and none_is_missing(seen), "a tick is missing")
        assert all(worker.stop(30) for worker in workers)
    app.close()


def none_is_missing(seen: list[int]) -> bool:
    """Return whether there is each tick from the first to the last.

    For a moment one may be missing that another worker handles, or that is handled again because
    its acknowledgement was lost.
    """
    found = set(seen)
    return len(found) == max(found) - min(found) + 1


CLOCK = """
local function now_of(q)
  local time = redis_call('TIME')
  return time[1] * 1000000 + time[2] + (tonumber(redis_call('GET', q.clock) or 0))
end
"""
"""The server's clock, as far ahead as a key of the queue says."""


@pytest.mark.share(2)
@pytest.mark.watchdog(150)
def test_no_tick_comes_twice_where_the_clock_of_the_engine_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from interlock.app.timetable import runner

    # Whether a timer is missing is looked at again and again, whatever the time is.
    monkeypatch.setattr(runner, "LOOK", 0.2)
    seen: list[int] = []
    with (
        redis_server(tmp_path) as (_, port),
        redis.Redis(port=port) as server,
        App(f"redis://127.0.0.1:{port}") as app,
    ):
        ticking(app, seen)

        def ahead(seconds: int, px: int | None = None) -> None:
            for queue in ("default", "default:timetable"):
                server.set(f"il:{{{queue}}}:clock", seconds * 1_000_000, px=px)

        app._open("default")
        app._client._engine.library = Library(instead={"clock": CLOCK})
        with app.worker(threads=1), app.worker(threads=1):
            wait_for(lambda: len(seen) >= 2, "no tick")
            before = max(seen)
            ahead(-3)
            wait_for(lambda: max(seen) >= before + 2, "the ticks did not go on")
            # For a moment, and with timers put meanwhile that wait for days by the server's clock.
            # The server itself ends it: after ten seconds dates would follow.
            ahead(864_000, px=4000)
            before = max(seen)
            wait_for(lambda: max(seen) >= before + 2, "the ticks did not go on")
            wait_for(lambda: not server.exists("il:{default}:clock"), "it does not end")
            ahead(0)
            before = max(seen)
            wait_for(lambda: max(seen) >= before + 2, "the ticks did not go on")
            assert max(seen) < time.time() + 60
            before = max(seen)
            ahead(200)
            wait_for(
                lambda: max(seen) >= before + 200 and none_is_missing(seen),
                "what lay between was not made up for",
            )
    # At a jump of days leases run out and dedup strings are forgotten: that tick may come twice.
    assert len(seen) <= len(set(seen)) + 6


def test_nothing_expires_early_where_the_clock_of_the_engine_was_ahead(tmp_path: Path) -> None:
    ran: list[str] = []
    with (
        redis_server(tmp_path) as (_, port),
        redis.Redis(port=port) as server,
        App(f"redis://127.0.0.1:{port}") as app,
    ):

        @app.task(expires=3600)
        def soon(name: str) -> None:
            ran.append(name)

        queue = app._open("default")
        app._client._engine.library = Library(instead={"clock": CLOCK})
        soon.send("before")
        server.set("il:{default}:clock", 864_000_000_000)
        with app.worker(threads=1, timetable=False):
            wait_for(lambda: queue.stats().messages_expired == 1, "that clock is not gone by")
        # Tokens continue from ten days ahead. They rise, and do not tell the time any more.
        server.set("il:{default}:clock", 0)
        soon.send("behind")
        with app.worker(threads=1, timetable=False):
            wait_for(lambda: queue.stats().unsettled == 0, "it is not handled")
    assert ran == ["behind"]
