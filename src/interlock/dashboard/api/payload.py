"""Payloads as people read and edit them: calls of tasks, JSON, text, else bytes.

No program's types are needed: MessagePack becomes JSON, in which bytes are base64 text.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import json
import math
from dataclasses import dataclass, field
from typing import Any

import msgspec

from interlock.app import envelope
from interlock.dashboard.refusal import Refusal
from interlock.errors import InterlockError
from interlock.runtime.limits import MAX_PAYLOAD
from interlock.worker.message.tasks import UnknownVersion

SHOWN = 262_144
"""Characters of a payload that are shown; a longer one is cut, and cannot be edited."""
SAFE = 2**53 - 1
"""The largest whole number that a browser does not round."""
DEEPEST = 100
"""Levels of lists and maps that are shown."""


@dataclass(slots=True)
class Payload:
    """A payload, parsed."""

    kind: str
    """``task``, ``json``, ``text`` or ``binary``."""
    text: str
    edit: bool
    """True if it can be requeued with edits."""
    task: str | None = None
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    size: int = 0


def read(data: bytes) -> Payload:
    """Return a payload for people."""
    found = _task(data) or _text(data) or _packed(data)
    if found is None:
        found = Payload("binary", data[: SHOWN // 2].hex(), edit=False)
        found.cut = len(data) > SHOWN // 2
    if len(found.text) > SHOWN:
        found = Payload(found.kind, found.text[:SHOWN], False, found.task, cut=True)
    found.size = len(data)
    return found


def task_of(data: bytes) -> str | None:
    """Return the name of the task that a payload calls; None if it is not a call."""
    # A MessagePack map: up to 15 pairs, or with its size in 16 bits.
    if not data or not (0x80 <= data[0] <= 0x8F or data[0] == 0xDE):
        return None
    try:
        return _heads.decode(data).task
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def edited(data: bytes, given: dict[str, Any]) -> bytes:
    """Return a payload with the edits: ``args`` and ``kwargs`` of a call, or ``text``.

    Unchanged arguments keep their bytes, whatever their type.
    """
    known = read(data)
    if not known.edit:
        raise Refusal(409, f"a payload of kind {known.kind!r} like this one cannot be edited")
    if known.kind == "task" and "text" in given:
        raise Refusal(400, f"it is a call of {known.task}; edit its args and kwargs, not its text")
    made = _edited_call(data, known, given) if known.kind == "task" else _edited_text(known, given)
    if len(made) > MAX_PAYLOAD:
        raise Refusal(400, f"the payload has {len(made)} bytes; allowed: up to {MAX_PAYLOAD}")
    return made


def _edited_text(known: Payload, given: dict[str, Any]) -> bytes:
    text = given.get("text")
    if not isinstance(text, str):
        raise Refusal(400, "text is missing; allowed: the payload as text")
    if known.kind == "json":
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Refusal(400, f"text is not JSON: {error}") from None
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Refusal(400, "text has a lone surrogate") from None


def _edited_call(data: bytes, known: Payload, given: dict[str, Any]) -> bytes:
    args, kwargs = given.get("args", known.args), given.get("kwargs", known.kwargs)
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise Refusal(400, "args must be a list, and kwargs an object")
    found = envelope.read(data)
    before = dict(enumerate(zip(known.args, found.args, strict=True)))
    named = {name: (known.kwargs[name], raw) for name, raw in found.kwargs.items()}
    found.args = [_written(value, before.get(place)) for place, value in enumerate(args)]
    found.kwargs = {name: _written(value, named.get(name)) for name, value in kwargs.items()}
    try:
        return _encoder.encode(found)
    except (ValueError, OverflowError, RecursionError) as error:
        raise Refusal(400, f"the arguments cannot be encoded: {error}") from None


def _written(value: Any, before: tuple[Any, msgspec.Raw] | None) -> msgspec.Raw:
    """Return an argument as MessagePack; its original bytes if unchanged."""
    if before is not None:
        shown, raw = before
        if _same(value, shown):
            return raw
        value = _merged(value, shown, msgspec.msgpack.decode(raw))
    try:
        return msgspec.Raw(_encoder.encode(value))
    except (ValueError, OverflowError, RecursionError) as error:
        raise Refusal(400, f"an argument cannot be encoded: {error}") from None


def _merged(value: Any, shown: Any, original: Any) -> Any:
    """Return an edited value, whose unchanged parts are as in the original.

    Bytes, dates and the like keep their type next to the edits.
    """
    if _same(value, shown):
        return original
    if isinstance(value, list) and isinstance(original, list):
        known = list(zip(shown, original, strict=True))
        rest = value[len(known) :]
        pairs = zip(value, known, strict=False)
        return [_merged(one, *before) for one, before in pairs] + rest
    if isinstance(value, dict) and isinstance(original, dict):
        # A name that is not text was shown as text.
        names = {name if isinstance(name, str) else str(plain(name)): name for name in original}
        return {
            names.get(name, name): (
                _merged(one, shown[name], original[names[name]]) if name in names else one
            )
            for name, one in value.items()
        }
    return value


def _same(one: Any, other: Any) -> bool:
    # 1.0 comes back from a browser as 1; True is not a number there.
    return bool(one == other) and _shape(one) == _shape(other)


def _shape(value: Any) -> Any:
    """Return the places of booleans, which Python compares equal to 1 and 0."""
    if isinstance(value, list):
        return [_shape(one) for one in value]
    if isinstance(value, dict):
        return {name: _shape(one) for name, one in value.items()}
    return isinstance(value, bool)


def _task(data: bytes) -> Payload | None:
    if task_of(data) is None:
        return None
    try:
        found = envelope.read(data)
        args = [plain(msgspec.msgpack.decode(raw)) for raw in found.args]
        kwargs = {name: plain(msgspec.msgpack.decode(raw)) for name, raw in found.kwargs.items()}
        text = _json({"args": args, "kwargs": kwargs})
    except (InterlockError, UnknownVersion, *UNREADABLE):
        return None
    is_exact = _is_safe(args) and _is_safe(kwargs)
    return Payload("task", text, is_exact, found.task, args, kwargs, dict(found.headers))


def _text(data: bytes) -> Payload | None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if text.lstrip()[:1] in ("{", "[", '"'):
        with contextlib.suppress(ValueError, RecursionError):
            json.loads(text)
            return Payload("json", text, edit=True)
    if all(char.isprintable() or char in "\n\t\r" for char in text[:SHOWN]):
        return Payload("text", text, edit=True)
    return None


def _packed(data: bytes) -> Payload | None:
    """Return a MessagePack value that is not a call."""
    try:
        value = msgspec.msgpack.decode(data)
        if not isinstance(value, dict | list | str):
            return None
        return Payload("json", _json(plain(value)), edit=False)
    except UNREADABLE:
        return None


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value as JSON; raise RecursionError if it is nested too deep."""
    if depth > DEEPEST:
        raise RecursionError
    if isinstance(value, dict):
        return {
            name if isinstance(name, str) else str(plain(name)): plain(one, depth + 1)
            for name, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [plain(one, depth + 1) for one in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, msgspec.msgpack.Ext):
        return {"ext": value.code, "data": base64.b64encode(value.data).decode()}
    return value.isoformat() if isinstance(value, datetime.datetime) else value


def _is_safe(value: Any) -> bool:
    """Return whether a browser returns the value unchanged."""
    if isinstance(value, list):
        return all(map(_is_safe, value))
    if isinstance(value, dict):
        return all(map(_is_safe, value.values()))
    return not isinstance(value, int) or abs(value) <= SAFE


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


UNREADABLE = (msgspec.MsgspecError, ValueError, TypeError, RecursionError)
"""Exceptions of parsing bytes that are not MessagePack, or cannot be shown as JSON."""


class _Head(msgspec.Struct):
    v: int
    task: str


_heads = msgspec.msgpack.Decoder(_Head)
_encoder = msgspec.msgpack.Encoder()
