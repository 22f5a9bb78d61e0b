"""`interlock queue dead-letters` and `requeue`: list dead letters, and requeue them."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from interlock.cli.flags import Flag, positive
from interlock.cli.queue import show
from interlock.cli.queue.actions import edit
from interlock.cli.queue.confirmation import YES, refused
from interlock.cli.queue.subcommand import (
    BROKEN,
    count,
    declare,
    emit,
    emit_all,
    failed,
    message_id,
    on_queue,
)
from interlock.cli.queue.views.not_found import when
from interlock.cli.tables import printable, table
from interlock.client.wire.failures import error_group

if TYPE_CHECKING:
    from interlock.client.admin.operator import Operator
    from interlock.client.wire.records import Letter, Stored

    M = TypeVar("M", Letter, Stored)

KEY = Flag("--key", "only those that have this key", "KEY")
LIMIT = Flag("--limit", "number to show (20)", "N", positive, 20)
AFTER = Flag("--after", "only those after this dead letter, for the next page", "ID", message_id)
ALL = Flag("--all", "all dead letters")
EDIT = edit.FLAGS
BY_ERROR = Flag("--by-error", "count them by error")


def add_to(commands: Any) -> None:
    """Declare the subcommands."""
    declare(
        commands,
        "dead-letters",
        dead_letters,
        "list messages that were given up, with their errors",
        (LIMIT, AFTER, KEY, BY_ERROR),
        about="Newest first. With --by-error, it counts each kind of error, ignoring numbers in "
        "the text.",
    )
    declare(
        commands,
        "requeue",
        requeue,
        "requeue dead letters",
        (ALL, KEY, YES, *EDIT),
        about="Each becomes a new message behind all others, at its first attempt. With one ID, "
        "--args, --kwargs or --payload edit the message. Its keys, limits and group are then "
        "computed from the edited call by the task's rule, by --app or by a worker, or are those "
        "that you give.",
        ids="[ID]",
    )


def dead_letters(given: argparse.Namespace) -> int:
    """Print a page."""

    def work(operator: Operator) -> int:
        found = of_key(operator.newest_dead(given.queue, given.after), given.key)
        if given.by_error:
            return by_error(found, given)
        page = list(islice(found, given.limit + 1))
        more, page = len(page) > given.limit, page[: given.limit]
        if given.json:
            emit_all(record(letter) for letter in page)
            return 0
        print("\n".join(line for letter in page for line in lines(letter)) or "no dead letters")
        if more:
            named = () if given.key is None else ("--key", given.key)
            last = str(page[-1].id)
            words = ("dead-letters", given.queue, *named, "--after", last)
            print(f"the next page: {show.command(given, *words)}")
        return 0

    return on_queue(given, work)


def by_error(found: Iterable[Stored], given: argparse.Namespace) -> int:
    """Print the number of dead letters of each kind of error."""
    groups: dict[str, list[Stored]] = {}
    for letter in found:
        groups.setdefault(error_group(letter.error), []).append(letter)
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    if given.json:
        emit_all(
            {
                "error": name,
                "count": len(some),
                "newest": some[0].id,
                "time": (some[0].due or 0) / 1e6,
            }
            for name, some in ordered
        )
    elif ordered:
        rows = [(len(some), when(some[0].due or 0), name or "no error") for name, some in ordered]
        print(table(("count", "last died", "error"), rows))
    else:
        print("no dead letters")
    return 0


def requeue(given: argparse.Namespace) -> int:
    """Requeue them."""
    if sum((bool(given.ids), given.all, given.key is not None)) != 1:
        given.fail("give either IDs, --all or --key KEY")
    if edit.is_wanted(given):
        if len(given.ids) != 1:
            given.fail("an edit needs exactly one ID")
        return on_queue(given, lambda operator: edit.requeue(operator, given))
    return on_queue(given, lambda operator: _requeue(operator, given))


def _requeue(operator: Operator, given: argparse.Namespace) -> int:
    ids: list[int] = given.ids
    if not ids:
        # All are listed before the first is requeued: one that dies meanwhile is not taken twice.
        ids = [letter.id for letter in of_key(operator.dead_letters(given.queue), given.key)]
        what = f"requeue {count(len(ids), 'dead letter')} of {given.queue}"
        if ids and (code := refused(given, what)):
            return code
    code, done = 0, 0
    for id in ids:
        new = operator.requeue(given.queue, id)
        done += new is not None
        if given.json:
            emit({"id": id, "new": new})
        elif new is not None:
            print(f"{id}  requeued as {new}")
        if new is None:
            code = BROKEN
            failed(f"there is no dead letter {id} in {given.queue}")
    if not given.ids and not given.json:
        print(f"{count(done, 'dead letter')} requeued")
    return code


def of_key(letters: Iterable[M], key: str | None) -> Iterator[M]:
    """Return the dead letters that carry a key.

    Not left to the server, which reads only a limited number of them.
    """
    wanted = None if key is None else key.encode(errors="surrogateescape")
    return (
        letter
        for letter in letters
        if wanted is None or wanted in letter.keys or wanted in letter.shared
    )


def record(letter: Stored) -> dict[str, Any]:
    """Return a dead letter for JSON."""
    return {
        "id": letter.id,
        "attempts": letter.attempt,
        "time": (letter.due or 0) / 1e6,
        "error": letter.error,
        "priority": int(letter.options.get("PRIORITY", 0)),
        "keys": [show.as_json(key) for key in letter.keys],
        "shared": [show.as_json(key) for key in letter.shared],
        **show.payload_json(letter.payload),
    }


def lines(letter: Stored) -> Iterator[str]:
    """Yield the lines of a dead letter for people."""
    died = when(letter.due or 0)
    yield f"{letter.id}  died {died} after {count(letter.attempt, 'attempt')}"
    yield f"    {printable(letter.error) or 'no error is known'}"
    keys = show.keys_text(letter.keys, letter.shared)
    yield f"    {f'keys {keys}' if keys else 'no keys'}"
    yield f"    {show.payload_text(letter.payload, WIDTH)}"


WIDTH = 100
