"""Payloads as bytes: encoded by their type, decoded to it."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from interlock.errors import PayloadError
from interlock.runtime.limits import MAX_PAYLOAD

CodecName = Literal["msgpack", "json", "pickle"]


class Codec:
    """The encoding of the payloads of one queue.

    Args:
        type: the type of the payloads; received payloads are checked against it. ``bytes`` and
            ``str`` are stored as they are, without a format around them, so that other programs may
            put and get them.
        name: the format of everything else.
    """

    def __init__(self, type: Any = Any, name: CodecName = "msgpack") -> None:
        if name not in _FORMATS:
            raise ValueError(f"queue(): codec is {name!r}; allowed: 'msgpack', 'json', 'pickle'")
        self._type = type
        self._name = name
        self.write: Callable[[Any], bytes]
        """Encoder of payloads; `unwritable` puts any exception of it into words."""
        self.read: Callable[[bytes], Any]
        """Decoder of payloads; `unreadable` puts any exception of it into words."""
        self.write, decoder = _FORMATS[name]
        if type is bytes:
            self.write, self.read = _bytes, _same
        elif type is str:
            self.write, self.read = _str, _text
        else:
            try:
                self.read = decoder(type)
            except TypeError as error:
                raise TypeError(
                    f"queue(): type is {_name(type)}: {error}; allowed: what msgspec can encode"
                ) from None

    def unwritable(self, payload: Any, call: str, error: Exception) -> PayloadError:
        """Return the error for a payload that `write` rejects."""
        kind = type(payload).__name__
        return PayloadError(
            f"{call}: payload is {kind}, which cannot be written as {self._name}: {error}"
        )

    def too_long(self, encoded: bytes, call: str) -> PayloadError:
        """Return the error for a payload that exceeds the maximum length."""
        return PayloadError(
            f"{call}: payload is {len(encoded)} bytes when encoded; allowed: up to {MAX_PAYLOAD}"
        )

    def decode(self, encoded: bytes, id: int) -> Any:
        """Return the payload of a message; PayloadError names the message and what is wrong."""
        try:
            return self.read(encoded)
        except Exception as error:
            raise self.unreadable(id, error) from error

    def unreadable(self, id: int, error: Exception) -> PayloadError:
        """Return the error for the payload of a message that `read` rejects."""
        return PayloadError(f"the payload of message {id} is not {_name(self._type)}: {error}", id)

    def or_bytes(self, encoded: bytes) -> Any:
        """Return the payload; its bytes if it cannot be decoded."""
        try:
            return self.read(encoded)
        except Exception:
            return encoded


def encode_result(result: Any) -> bytes:
    """Return the result of a handler, as MessagePack."""
    try:
        encoded = msgspec.msgpack.encode(result)
    except Exception as error:
        raise PayloadError(
            f"ack(): result is {type(result).__name__}, which cannot be written as msgpack: {error}"
        ) from error
    if len(encoded) > MAX_PAYLOAD:
        raise PayloadError(
            f"ack(): result is {len(encoded)} bytes when encoded; allowed: up to {MAX_PAYLOAD}"
        )
    return encoded


def decode_result(encoded: bytes, id: int, wanted: Any) -> Any:
    """Return the result of a message, decoded to a type."""
    try:
        return msgspec.msgpack.decode(encoded, type=wanted)
    except Exception as error:
        raise PayloadError(f"the result of message {id}: {error}", id) from error


def _name(type: Any) -> str:
    return getattr(type, "__name__", None) or str(type)


def _bytes(payload: Any) -> bytes:
    if payload.__class__ is bytes:
        return payload
    if not isinstance(payload, bytes | bytearray | memoryview):
        raise TypeError("allowed: bytes")
    return bytes(payload)


def _str(payload: Any) -> bytes:
    if not isinstance(payload, str):
        raise TypeError("allowed: str")
    return payload.encode()


def _same(encoded: bytes) -> bytes:
    return encoded


def _text(encoded: bytes) -> str:
    return encoded.decode()


def _pickled(wanted: Any) -> Callable[[bytes], Any]:
    def decode(encoded: bytes) -> Any:
        found = pickle.loads(encoded)
        if wanted is not Any and isinstance(wanted, type) and not isinstance(found, wanted):
            raise TypeError(f"it is {_name(type(found))}")
        return found

    return decode


_FORMATS: dict[str, tuple[Callable[[Any], bytes], Callable[[Any], Callable[[bytes], Any]]]] = {
    "msgpack": (msgspec.msgpack.encode, lambda type: msgspec.msgpack.Decoder(type).decode),
    "json": (msgspec.json.encode, lambda type: msgspec.json.Decoder(type).decode),
    "pickle": (pickle.dumps, _pickled),
}
