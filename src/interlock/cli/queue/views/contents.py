"""`interlock queue hot` and `peek`: the busiest keys, and the first messages."""

from __future__ import annotations

import argparse
import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from interlock.cli.flags import Flag, positive
from interlock.cli.queue import show
from interlock.cli.queue.subcommand import count, declare, emit_all, failed, message_id, on_queue
from interlock.cli.queue.views import not_found
from interlock.cli.tables import printable, table

if TYPE_CHECKING:
    from interlock.client.admin.operator import Operator
    from interlock.client.wire.failures import Failure
    from interlock.client.wire.records import Stored
    from interlock.explanation import ExplainNode

STATES = ("delayed", "waiting", "ready", "leased", "backing_off", "held", "parked")
LIMIT = Flag("--limit", "number to show (10)", "N", positive, 10)
STATE = Flag("--state", "only messages in this state", choices=STATES)
KEY = Flag("--key", "only messages that have this key", "KEY")
AFTER = Flag("--after", "only those after this message, for the next page", "ID", message_id)


def add_to(commands: Any) -> None:
    """Declare the subcommands."""
    declare(
        commands,
        "hot",
        hot,
        "show the keys with the most messages",
        (LIMIT,),
        about="It visits all keys that have messages.",
    )
    declare(
        commands,
        "peek",
        peek,
        "show the first messages of a queue, or those with the given ids",
        (LIMIT, STATE, KEY, AFTER),
        about="With --key it visits only the messages with the key. With --after, or if the server "
        "cannot find the first messages, it visits all: Redis cannot while keys are paused, a "
        "barrier is pending, or messages wait for a limit or have groups. JSON and MessagePack "
        "payloads are shown decoded. With one id, all failed attempts are shown with their "
        "tracebacks.",
        ids="[ID]",
    )


def hot(given: argparse.Namespace) -> int:
    """Print the busiest keys with bars, or a line of JSON for each key."""

    def work(operator: Operator) -> int:
        found = operator.hot_keys(given.queue, given.limit)
        if given.json:
            emit_all({"key": show.as_json(key), "depth": depth} for key, depth in found)
            return 0
        if found:
            print(table(("depth", "key", ""), hot_rows(found)))
        print(f"{count(operator.stats(given.queue)['lanes'], 'key')} with messages")
        return 0

    return on_queue(given, work)


def hot_rows(found: list[tuple[bytes, int]]) -> list[tuple[int, str, str]]:
    """Return depth, key and bar of each; the first bar is the longest."""
    return [(depth, show.short_key(key), show.bar(depth, found[0][1], BAR)) for key, depth in found]


def peek(given: argparse.Namespace) -> int:
    """Print messages."""
    return on_queue(given, lambda operator: _peek(operator, given))


def _peek(operator: Operator, given: argparse.Namespace) -> int:
    code = 0
    found: list[Stored] = []
    if given.ids:
        for id in given.ids:
            message = operator.peek(given.queue, id)
            if message is not None:
                found.append(message)
            else:
                code = failed(not_found.text(given.queue, id))
    else:
        behind = _behind(operator, given)

        def wanted(message: Stored) -> bool:
            return given.state in (None, message.state) and (
                behind is None or place(message) > behind
            )

        if given.key is not None:
            found = _on_key(operator, given, wanted)
        elif (front := _front(operator, given)) is not None:
            found = front
        else:
            unsettled = filter(wanted, operator.messages(given.queue))
            found = heapq.nsmallest(given.limit, unsettled, key=place)
    # The server's view of each; the message may have gone meanwhile.
    looked = [
        (message, None if message.state == "dead" else node_of(operator, given.queue, message.id))
        for message in found
    ]
    if given.json:
        emit_all(
            {
                **record(message, node),
                **(not_found.record(message, given) if message.state == "dead" else {}),
            }
            for message, node in looked
        )
        return code
    for message, node in looked:
        print("\n".join(lines(message, node)))
        if len(given.ids) == 1:
            print("".join(f"    {line}\n" for line in attempts(message)), end="")
        if message.state == "dead":
            print(f"    to requeue it: {not_found.again(message, given)}")
    if not looked and not given.ids:
        print("no such messages" if given.state or given.key else "no messages")
    return code


def _front(operator: Operator, given: argparse.Namespace) -> list[Stored] | None:
    """Return the first matching messages, if they have the smallest ids and the server finds these;
    else None."""
    front = operator.front(given.queue, given.limit, given.state) if given.after is None else None
    if front is None:
        return None
    found, are_all = front
    # The place of a message that is or was delayed is behind those of larger ids.
    if are_all or all(place(one) == (False, one.id, one.id) for one in found):
        return sorted(found, key=place)
    return None


def _on_key(
    operator: Operator, given: argparse.Namespace, wanted: Callable[[Stored], bool]
) -> list[Stored]:
    """Return the first matching messages of the key: of its lane, then the delayed ones."""
    key = given.key.encode(errors="surrogateescape")
    found: list[Stored] = []
    if given.state != "delayed":
        # A state may be rare: then pages are not small.
        page = min(given.limit, 100) if given.state is None else None
        lane = operator.lane(given.queue, key, given.after, page)
        found = list(itertools.islice(filter(wanted, lane), given.limit))
    left = given.limit - len(found)
    if left and given.state in (None, "delayed"):
        delayed = filter(wanted, operator.delayed(given.queue, key))
        found += heapq.nsmallest(left, delayed, key=place)
    return found


def _behind(operator: Operator, given: argparse.Namespace) -> tuple[bool, int, int] | None:
    """Return the place behind which a page begins; for a settled message, that of its id."""
    if given.after is None:
        return None
    last = operator.peek(given.queue, given.after)
    return place(last) if last and last.state != "dead" else (False, given.after, given.after)


def place(message: Stored) -> tuple[bool, int, int]:
    """Return the sort key of messages: their places.

    A delayed message has none, and comes when it is due.
    """
    delayed = message.state == "delayed"
    return delayed, (message.due or 0) if delayed else message.sequence, message.id


def node_of(operator: Operator, queue: str, id: int) -> ExplainNode | None:
    """Ask for a message's state; return None if it has been settled meanwhile."""
    found = operator.explain(queue, id=id, limit=1)
    return found.nodes[0] if found else None


def record(message: Stored, node: ExplainNode | None) -> dict[str, Any]:
    """Return a message for JSON."""
    return {
        "id": message.id,
        "sequence": message.sequence,
        "state": node.state if node else message.state,
        "attempt": message.attempt,
        "priority": message.priority,
        "age": node.age if node else None,
        "consumer": node.consumer if node else "",
        "held_for": node.held_for if node else None,
        "lease_left": node.lease_left if node else None,
        "due_in": node.due_in if node else None,
        "keys": [show.as_json(key) for key in message.keys],
        "shared": [show.as_json(key) for key in message.shared],
        "barrier": message.options.get("BARRIER") == b"1",
        "limit": [name_json(name) for name in message.limit],
        "group": None if message.group is None else name_json(message.group),
        "coalesce": None if message.coalesce is None else show.as_json(message.coalesce),
        "replaced": replaced(message),
        "behind": message.behind,
        "error": message.error,
        "failures": [failure_json(one) for one in message.failures],
        **show.payload_json(message.payload),
    }


def name_json(name: str) -> show.Text:
    """Return a limit name or a group for JSON."""
    return show.as_json(name.encode(errors="surrogateescape"))


def replaced(message: Stored) -> int:
    """Return how often the payload was replaced by a later put with the message's name."""
    return int(message.options.get("REVISION", 0))


def failure_json(one: Failure) -> dict[str, Any]:
    """Return a failed attempt for JSON; its time is in seconds since 1970."""
    return {
        "attempt": one.attempt,
        "time": None if one.time is None else one.time / 1e6,
        "error": one.line,
        "traceback": one.traceback,
    }


def attempts(message: Stored) -> Iterator[str]:
    """Yield the failed attempts, the newest first, each with its traceback."""
    for one in message.failures:
        if one.attempt is not None and one.time is not None:
            yield f"attempt {one.attempt} failed {not_found.when(one.time)}: {printable(one.line)}"
        for line in one.traceback.splitlines():
            yield f"  {printable(line)}"


def lines(message: Stored, node: ExplainNode | None) -> Iterator[str]:
    """Yield the lines of a message for people."""
    state = (node.state if node else message.state).replace("_", " ")
    is_dead = message.state == "dead"
    parts = [f"{message.id}  {not_found.since(message) if is_dead else state}"]
    if message.attempt > 1 and not is_dead:
        parts.append(f"attempt {message.attempt}")
    if message.priority:
        parts.append(f"priority {message.priority}")
    if count := replaced(message):
        parts.append(f"replaced {count} time{'s' if count > 1 else ''}")
    if node and node.consumer:
        parts.append(f"by {printable(node.consumer)} for {show.seconds(node.held_for)}")
    if node and node.due_in is not None:
        parts.append(f"due in {show.seconds(node.due_in)}")
    if node:
        parts.append(f"age {show.seconds(node.age)}")
    yield ", ".join(parts)
    barrier = message.options.get("BARRIER") == b"1"
    keys = show.keys_text(message.keys, message.shared)
    yield f"    {'a barrier' if barrier else f'keys {keys}' if keys else 'no keys'}"
    if declared := "; ".join(declarations(message)):
        yield f"    {declared}"
    yield f"    {show.payload_text(message.payload, WIDTH)}"
    if message.error:
        yield f"    failed: {printable(message.error)}"


def declarations(message: Stored) -> Iterator[str]:
    """Yield the names and the outcome behind a failure that a message was put with, for people."""
    if message.limit:
        yield f"limits {', '.join(map(printable, message.limit))}"
    if message.group is not None:
        yield f"group {printable(message.group)}"
    if message.coalesce is not None:
        yield f"coalesces as {show.key_text(message.coalesce)}"
    if message.behind is not None:
        yield f"behind a failure: {message.behind}"


BAR = 40
WIDTH = 100
