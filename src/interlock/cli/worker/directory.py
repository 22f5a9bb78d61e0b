"""`interlock worker list`, `stacks ID` and `drain ID`: the workers of all machines, by the engine.

Each announces itself there; a request is left for it at the engine, and it answers with its next
announcement.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from interlock.cli.flags import Flag
from interlock.cli.queue.subcommand import BAD_INPUT, ask, count, emit, failed
from interlock.cli.tables import printable, table
from interlock.cli.worker.stacks import as_text
from interlock.client.wire.worker_directory import state_text

if TYPE_CHECKING:
    from interlock.client.admin.operator import Operator

WORDS = ("list", "stacks", "drain")
FLAGS = (
    Flag("--wait", "with drain: return when the worker has ended"),
)  # fmt: skip


@dataclass(frozen=True)
class Known:
    """An announced worker."""

    queue: str
    """The queue of its announcement."""
    id: str
    said: dict[str, Any]
    age: float


def run(given: argparse.Namespace) -> int:
    """Execute the subcommand."""
    word, named = given.app, given.id
    if word == "list":
        if named is not None:
            return wrong("list takes no ID")
        return ask(given, lambda operator: list_all(operator, given))
    if named is None:
        return wrong("drain takes the ID of a worker; `interlock worker list` shows them")
    return ask(given, lambda operator: _asked(operator, given, word))


def list_all(operator: Operator, given: argparse.Namespace) -> int:
    """Print all workers."""
    found = workers(operator, _queues(given))
    if given.json:
        for one in found:
            said = {name: value for name, value in one.said.items() if name != "answers"}
            emit({**said, "id": one.id, "queue": one.queue, "age": round(one.age, 3)})
        return 0
    rows = [
        [
            one.id,
            state_text(one.said),
            str(one.said.get("app", "")),
            ", ".join(map(str, _list(one.said, "queues") or [one.queue])),
            f"{len(_list(one.said, 'running'))} of {one.said.get('concurrency', '?')}",
            _number(one.said, "handled"),
            _number(one.said, "failed"),
            _running_for(one),
        ]
        for one in found
    ]
    if rows:
        head = ("worker", "state", "app", "queues", "at work", "handled", "failed", "for")
        print(table(head, rows))
    else:
        print("no worker has announced itself")
    return 0


def workers(operator: Operator, queues: list[str]) -> list[Known]:
    """Return the workers of these queues, by their ids."""
    names = [*dict.fromkeys([*queues, *operator.queues()])]
    # Another program's announcement only shows that it exists.
    found = {
        one.worker: Known(name, one.worker, one.said, one.age)
        for name, one in operator.all_workers(names)
    }
    return [found[id] for id in sorted(found)]


def _asked(operator: Operator, given: argparse.Namespace, what: str) -> int:
    from interlock.client.admin.answers import wait_for_answer

    wanted = given.id
    known = workers(operator, _queues(given))
    found = [one for one in known if one.id == wanted] or [
        one for one in known if one.id.startswith(wanted)
    ]
    if not found:
        return failed(f"no worker {wanted!r} has announced itself; announced: {_ids(known)}")
    if len(found) > 1:
        return failed(f"{wanted!r} is the start of several IDs: {_ids(found)}")
    (worker,) = found
    number = operator.ask(worker.queue, worker.id, json.dumps({"ask": what}))
    if number is None:
        return failed(f"worker {worker.id} has ended")
    answer = wait_for_answer(operator, worker.queue, worker.id, number, PATIENCE)
    if answer is None:
        if what == "drain" and not _there(operator, worker):
            return _told_drained(worker, given, ended=True)
        return failed(f"worker {worker.id} does not answer within {PATIENCE:g} s")
    if "error" in answer:
        return failed(f"worker {worker.id}: {answer['error']}")
    if what == "stacks":
        return _print_stacks(worker, answer, given)
    while given.wait and _there(operator, worker):
        time.sleep(LOOK)
    return _told_drained(worker, given, ended=given.wait)


def _there(operator: Operator, worker: Known) -> bool:
    return any(one.worker == worker.id for one in operator.workers(worker.queue))


def _print_stacks(worker: Known, answer: dict[str, Any], given: argparse.Namespace) -> int:
    if given.json:
        emit({"id": worker.id, "queue": worker.queue, **answer})
        return 0
    facts = {"process": f"{worker.said.get('process', '?')} on {worker.said.get('host', '?')}"}
    print(as_text({**worker.said, **facts, "handlers": answer["stacks"]}))
    if answer.get("left_out"):
        print(f"\nand {count(answer['left_out'], 'handler')} that the answer has no room for")
    return 0


def _told_drained(worker: Known, given: argparse.Namespace, ended: bool) -> int:
    state = "ended" if ended else "draining"
    if given.json:
        emit({"id": worker.id, "state": state})
    elif ended:
        print(f"worker {printable(worker.id)} has ended")
    else:
        print(
            f"worker {printable(worker.id)} takes no more messages, and ends when its handlers "
            "have ended"
        )
    return 0


def _queues(given: argparse.Namespace) -> list[str]:
    return [name.strip() for name in (given.queues or "").split(",") if name.strip()]


def _ids(known: list[Known]) -> str:
    return ", ".join(one.id for one in known[:20]) or "none"


def _list(said: dict[str, Any], name: str) -> list[Any]:
    """Return a list from a worker's announcement, which may hold anything; empty if not a list."""
    found = said.get(name)
    return found if isinstance(found, list) else []


def _number(said: dict[str, Any], name: str) -> int | str:
    found = said.get(name)
    return found if isinstance(found, int) else ""


def _running_for(one: Known) -> str:
    """Return how long a worker has run: its announced time, plus the announcement's age."""
    told = one.said.get("seconds")
    # An announcement may hold anything, and a worker of an older release has only its clock's time.
    if not isinstance(told, int | float) or not 0 <= told < 1e15:
        return ""
    seconds = told + one.age
    for length, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def wrong(message: str) -> int:
    """Print wrong usage, and return the exit code for it."""
    failed(message)
    return BAD_INPUT


PATIENCE = 15.0
"""Seconds to wait for an answer: a worker announces itself every two."""
LOOK = 0.25
