"""`interlock queue requeue ID --args JSON`: an edited dead letter and its new keys."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from interlock.cli.flags import Flag
from interlock.cli.queue import show
from interlock.cli.queue.confirmation import refused
from interlock.cli.queue.subcommand import BAD_INPUT, emit, failed
from interlock.cli.tables import printable

if TYPE_CHECKING:
    from interlock.client.admin.operator import Operator
    from interlock.client.wire.records import NewKeys

FLAGS = (
    Flag("--args", "edit: the arguments of the call, a JSON list", "JSON"),
    Flag("--kwargs", "edit: the named arguments of the call, a JSON object", "JSON"),
    Flag("--payload", "edit: the payload of a message that is not a call of a task", "TEXT"),
    Flag("--app", "the app whose rule computes the keys of the edited call (a worker's)",
         "MODULE:APP"),
    Flag("--new-key", "a key of the edited message; repeatable", "KEY",
         many=True),
    Flag("--new-shared", "the same for a shared key", "KEY", many=True),
    Flag("--no-keys", "the edited message has no keys"),
)  # fmt: skip


def is_wanted(given: argparse.Namespace) -> bool:
    """Return whether the message is changed before it is requeued."""
    edits = (given.args, given.kwargs, given.payload)
    return any(one is not None for one in edits) or given.app is not None or _states(given)


def requeue(operator: Operator, given: argparse.Namespace) -> int:
    """Requeue one dead letter with the edits, after old and new keys were confirmed."""
    from interlock.dashboard.api import payload
    from interlock.dashboard.refusal import Refusal

    (id,) = given.ids
    if given.no_keys and (given.new_key or given.new_shared):
        return _wrong("--no-keys cannot be combined with --new-key or --new-shared")
    letter = operator.peek(given.queue, id)
    if letter is None or letter.state != "dead":
        return failed(f"there is no dead letter {id} in {given.queue}")
    try:
        wanted = _edits(given)
        edited = payload.edited(letter.payload, wanted) if wanted else letter.payload
        keys, by = _keys(operator, given, edited)
    except (Refusal, ValueError) as error:
        return _wrong(str(error))
    if keys is None:
        return _wrong(
            f"the keys of the edited message are not known: {by}; give --app MODULE:APP, or state "
            f"them by --new-key, --new-shared or --no-keys"
        )
    old = show.keys_text(letter.keys, letter.shared) or "none"
    new = show.keys_text(keys.exclusive, keys.shared) or "none"
    if not given.json:
        print(f"old keys: {old}\nnew keys: {new} ({printable(by)})", flush=True)
    if code := refused(given, f"requeue dead letter {id} of {given.queue} with keys {new}"):
        return code
    put = operator.requeue(given.queue, id, edited, keys)
    if given.json:
        named = {"keys": keys.exclusive, "shared": keys.shared}
        told = {name: [show.as_json(key) for key in some] for name, some in named.items()}
        emit({"id": id, "new": put, **told})
    elif put is not None:
        print(f"{id}  requeued as {put}")
    return 0 if put is not None else failed(f"there is no dead letter {id} in {given.queue}")


def _keys(
    operator: Operator, given: argparse.Namespace, edited: bytes
) -> tuple[NewKeys | None, str]:
    """Return the keys of the edited message and their source; or None and the reason."""
    from interlock.client.admin.task_keys import ask_workers
    from interlock.client.wire.records import NewKeys
    from interlock.dashboard.api.payload import task_of

    if _states(given):
        names = (given.new_key or (), given.new_shared or ())
        stated = (tuple(key.encode(errors="surrogateescape") for key in some) for some in names)
        return NewKeys(*stated), "stated"
    if task_of(edited) is None:
        return None, "it is not a call of a task, so no rule gives its keys"
    if given.app is None:
        answer = ask_workers(operator, given.queue, edited)
        return answer.keys, f"by worker {answer.text}" if answer.keys else answer.text
    return _of_app(given.app, edited), f"by {given.app}"


def _of_app(reference: str, edited: bytes) -> NewKeys:
    import os
    import sys

    from interlock.app.app import App
    from interlock.client.wire.records import NewKeys
    from interlock.errors import InterlockError
    from interlock.worker.message.tasks import NotHere
    from interlock.worker.process.app_reference import NoApp, load

    # As in `interlock worker`: the folder of the command is not a place for a program's modules.
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return NewKeys(*map(tuple, load(reference, App)._as_tasks().keys_of(edited)))
    except NotHere as error:
        raise ValueError(f"{reference}: the message {error}") from None
    except (NoApp, InterlockError, TypeError) as error:
        raise ValueError(str(error)) from None


def _edits(given: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("args", "kwargs"):
        if (text := getattr(given, name)) is not None:
            try:
                found[name] = json.loads(text)
            except ValueError as error:
                raise ValueError(f"--{name} is not JSON: {error}") from None
    if given.payload is not None:
        found["text"] = given.payload
    return found


def _states(given: argparse.Namespace) -> bool:
    return bool(given.new_key or given.new_shared or given.no_keys)


def _wrong(text: str) -> int:
    failed(text)
    return BAD_INPUT
