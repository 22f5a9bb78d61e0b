"""`interlock queue requeue ID --args JSON`: an edited dead letter, its new keys and names."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from interlock.cli.flags import Flag
from interlock.cli.queue import show
from interlock.cli.queue.confirmation import refused
from interlock.cli.queue.subcommand import BAD_INPUT, emit, failed
from interlock.cli.tables import printable

if TYPE_CHECKING:
    from interlock.client.admin.operator import Operator
    from interlock.client.wire.records import Names, NewKeys

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
    Flag("--new-limit", "a limit name of the message, in place of those it would have; repeatable; "
         "an empty one: no limits", "NAME", many=True),
    Flag("--new-group", "its group; empty: none", "NAME"),
)  # fmt: skip


def is_wanted(given: argparse.Namespace) -> bool:
    """Return whether the message is changed before it is requeued."""
    edits = (given.args, given.kwargs, given.payload, given.app, given.new_limit, given.new_group)
    return any(one is not None for one in edits) or _states(given)


def requeue(operator: Operator, given: argparse.Namespace) -> int:
    """Requeue one dead letter with the edits, after old and new keys were confirmed."""
    from interlock.client.wire.records import NewKeys
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
        if wanted or given.app or _states(given):
            keys, by = _keys(operator, given, edited)
        else:
            keys, by = NewKeys(letter.keys, letter.shared), "as they were"
        names = _names(given, letter.names if keys is None else keys.names or letter.names)
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
        if names != letter.names:
            print(f"old names: {printable(str(letter.names))}", flush=True)
            print(f"new names: {printable(str(names))}", flush=True)
    if code := refused(given, f"requeue dead letter {id} of {given.queue} with keys {new}"):
        return code
    # Unchanged names are not sent, so that an earlier server takes the call.
    keys = replace(keys, names=None if names == letter.names else names)
    put = operator.requeue(given.queue, id, edited, keys)
    if given.json:
        named = {"keys": keys.exclusive, "shared": keys.shared}
        told = {name: [show.as_json(key) for key in some] for name, some in named.items()}
        emit({"id": id, "new": put, **told, **names.as_json()})
    elif put is not None:
        print(f"{id}  requeued as {put}")
    return 0 if put is not None else failed(f"there is no dead letter {id} in {given.queue}")


def _names(given: argparse.Namespace, found: Names) -> Names:
    """Return the names of the edited message: the rule's, but for those that were given."""
    from interlock.runtime.concurrency import group_text, names_of, names_text

    if given.new_limit is not None:
        text = names_text(list(filter(None, given.new_limit)), "--new-limit")
        found = replace(found, limit=names_of(text.encode()))
    if given.new_group is not None:
        group = group_text(given.new_group, "--new-group") if given.new_group else None
        found = replace(found, group=group)
    return found


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
        exclusive, shared = stated
        return NewKeys(exclusive, shared), "stated"
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
    from interlock.errors import InterlockError
    from interlock.worker.message.tasks import NotHere
    from interlock.worker.process.app_reference import NoApp, load

    # As in `interlock worker`: the folder of the command is not a place for a program's modules.
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: NewKeys = load(reference, App)._as_tasks().keys_of(edited)
        return found
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
