"""`interlock worker` as a process: what happens when it is stopped, killed, or frozen."""

from __future__ import annotations

import base64
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.app import App
from tests import seeds
from tests.hub.servers import refusing
from tests.worker.apps import shop
from tests.worker.workers import OURS, PATIENCE, ROOT, Workers, wait_for

LEASE = 30.0
"""The duration of a worker's leases, seconds."""
SERVERS = pytest.mark.parametrize("engine", ["redis", "hub"], indirect=True)


@pytest.fixture(autouse=True)
def sender(url: str) -> Iterator[None]:
    """The shop's tasks send to this test's Redis."""
    shop.app.close()
    shop.app.url = url
    yield
    shop.app.close()


def drained() -> None:
    shop.app._queue("default").join(PATIENCE)


@pytest.mark.parametrize("pool", ["thread", "asyncio", "process"])
def test_the_command_handles_messages_reports_ready_and_exits_with_0(
    workers: Workers, tmp_path: Path, pool: str
) -> None:
    ready = tmp_path / "ready"
    worker = workers.start("--pool", pool, "--concurrency", "2", "--ready-file", str(ready))
    worker.ready()
    assert ready.read_text() == f"{worker.process.pid}\n"
    for number in range(6):
        (shop.slow_async if number % 2 else shop.slow).send(number, 0.0)
    drained()
    assert worker.stopped() == 0, worker.output
    assert not ready.exists()
    done = workers.rows("select number, attempt from done order by number")
    assert done == [(number, 1) for number in range(6)]
    pids = {pid for (pid,) in workers.rows("select distinct process from done")}
    assert (worker.process.pid in pids) == (pool != "process")


@SERVERS
def test_a_term_signal_finishes_running_handlers_and_leaves_the_rest(
    workers: Workers, tmp_path: Path
) -> None:
    worker = workers.start("--concurrency", "1").ready()
    gate = tmp_path / "gate"
    shop.until_file.send(1, str(gate))
    wait_for(lambda: bool(begun(workers)), "not begun")
    shop.until_file.send(2, str(gate))
    worker.signal(signal.SIGTERM)
    worker.wait_for_line("stopping")
    gate.touch()
    assert worker.ended() == 0, worker.output
    assert workers.rows("select number from done") == [(1,)]
    stats = shop.app._queue("default").stats()
    assert (stats.unsettled, stats.leased) == (1, 0)


@pytest.mark.parametrize("how", ["a second signal", "the drain timeout is over"])
def test_a_second_signal_or_the_deadline_returns_messages_and_exits_with_1(
    workers: Workers, tmp_path: Path, how: str
) -> None:
    limit = "0.2" if how.startswith("the") else "60"
    worker = workers.start("--drain-timeout", limit).ready()
    shop.until_file.send(1, str(tmp_path / "never"))
    wait_for(lambda: bool(begun(workers)), "not begun")
    worker.signal(signal.SIGTERM)
    worker.wait_for_line("stopping")
    if how.startswith("a"):
        worker.signal(signal.SIGTERM)
    assert worker.ended() == 1, worker.output
    assert f"{how}: 1 handler was still running, and its message goes back" in worker.output
    stats = shop.app._queue("default").stats()
    # The message is not at fault: no attempt is counted.
    assert (stats.unsettled, stats.leased, stats.retries, stats.releases) == (1, 0, 0, 1)


@SERVERS
@pytest.mark.watchdog(120)
def test_the_message_of_a_killed_worker_is_handled_by_another(
    workers: Workers, tmp_path: Path
) -> None:
    # Its lease has to run out; how soon after that is for the benchmarks.
    lease = ("--lease", "2")
    first = workers.start(*lease).ready()
    gate = tmp_path / "gate"
    shop.until_file.send(1, str(gate))
    wait_for(lambda: bool(begun(workers)), "not begun")
    second = workers.start(*lease).ready()
    first.signal(signal.SIGKILL)
    first.ended()
    gate.touch()
    drained()
    assert second.stopped() == 0, second.output
    rows = workers.rows("select process, attempt from done")
    assert rows == [(second.process.pid, 1)]


@SERVERS
@pytest.mark.watchdog(120)
def test_a_frozen_worker_s_late_settlement_and_fenced_write_change_nothing(
    workers: Workers, tmp_path: Path
) -> None:
    lease = ("--lease", "1")
    frozen = workers.start(*lease).ready()
    gate = tmp_path / "gate"
    shop.fenced.send("a", 5, str(gate))
    # Its row is written, and that database closed: one frozen within that would keep it locked.
    wait_for(Path(f"{gate}.begun").exists, "not begun")
    frozen.signal(signal.SIGSTOP)
    other = workers.start(*lease).ready()
    drained()
    # A call of the frozen one that waits at the hub may have been given it once more meanwhile.
    ((attempt,),) = workers.rows("select attempt from done")
    assert attempt == 1 or (attempt == 2 and "interlock:" in os.environ["INTERLOCK_URL"])
    written = [(502,)]
    assert workers.rows("select cents from account") == written
    gate.touch()
    frozen.signal(signal.SIGCONT)
    # It ends its handler, writes in vain and learns that its lease is gone.
    wait_for(lambda: len(workers.rows("select * from done")) == 2, "the handler did not go on")
    assert frozen.stopped() == 0, frozen.output
    assert other.stopped() == 0, other.output
    # By the engine's answer, or before that by its client, which had tried to renew it.
    said = ("was lost before it was settled", "expired or was revoked; nothing was changed")
    assert any(text in frozen.output for text in said), frozen.output
    assert workers.rows("select cents from account") == written
    assert shop.app._queue("default").stats().acks == 1


def test_a_pool_process_that_dies_fails_its_message_at_once(workers: Workers) -> None:
    worker = workers.start("--pool", "process", "--concurrency", "2").ready()
    shop.die.send(1)
    drained()
    ended = shop.app._queue("default").stats().leases_expired
    assert ended == 0, "only the end of its lease freed it"
    assert worker.stopped() == 0, worker.output
    assert workers.rows("select attempt from done") == [(2,)]
    assert "the process that handled message" in worker.output
    assert "ended with 9, attempt 1" in worker.output


def test_a_pool_process_that_hangs_is_killed(workers: Workers, tmp_path: Path) -> None:
    worker = workers.start("--pool", "process", "--concurrency", "1").ready()
    shop.hang.send(str(tmp_path / "never"))
    drained()
    assert worker.stopped() == 0, worker.output
    (letter,) = shop.app._queue("default").dead_letters()
    assert (letter.error, letter.attempts) == ("handled for more than 0.2 s", 2)
    assert worker.output.count("time.sleep(0.01)") >= 2  # its stack, twice


def test_a_worker_asked_by_pid_reports_what_its_handlers_do(
    workers: Workers, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    for pool in ("thread", "process"):
        worker = workers.start("--pool", pool, "--concurrency", "3").ready()
        gate.unlink(missing_ok=True)
        job = shop.until_file.send(7, str(gate))
        wait_for(lambda: len(begun(workers)) == (1 if pool == "thread" else 2), "not begun")  # noqa: B023
        pid = str(worker.process.pid)
        answer = json.loads(asked("--json", "--pid", pid))[0]
        assert (answer["process"], answer["concurrency"]) == (worker.process.pid, 3)
        (handler,) = answer["handlers"]
        assert (handler["task"], handler["id"]) == ("until_file", job.id)
        assert "in until_file" in handler["stack"].splitlines()[0]
        assert OURS not in handler["stack"] and "bootstrap" not in handler["stack"]
        text = asked()
        assert f"process {pid}: tests.worker.apps.shop:app, 1 of 3 handlers running" in text
        assert f"until_file: message {job.id} in queue 'default', attempt 1, for" in text
        gate.touch()
        drained()
        assert worker.stopped() == 0, worker.output
    assert "no worker of this user runs here" in asked(code=1)


def test_the_log_can_be_json(workers: Workers) -> None:
    worker = workers.start("--log-format", "json", "--log-level", "info")
    worker.wait_for_line('"ready, ')
    job = shop.slow.send(7, 0.0)
    drained()
    assert worker.stopped() == 0, worker.output
    records = [json.loads(line) for line in worker.lines]
    (ready,) = [one for one in records if one["message"].startswith("ready, ")]
    assert ready["concurrency"] == 16 and ready["queues"] == ["default"]
    assert any(one["message"] == "stopping" for one in records)
    (handled,) = [one for one in records if "handled" in one]
    facts = [handled[name] for name in ("level", "logger", "id", "task", "keys", "queue")]
    assert facts == ["info", "interlock.queue", job.id, "slow", ["slow:7"], "default"]
    assert handled["attempt"] == 1 and handled["waited"] >= 0 and handled["handled"] >= 0
    assert handled["time"].startswith("20") and handled["time"].endswith("Z")


def test_a_failure_in_a_log_of_json_has_its_traceback(workers: Workers) -> None:
    worker = workers.start("--json")
    worker.wait_for_line('"ready, ')
    shop.slow.send(6, 0.0)
    drained()
    shop.slow.send(7, -1.0)
    worker.wait_for_line("ValueError")
    assert worker.stopped() == 0, worker.output
    # A question for a handled one is answered.
    assert "message 6" not in worker.output and "slow:6" not in worker.output
    failed = next(json.loads(line) for line in worker.lines if "ValueError" in line)
    assert failed["level"] == "warning" and failed["attempt"] == 1
    assert failed["exception"].startswith("Traceback")
    assert failed["keys"] == ["slow:7"] and failed["handled"] >= 0 and failed["waited"] >= 0


def asked(*flags: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "interlock", "worker", "stacks", *flags],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("app", "flags", "text"),
    [
        ("nowhere:app", (), "there is no module 'nowhere'; it is searched for"),
        ("tests.worker.apps.shop", (), "is not a reference to an app; allowed: module:name"),
        ("shop.py:app", (), "no slashes and no .py"),
        (
            "tests.worker.apps.shop:ap",
            (),
            "no 'ap' in the module 'tests.worker.apps.shop'; there is app",
        ),
        ("tests.worker.apps.shop:slow", (), "is Task, not App; there is app"),
        ("json:dumps", (), "is function, not App; it has none"),
        (
            "tests.worker.apps.shop:app",
            ("--queues", "a,default"),
            "--queues names 'a', but no task",
        ),
        ("tests.worker.apps.shop:app", ("--url", "nonsense"), "connect(): url is 'nonsense'"),
        (
            "tests.worker.apps.shop:app",
            ("--url", "memory://x"),
            "no other process could send to it; give --url",
        ),
        ("tests.worker.apps.shop:app", ("--pid", "7"), "--pid is for `interlock worker stacks`"),
        ("tests.worker.apps.shop:app", ("--pool", "fork"), "invalid choice: 'fork'"),
        (
            "tests.worker.apps.shop:app",
            ("--watch", "--processes", "2"),
            "--watch is for one process",
        ),
        ("broken:app", (), "the module 'broken' cannot be imported: ZeroDivisionError"),
    ],
)
def test_wrong_usage_is_named_and_exits_with_2(
    workers: Workers, tmp_path: Path, app: str, flags: tuple[str, ...], text: str
) -> None:
    (tmp_path / "broken.py").write_text("x = 1 / 0\n")
    worker = workers.start(*flags, app=app)
    assert worker.ended() == 2
    assert text in worker.output
    assert ("Traceback" in worker.output) == (app == "broken:app")
    if app == "broken:app":
        assert "importlib" not in worker.output


def test_a_refusal_of_the_engine_is_logged_without_a_traceback(workers: Workers, url: str) -> None:
    worker = workers.start("--url", f"{url}/77")
    assert worker.ended() == 1
    assert "queue 'default' can no longer be served: " in worker.output
    assert "DB index is out of range" in worker.output
    assert "Traceback" not in worker.output


def test_an_unreachable_engine_is_logged_long_before_a_call_times_out(
    workers: Workers,
) -> None:
    with refusing() as port:
        address = f"redis://me:secret@127.0.0.1:{port}?timeout=600"
        worker = workers.start("--url", address)
        worker.wait_for_line(f"interlock worker: waiting for {address.replace('secret', '***')}")


@pytest.mark.watchdog(120)
def test_several_processes_start_stop_and_replace_each_other(
    workers: Workers, tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    many = workers.start("--processes", "2", "--ready-file", str(ready))
    many.wait_for_line("2 workers are ready")
    assert ready.read_text() == f"{many.process.pid}\n"
    for number in range(20):
        shop.slow.send(number, 0.05)
    drained()
    pids = [pid for (pid,) in workers.rows("select distinct process from done")]
    assert len(pids) == 2
    os.kill(int(str(pids[0])), signal.SIGKILL)
    many.wait_for_line("starting another")
    many.wait_for_line("interlock worker: ready", times=3)
    assert many.stopped() == 0, many.output
    assert not ready.exists()


def test_workers_end_when_their_supervisor_dies(workers: Workers) -> None:
    many = workers.start("--processes", "2")
    many.wait_for_line("2 workers are ready")
    many.signal(signal.SIGKILL)
    # Their output ends with the last of them.
    many.ended()
    assert not many._reader.is_alive(), "a worker continues alone"
    assert many.output.count("stopping") == 2


def test_a_changed_module_restarts_the_worker(workers: Workers, tmp_path: Path) -> None:
    program = tmp_path / "watched.py"
    text = (
        "from interlock.app import App\n"
        "app = App()\n"
        "@app.task()\n"
        "def say() -> None:\n"
        "    print('said {word}', flush=True)\n"
    )
    program.write_text(text.format(word="first"))
    worker = workers.start("--watch", app="watched:app").ready()
    other = App(shop.app.url)
    other.task(name="say")(lambda: None).send()
    worker.wait_for_line("said first")
    program.write_text("this is not Python\n")
    worker.wait_for_line("waiting for a change")
    program.write_text(text.format(word="second"))
    worker.wait_for_line("interlock worker: ready", times=2)
    other.tasks["say"].send()
    worker.wait_for_line("said second")
    other.close()
    assert worker.stopped() == 0, worker.output


@SERVERS
@pytest.mark.watchdog(180)
def test_money_is_conserved_while_workers_are_killed(workers: Workers) -> None:
    seed = seeds.seed()
    chance = random.Random(seed)
    flags = ("--lease", "1", "--concurrency", "4")
    running = [workers.start(*flags).ready() for _ in range(2)]
    for number in range(150):
        source, target = chance.sample("abcde", 2)
        shop.move.send(number, source, target, chance.randint(1, 50))
        if number in (50, 100):
            running.pop(0).signal(signal.SIGKILL)
            running.append(workers.start(*flags))
    drained()
    for worker in running:
        assert worker.stopped() == 0, worker.output
        assert "the auditor" not in worker.output
    assert workers.rows("select count(*) from moved") == [(150,)]
    assert workers.rows("select sum(cents) from account") == [(0,)]
    assert shop.app._queue("default").stats().dead == 0


def begun(workers: Workers) -> list[tuple[object, ...]]:
    return workers.rows("select number from begun")


def test_a_signal_to_the_whole_process_group_stops_it_cleanly(
    workers: Workers, tmp_path: Path
) -> None:
    # As systemd does: TERM to each process of the service. Nobody is hurried by that.
    gate = tmp_path / "gate"
    many = workers.start("--processes", "2", "--pool", "process", "--concurrency", "1")
    many.wait_for_line("2 workers are ready")
    shop.until_file.send(1, str(gate))
    wait_for(lambda: bool(begun(workers)), "not begun")
    for pid in [many.process.pid, *descendants(many.process.pid)]:
        os.kill(pid, signal.SIGTERM)
    many.wait_for_line("stopping", times=2)
    gate.touch()
    assert many.ended() == 0, many.output
    assert workers.rows("select attempt from done") == [(1,)]


def descendants(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    # Of other threads too: a pool's processes are started by those that talk to them.
    for task in Path(f"/proc/{pid}/task").iterdir():
        children += (task / "children").read_text().split()
    found = {int(child) for child in children}
    return sorted(found | {one for child in found for one in descendants(child)})


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_a_handler_sees_that_its_lease_was_revoked(workers: Workers, pool: str) -> None:
    worker = workers.start("--pool", pool, "--concurrency", "2", "--lease", "1").ready()
    job = shop.until_lost.send(1)
    wait_for(lambda: bool(begun(workers)), "not begun")
    assert shop.app._queue("default").revoke(job.id)
    drained()
    wait_for(lambda: len(workers.rows("select * from done")) == 2, "it did not see it")
    assert worker.stopped() == 0, worker.output


def test_a_violation_found_by_the_audit_exits_with_1(workers: Workers, tmp_path: Path) -> None:
    # The entry that a worker on this machine would have written for a message behind this one.
    worker = workers.start().ready()
    (journal,) = Path(os.environ["XDG_RUNTIME_DIR"], "interlock", "audit").iterdir()
    behind = 2**52
    key = base64.b64encode(b"slow:1").decode()
    with journal.open("a") as file:
        for what in ("begun", "ended"):
            event = [what, "other:1", behind, behind, 1, 1, [key], []]
            file.write("\n" + json.dumps(event, separators=(",", ":")))
    job = shop.slow.send(1, 0.0)
    drained()
    assert worker.stopped() == 1, worker.output
    assert f"the auditor: message {job.id} (sequence {job.id}, attempt 1, token" in worker.output
    assert (f"started after a message that is behind it on key 'slow:1': message {behind}") in (
        worker.output
    )
    assert "the auditor found 1 violation" in worker.output
