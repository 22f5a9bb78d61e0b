"""`interlock queue barrier`: run a command after all earlier messages, and before all later ones.

For a change in the meaning of keys: every message with the old keys is done before any with the new
ones begins, while producers keep running.

The barrier is a message which this command handles itself. A worker may be quicker and lease it.
That opens nothing: the message calls a task that no program has, which an app's worker holds; and
it has one attempt and is held if a program fails on it. This command ends such a lease immediately,
and has the message held. A held message cannot be leased, and it keeps the gate shut until this
command settles it. Only a worker that settles unknown messages opens the gate.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from interlock.cli.flags import Flag, seconds
from interlock.cli.queue import show
from interlock.cli.queue.subcommand import declare, emit, failed, on_queue
from interlock.errors import InterlockError

if TYPE_CHECKING:
    from interlock.client.admin.operator import Operator

EXEC = Flag("--exec", "shell command to run at the barrier's turn", "CMD")
WAIT = Flag("--wait", "give up after S seconds and cancel the barrier", "S", seconds)


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(
        commands,
        "barrier",
        barrier,
        "wait until all earlier messages are settled, then run something before later ones",
        (EXEC, WAIT),
        about="Puts a barrier, waits for its turn, runs CMD and settles the barrier. If CMD fails, "
        "the barrier keeps blocking until it is skipped. Ctrl-C cancels the barrier.",
    )


def barrier(given: argparse.Namespace) -> int:
    """Put a barrier and handle it."""
    return on_queue(given, lambda operator: Turn(operator, given).run())


class Turn:
    """One barrier, from its put to its end."""

    def __init__(self, operator: Operator, given: argparse.Namespace) -> None:
        self._operator = operator
        self._given = given
        self._queue: str = given.queue
        self._id = 0
        self._token = 0
        self._said = ""

    def run(self) -> int:
        """Put the barrier, wait for its turn and handle it; return the exit code."""
        # Not for `--help` of the other subcommands.
        from interlock.client.wire.messages import Message

        options = ("BARRIER", 1, "ATTEMPTS", 1, "THEN", "hold", "PRIORITY", 100)
        self._id = self._operator.put(self._queue, Message(PAYLOAD, options=options)).id
        self._say(f"barrier {self._id} put into {self._queue}")
        until = None if self._given.wait is None else time.monotonic() + self._given.wait
        try:
            state = self._wait(until)
            if state == "leased" or state == "held":
                return self._handle(state)
        except BaseException:
            self._take_back()
            raise
        if state == "late":
            self._take_back()
            return self._end("late", f"the messages before barrier {self._id} were not settled in "
                f"{self._given.wait:g} s; the barrier was cancelled")  # fmt: skip
        return self._end("gone", f"barrier {self._id} was settled by someone else: by a worker "
            "that accepts any message, or by an operator")  # fmt: skip

    def _wait(self, until: float | None) -> str:
        """Wait for the barrier's turn, and return its state then.

        leased: by us; held: after a worker failed on it; late: the timeout passed; gone: settled by
        another consumer.
        """
        pause = SHORTEST
        while True:
            found = self._operator.explain(self._queue, id=self._id, limit=1)
            if found is None:
                return "gone"
            (node,) = found.nodes
            if node.state == "held":
                return "held"
            if node.state == "ready":
                # It runs alone, so no other message can be ready.
                if self._lease():
                    return "leased"
            elif node.state == "leased":
                self._say(f"{node.consumer} leased the barrier; revoking that lease")
                self._operator.change("revoke", self._queue, self._id, "hold")
                continue
            elif node.blocked:
                ahead = node.blocked[0]
                more = "" if ahead.exact else "at least "
                self._say(f"waiting: {more}{ahead.ahead:,} before it; to see why: {self._why()}")
            elif node.paused:
                self._say(f"waiting: the queue or a key is paused; to see which: {self._why()}")
            if until is not None and time.monotonic() >= until:
                return "late"
            left = pause if until is None else min(pause, max(until - time.monotonic(), 0))
            time.sleep(left)
            pause = min(pause * 1.5, LONGEST)

    def _why(self) -> str:
        return show.command(self._given, "explain", self._queue, str(self._id))

    def _lease(self) -> bool:
        from interlock.client.wire import messages as wire

        leased = self._operator.lease(self._queue, LEASE, "keyed")
        for message in leased.messages:
            if message.id == self._id:
                self._token = leased.token
                return True
            # A worker took the barrier and settled it between the check and the call.
            self._operator.settle(self._queue, wire.releasing(leased.token, message.id))
        return False

    def _handle(self, state: str) -> int:
        code = self._execute() if self._given.exec else 0
        if code:
            self._settle(f"--exec exited with {code}")
            skip = show.command(self._given, "skip", self._queue, str(self._id), "--yes")
            return self._end("failed", f"the command exited with {code}; barrier {self._id} is "
                f"held and blocks everything behind it until: {skip}")  # fmt: skip
        if not self._settle():
            return self._end("lost", f"the lease of barrier {self._id} was revoked meanwhile")
        return self._end("settled", "")

    def _execute(self) -> int:
        # Not for `--help` of the other subcommands.
        import subprocess

        over = threading.Event()
        beat = threading.Thread(target=self._renew, args=(over,), daemon=True)
        if self._token:
            beat.start()
        try:
            # With --json its output would mix with ours.
            out = STDERR if self._given.json else None
            self._say(f"everything before is settled; running {self._given.exec}")
            return subprocess.run(self._given.exec, shell=True, check=False, stdout=out).returncode
        finally:
            over.set()
            if beat.ident is not None:
                beat.join()

    def _renew(self, over: threading.Event) -> None:
        while not over.wait(LEASE / 3):
            # If it fails, the lease expires and the barrier is held; the end of the command reports
            # that.
            with suppress(InterlockError):
                self._operator.extend(self._queue, self._token, LEASE)

    def _settle(self, error: str = "") -> bool:
        """Settle our lease, or the held message; with an error as a failure."""
        from interlock.client.wire import messages as wire

        if self._token:
            lease = self._token, self._id
            settlement = wire.nacking(*lease, None, error) if error else wire.acking(*lease)
            return self._operator.settle(self._queue, settlement)
        return bool(error) or self._operator.change("skip", self._queue, self._id)

    def _take_back(self) -> None:
        if self._token:
            self._settle("interrupted")
            self._token = 0
        try:
            if not self._operator.change("cancel", self._queue, self._id):
                self._operator.change("revoke", self._queue, self._id, "skip")
        except InterlockError as error:
            cancel = show.command(self._given, "cancel", self._queue, str(self._id), "--yes")
            failed(f"the barrier remains: {error}; to cancel it: {cancel}")

    def _end(self, outcome: str, told: str) -> int:
        if self._given.json:
            emit({"queue": self._queue, "id": self._id, "outcome": outcome})
        elif outcome == "settled":
            print(f"{self._id}  everything before is settled; the barrier is passed")
        return failed(told) if told else 0

    def _say(self, text: str) -> None:
        if text != self._said:
            print(f"interlock: {text}", file=sys.stderr, flush=True)
            self._said = text


PAYLOAD = b"\x82\xa1v\x01\xa4task\xb1interlock.barrier"
"""In the form that an app's worker reads: a MessagePack call of the task `interlock.barrier`."""

LEASE = 60
STDERR = 2
SHORTEST, LONGEST = 0.01, 0.5
