"""`interlock queue barrier`: after all earlier messages and before all later ones, whichever worker
takes it first."""

from __future__ import annotations

import signal
import threading
from contextlib import nullcontext, suppress
from pathlib import Path

import msgspec
import pytest

from interlock.cli.queue.actions import barrier
from interlock.client.admin.operator import Operator
from interlock.client.faces.lease import RemoteLease
from interlock.client.faces.queue import RemoteQueue
from interlock.errors import Empty, LeaseLost
from tests.cli.conftest import Command, Said
from tests.cli.terminal import terminal


class Running:
    """The command on a thread of its own."""

    def __init__(self, cli: Command, *words: object) -> None:
        self.said: Said | None = None
        self._thread = threading.Thread(target=self._run, args=(cli, words))
        self._thread.start()

    def _run(self, cli: Command, words: tuple[object, ...]) -> None:
        self.said = cli("barrier", *words)

    def end(self) -> Said:
        self._thread.join(30)
        assert self.said is not None
        return self.said


def test_a_barrier_command_runs_after_all_earlier_and_before_all_later_messages(
    cli: Command, queue: RemoteQueue[bytes], tmp_path: Path
) -> None:
    queue.put(b"before", keys="k")
    lease = queue.get()
    seen = tmp_path / "seen"
    running = Running(cli, queue.name, "--exec", f"echo now > {seen}", "--json")
    while queue.stats().unsettled < 2:
        pass
    after = queue.put(b"after", keys="k")
    assert queue.stats().ready == 0
    assert not seen.exists()
    lease.ack()
    said = running.end()
    assert (said.code, said.json["outcome"]) == (0, "settled")
    assert seen.read_text() == "now\n"
    with queue.get(timeout=30) as payload:
        assert payload == b"after"
    assert after > said.json["id"]


def test_a_barrier_without_a_command_reports_that_all_earlier_messages_are_settled(
    cli: Command, queue: RemoteQueue[bytes]
) -> None:
    queue.put(b"before")
    queue.get().ack()
    said = cli("barrier", queue.name)
    assert said.code == 0
    assert said.out.endswith("  everything before is settled; the barrier is passed\n")
    assert queue.stats().unsettled == 0


def test_a_failing_command_keeps_the_barrier_in_place(
    cli: Command, queue: RemoteQueue[bytes]
) -> None:
    queue.put(b"before")
    queue.get().ack()
    said = cli("barrier", queue.name, "--exec", "exit 3", "--json")
    id = said.json["id"]
    assert (said.code, said.json["outcome"]) == (1, "failed")
    assert f"interlock queue skip {queue.name} {id} --yes" in said.err
    queue.put(b"after", keys="k")
    assert (queue.stats().held, queue.stats().ready) == (1, 0)
    assert cli("skip", queue.name, id, "--yes").code == 0
    assert queue.stats().ready == 1


def test_a_barrier_is_cancelled_at_its_timeout(cli: Command, queue: RemoteQueue[bytes]) -> None:
    queue.put(b"before")
    lease = queue.get()
    said = cli("barrier", queue.name, "--wait", "0.05", "--json")
    assert (said.code, said.json["outcome"]) == (1, "late")
    assert queue.stats().unsettled == 1
    lease.ack()


def test_a_worker_that_leases_the_barrier_first_and_fails_does_not_settle_it(
    cli: Command, queue: RemoteQueue[bytes], tmp_path: Path
) -> None:
    queue.put(b"before", keys="k")
    lease = queue.get()
    over = threading.Event()

    def fails() -> None:
        while not over.is_set():
            # The command may take it before the worker has failed.
            with suppress(Empty, LeaseLost):
                queue.get(timeout=0.05).nack(error="no message of mine")

    running = Running(cli, queue.name, "--exec", f"echo now >> {tmp_path / 'seen'}", "--json")
    while queue.stats().unsettled < 2:
        pass
    worker = threading.Thread(target=fails)
    worker.start()
    lease.ack()
    said = running.end()
    over.set()
    worker.join()
    assert (said.code, said.json["outcome"]) == (0, "settled")
    assert (tmp_path / "seen").read_text() == "now\n"
    assert queue.stats().unsettled == 0


def test_a_barrier_made_a_dead_letter_by_a_worker_blocks_nothing(
    cli: Command, queue: RemoteQueue[bytes]
) -> None:
    queue.put(b"before", keys="k")
    lease = queue.get()
    running = Running(cli, queue.name, "--json")
    while queue.stats().unsettled < 2:
        pass
    queue.put(b"after", keys="k")
    taken: list[RemoteLease[bytes]] = []
    over = threading.Event()

    def sets_aside() -> None:
        while not over.is_set():
            with suppress(Empty):
                taken.append(queue.get(timeout=0.05))

    worker = threading.Thread(target=sets_aside)
    worker.start()
    lease.ack()
    said = running.end()
    over.set()
    worker.join()
    assert (said.code, said.json["outcome"]) == (0, "settled")
    for one in taken:
        # The barrier was taken from it; what stood behind was not.
        with suppress(LeaseLost) if one.payload != b"after" else nullcontext():
            one.ack()


def test_a_worker_of_an_app_reads_a_barrier_as_an_unknown_task() -> None:
    assert msgspec.msgpack.decode(barrier.PAYLOAD) == {"v": 1, "task": "interlock.barrier"}


def test_a_barrier_settled_by_somebody_else_is_reported(
    cli: Command, queue: RemoteQueue[bytes], operator: Operator
) -> None:
    queue.put(b"before", keys="k")
    queue.pause()
    running = Running(cli, queue.name, "--json")
    while queue.stats().unsettled < 2:
        pass
    (id,) = (one.id for one in operator.messages(queue.name) if "BARRIER" in one.options)
    assert queue.cancel(id)
    said = running.end()
    assert said.code == 1
    assert "settled by someone else" in said.err


@pytest.mark.parametrize("url", ["redis", "hub"], indirect=True)
def test_ctrl_c_cancels_the_barrier(url: str, queue: RemoteQueue[bytes]) -> None:
    queue.put(b"before", keys="k")
    lease = queue.get()
    with terminal("barrier", queue.name, "--url", url) as opened:
        opened.until("waiting: 1 before it")
        opened.process.send_signal(signal.SIGINT)
        assert opened.rest() == 130
        assert "Traceback" not in opened.shown
    assert (queue.stats().unsettled, queue.stats().cancelled) == (1, 1)
    lease.ack()


def test_the_barrier_command_prints_what_it_waits_for(
    cli: Command, queue: RemoteQueue[bytes]
) -> None:
    queue.put(b"before", keys="k")
    lease = queue.get()
    said = cli("barrier", queue.name, "--wait", "0.01")
    assert f"waiting: 1 before it; to see why: interlock queue explain {queue.name} " in said.err
    lease.ack()
    queue.pause()
    said = cli("barrier", queue.name, "--wait", "0.01")
    assert (
        "waiting: the queue or a key is paused; to see which: interlock queue explain" in said.err
    )
    assert queue.stats().unsettled == 0


@pytest.mark.parametrize("words", [("--wait", "0"), ("--wait", "soon")])
def test_an_invalid_wait_is_wrong_usage(
    cli: Command, queue: RemoteQueue[bytes], words: tuple[str, str]
) -> None:
    said = cli("barrier", queue.name, *words)
    assert said.code == 2
    assert "allowed: seconds above 0" in said.err
