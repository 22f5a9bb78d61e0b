"""A call of a task as it travels: its name and arguments, as MessagePack, encoded by their types.

An envelope is a map: ``v`` (the version, 1), ``task``, ``args``, ``kwargs``, and, if wanted,
``timeout`` (seconds), ``expires`` (seconds after the put) and ``headers`` (added by middleware).
Any language with a MessagePack library can write one. Arguments are decoded to the function's
annotations; an argument without an annotation is decoded to the plain MessagePack value.
"""

from __future__ import annotations

import contextlib
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from interlock.app.run import item_of
from interlock.errors import PayloadError
from interlock.runtime.limits import MAX_PAYLOAD
from interlock.worker.message.tasks import UnknownVersion

__all__ = ["Call", "Envelope", "Types", "encode_result", "read"]

VERSION = 1
Raw = msgspec.Raw


class Envelope(msgspec.Struct, omit_defaults=True):
    """One call as it is on the wire; its arguments are not decoded yet."""

    v: int
    task: str
    args: list[Raw] = []
    kwargs: dict[str, Raw] = {}
    timeout: float | None = None
    headers: dict[str, str] = {}
    expires: float | None = None


class _Versioned(msgspec.Struct):
    """The part that every version has."""

    v: int


class _Sent(msgspec.Struct, omit_defaults=True):
    v: int
    task: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = {}
    timeout: float | None = None
    headers: dict[str, str] = {}
    expires: float | None = None


@dataclass(slots=True)
class Call:
    """The arguments of one call, decoded."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


class Types:
    """The types that a function's arguments and result are decoded to: its annotations."""

    def __init__(self, function: Callable[..., Any], signature: inspect.Signature) -> None:
        self.name = getattr(function, "__name__", type(function).__name__)
        hints = _hints(function)
        kinds = inspect.Parameter
        self._placed: list[tuple[str, Any]] = []
        self._named: dict[str, Any] = {}
        self._rest: tuple[str, Any] | None = None
        self._rest_named: Any = None
        for each in signature.parameters.values():
            decoder = _decoder(item_of(hints.get(each.name, Any)))
            if each.kind is kinds.VAR_POSITIONAL:
                self._rest = (each.name, decoder)
            elif each.kind is kinds.VAR_KEYWORD:
                self._rest_named = decoder
            else:
                if each.kind is not kinds.KEYWORD_ONLY:
                    self._placed.append((each.name, decoder))
                if each.kind is not kinds.POSITIONAL_ONLY:
                    self._named[each.name] = decoder
        self.returns = hints.get("return", Any) if _known(hints.get("return", Any)) else Any

    def decode(self, envelope: Envelope) -> Call:
        """Return the arguments.

        Raises PayloadError, which names the argument of a wrong type.
        """
        args = []
        for place, raw in enumerate(envelope.args):
            if place < len(self._placed):
                name, decoder = self._placed[place]
            elif self._rest is not None:
                name, decoder = self._rest
            else:
                raise PayloadError(
                    f"{self.name}() was sent {len(envelope.args)} arguments and takes "
                    f"{len(self._placed)}"
                )
            args.append(self._value(name, decoder, raw))
        kwargs = {}
        for name, raw in envelope.kwargs.items():
            decoder = self._named.get(name, self._rest_named)
            if decoder is None:
                raise PayloadError(f"{self.name}() was sent {name!r}, which it does not take")
            kwargs[name] = self._value(name, decoder, raw)
        return Call(tuple(args), kwargs)

    def placed(self, count: int) -> Callable[[bytes], tuple[Any, ...]] | None:
        """Return the decoder for this many positional arguments at once; it raises what msgspec
        raises. None: they have no common type."""
        types = tuple(decoder.type for _, decoder in self._placed[:count])
        try:
            return msgspec.msgpack.Decoder(tuple[types]).decode  # type: ignore[valid-type]
        except TypeError:
            return None

    def _value(self, name: str, decoder: msgspec.msgpack.Decoder[Any], raw: Raw) -> Any:
        try:
            return decoder.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise PayloadError(
                f"argument {name!r} of {self.name}() cannot be decoded: {error}"
            ) from error


def write(
    task: str,
    signature: inspect.Signature,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    timeout: float | None,
    headers: dict[str, str],
    expires: float | None = None,
) -> bytes:
    """Return a call as bytes.

    Raises PayloadError, which names the argument that cannot be encoded.
    """
    try:
        return _encoder.encode(_Sent(VERSION, task, args, kwargs, timeout, headers, expires))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            try:
                _encoder.encode(value)
            except (TypeError, ValueError, OverflowError, RecursionError) as cause:
                raise PayloadError(
                    f"argument {name!r} of {task}() is {type(value).__name__}, which cannot be "
                    f"encoded ({cause}); allowed: types that msgspec supports, such as str, int, "
                    "float, bytes, bool, None, lists, dicts, dates, dataclasses, msgspec.Struct"
                ) from cause
        raise PayloadError(f"the call of {task}() cannot be encoded: {error}") from error


def plain_head(task: str, count: int) -> bytes:
    """Return the first bytes of a call with this many positional arguments and nothing else, up to
    the arguments. If the name or the count is large, the result matches no call."""
    name = task.encode()
    if len(name) > 31 or count > 15:
        return b""
    return b"\x83\xa1v\x01\xa4task%c%b\xa4args%c" % (0xA0 + len(name), name, 0x90 + count)


def read(payload: bytes) -> Envelope:
    """Return the envelope of a message.

    Raises PayloadError if the payload is not an envelope, UnknownVersion if it has a later version,
    which a newer worker knows.
    """
    try:
        found = _envelopes.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            _of_version(_versions.decode(payload).v)
        raise PayloadError(f"the message is not a call of a task: {error}") from error
    if found.v != VERSION:
        _of_version(found.v)
    return found


def _of_version(version: int) -> None:
    if version > VERSION:
        raise UnknownVersion(version, VERSION)
    if version != VERSION:
        raise PayloadError(f"the call has version {version}, this worker supports {VERSION}")


def encode_result(task: str, value: Any) -> bytes:
    """Encode what a handler returned. Raises PayloadError."""
    try:
        found = _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise PayloadError(
            f"{task}() returned {type(value).__name__}, which cannot be encoded: {error}"
        ) from error
    if len(found) > MAX_PAYLOAD:
        raise PayloadError(
            f"{task}() returned {len(found)} bytes when encoded; allowed: up to {MAX_PAYLOAD}"
        )
    return found


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError):
        # The name exists only for type checkers; the other annotations are still resolved.
        return {
            name: hint
            for name, hint in getattr(function, "__annotations__", {}).items()
            if not isinstance(hint, str)
        }


def _decoder(hint: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(hint if _known(hint) else Any)


def _known(hint: Any) -> bool:
    try:
        msgspec.msgpack.Decoder(hint)
    except TypeError:
        # A type that msgspec does not support (a protocol, a type variable) restricts nothing.
        return False
    return True


_encoder = msgspec.msgpack.Encoder()
_envelopes = msgspec.msgpack.Decoder(Envelope)
_versions = msgspec.msgpack.Decoder(_Versioned)
