"""Operations that change messages and queues, for a dashboard that was started to write."""

from __future__ import annotations

import base64
import contextlib
import time
from typing import Any, Literal

from interlock.client.admin.operator import Operator
from interlock.client.admin.task_keys import ask_workers
from interlock.client.request import Argument
from interlock.client.wire.records import Names, NewKeys, Stored
from interlock.dashboard.api import payload
from interlock.dashboard.api.call import Call, Route
from interlock.dashboard.api.messages import Keep, anchor, matching
from interlock.dashboard.paths import message_id
from interlock.dashboard.refusal import Refusal
from interlock.runtime.limits import MAX_KEY_BYTES, MAX_KEYS_ON_REDIS

THEN = ("retry", "hold", "dead", "skip")
KEYS = 1_000
"""Keys of one request to pause or resume."""
BATCH = 1_000
"""Dead letters that one request requeues or discards."""
EDITED = ("args", "kwargs", "text")
"""The parts of a payload that may be edited."""
STATED = ("keys", "shared")
"""The keys of an edited message, if no rule computes them."""
NAMED = ("limit", "group", "run")
"""Its names, stated next to the keys."""
CHOSEN = ("task", "error", "key", "group", "after", "until")
"""Filters of dead letters, and the place where a request continues."""
PATIENCE = 1.0
"""Seconds after which it reports the number so far."""
PAGE = 256


def _change(function: str) -> Route:
    async def change(call: Call) -> dict[str, Any]:
        queue, id = call.queue, message_id(call.names[1])
        arguments: tuple[Argument, ...] = (id,)
        if function == "revoke":
            then = call.json("then").get("then", "retry")
            if then not in THEN:
                raise Refusal(400, f"then is {str(then)[:40]!r}; allowed: {', '.join(THEN)}")
            arguments += (then,)
        return {"changed": await call.access.run(Operator.change, function, queue, *arguments)}

    return Route("POST", f"queues/*/messages/*/{function}", change, writes=True)


async def requeue(call: Call) -> dict[str, Any]:
    """Requeue a dead letter, unchanged or edited."""
    queue, id, given = call.queue, message_id(call.names[1]), call.json(*EDITED, *STATED, *NAMED)
    return await call.access.run(_requeue, queue, id, given)


def _requeue(operator: Operator, queue: str, id: int, given: dict[str, Any]) -> dict[str, Any]:
    edited = keys = None
    if given:
        letter = _letter(operator, queue, id)
        edited = payload.edited(letter.payload, given) if _edits(given) else letter.payload
        if any(name in given for name in (*STATED, *NAMED)):
            exclusive, shared = (listed(given.get(name) or [], name) for name in STATED)
            keys = NewKeys(exclusive, shared, _names(given))
        else:
            keys, why = _computed(operator, queue, edited)
            if keys is None:
                raise Refusal(
                    409,
                    f"the keys of the edited message are not known: {why}; "
                    f"state them as keys and shared",
                )
    new = operator.requeue(queue, id, edited, keys)
    return {"changed": new is not None, "id": None if new is None else str(new)}


def _names(given: dict[str, Any]) -> Names | None:
    try:
        return Names.of_json(given)
    except (TypeError, ValueError) as error:
        raise Refusal(400, str(error)) from None


async def edited_keys(call: Call) -> dict[str, Any]:
    """Return the keys and names of a dead letter, and as edited."""
    queue, id, given = call.queue, message_id(call.names[1]), call.json(*EDITED)
    return await call.access.run(_edited_keys, queue, id, given)


def _edited_keys(operator: Operator, queue: str, id: int, given: dict[str, Any]) -> dict[str, Any]:
    letter = _letter(operator, queue, id)
    keys, text = _computed(operator, queue, payload.edited(letter.payload, given))
    return {
        "old": _told(NewKeys(letter.keys, letter.shared, letter.names)),
        "new": None if keys is None else _told(keys),
        "by" if keys else "why": text,
        "barrier": "BARRIER" in letter.options,
    }


def _letter(operator: Operator, queue: str, id: int) -> Stored:
    letter = operator.peek(queue, id)
    if letter is None or letter.state != "dead":
        raise Refusal(404, f"there is no dead letter {id} in queue {queue!r}")
    return letter


def _edits(given: dict[str, Any]) -> bool:
    return any(name in given for name in EDITED)


def _computed(operator: Operator, queue: str, edited: bytes) -> tuple[NewKeys | None, str]:
    """Return the keys by the task's own rule and the worker that knows it, or the reason."""
    if payload.task_of(edited) is None:
        return None, "it is not a call of a task, so no rule gives its keys"
    answer = ask_workers(operator, queue, edited)
    return answer.keys, answer.text


def _told(keys: NewKeys) -> dict[str, Any]:
    """Return keys for JSON, text where they are UTF-8, else an object with `base64`; and names."""
    told = {"keys": [*map(_key, keys.exclusive)], "shared": [*map(_key, keys.shared)]}
    return told if keys.names is None else told | keys.names.as_json()


def _key(key: bytes) -> str | dict[str, str]:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(key).decode()}


def _gate(function: Literal["pause", "resume"]) -> Route:
    async def gate(call: Call) -> dict[str, Any]:
        keys = keys_of(call.json("keys").get("keys"))
        changed = await call.access.run(Operator.gate, function, call.queue, keys)
        return {"changed": any(changed)}

    return Route("POST", f"queues/*/{function}", gate, writes=True)


def keys_of(given: Any) -> tuple[bytes, ...]:
    """Return the keys that were sent; empty for None, which is the queue itself."""
    if given is None:
        return ()
    if not isinstance(given, list) or not 1 <= len(given) <= KEYS:
        raise Refusal(400, f"keys must be null for the queue, or a list of 1 to {KEYS} keys")
    return listed(given, "keys")


def listed(given: Any, name: str) -> tuple[bytes, ...]:
    """Return the keys of a list: each text, or an object with `base64`."""
    if not isinstance(given, list) or len(given) > MAX_KEYS_ON_REDIS:
        raise Refusal(400, f"{name} must be a list of at most {MAX_KEYS_ON_REDIS} keys")
    found = []
    for key in given:
        data = key.encode(errors="replace") if isinstance(key, str) else b""
        if isinstance(key, dict) and key.keys() == {"base64"} and isinstance(key["base64"], str):
            with contextlib.suppress(ValueError):
                data = base64.b64decode(key["base64"], validate=True)
        if not 1 <= len(data) <= MAX_KEY_BYTES:
            raise Refusal(400, f"a key is text of 1 to {MAX_KEY_BYTES} bytes")
        found.append(data)
    return tuple(found)


def _seal(function: str) -> Route:
    async def seal(call: Call) -> dict[str, Any]:
        return {"changed": await call.access.run(Operator.change, function, call.queue)}

    return Route("POST", f"queues/*/{function}", seal, writes=True)


def _all_dead(function: Literal["requeue", "discard"]) -> Route:
    async def change(call: Call) -> dict[str, Any]:
        given = call.json(*CHOSEN)
        key, task, error, group = (_text(given, one) for one in ("key", "task", "error", "group"))
        keep = matching("", key, task, error, group)
        after, until = _text(given, "after"), _text(given, "until")
        bound = message_id(until) if until else None
        return await call.access.run(_each, function, call.queue, keep, after, bound)

    return Route("POST", f"queues/*/dead/{function}", change, writes=True)


def _text(given: dict[str, Any], name: str) -> str:
    found = given.get(name)
    if found is None:
        return ""
    if not isinstance(found, str) or len(found) > 1024:
        raise Refusal(400, f"{name} must be text of up to 1024 characters")
    return found


def _each(
    operator: Operator,
    function: Literal["requeue", "discard"],
    queue: str,
    keep: Keep,
    after: str,
    until: int | None,
) -> dict[str, Any]:
    """Requeue or discard the matching dead letters, as many as time allows."""
    changed, at = 0, anchor(operator, queue, after)
    stop = time.monotonic() + PATIENCE
    while True:
        _, some = operator.page(queue, at, PAGE, "dead")
        for one in some:
            if changed >= BATCH or time.monotonic() > stop:
                return _so_far(changed, at, until)
            if (until is not None and one.id >= until) or not keep(one):
                # It stays, so the next ones are found behind it.
                at = str(one.id).encode()
            elif function == "discard":
                changed += operator.discard(queue, one.id)
            elif (new := operator.requeue(queue, one.id)) is not None:
                changed += 1
                # Later deaths are left alone: they may be messages requeued here.
                until = until or new
        if not some:
            return {"changed": changed, "left": False}


def _so_far(changed: int, at: bytes, until: int | None) -> dict[str, Any]:
    """Return an answer with the place where the next request continues."""
    after = None if at == b"0" else at.decode()
    return {"changed": changed, "left": True, "after": after, "until": until and str(until)}


ROUTES = (
    *map(_change, ("retry", "skip", "bury", "cancel", "revoke", "discard")),
    Route("POST", "queues/*/messages/*/requeue", requeue, writes=True),
    Route("POST", "queues/*/messages/*/keys", edited_keys, writes=True),
    _gate("pause"),
    _gate("resume"),
    _seal("seal"),
    _seal("reopen"),
    _all_dead("requeue"),
    _all_dead("discard"),
)
