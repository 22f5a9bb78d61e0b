"""Payloads as bytes: encoded by their type, decoded to it."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from interlock.errors import PayloadError
from interlock.limits import MAX_PAYLOAD

CodecName = Literal["msgpack", "json", "pickle"]


class Codec:
    """The encoding of the payloads of one queue.

    Args:
        type: what payloads are; what comes is checked against it. ``bytes`` and ``str`` are stored
            as they are, without a format around them, so that other programs may put and get them.
        name: the format of everything else.
    """

    def __init__(self, type: Any = Any, name: CodecName = "msgpack") -> None:
        if name not in _FORMATS:
            raise ValueError(f"queue(): codec is {name!r}; allowed: 'msgpack', 'json', 'pickle'")
        self._type = type
        self._name = name
        self._encode, decoder = _FORMATS[name]
        self._decode: Callable[[bytes], Any]
        if type is bytes:
            self._encode, self._decode = _bytes, _same
        elif type is str:
            self._encode, self._decode = _str, _text
        else:
            try:
                self._decode = decoder(type)
            except TypeError as error:
                raise TypeError(
                    f"queue(): type is {_name(type)}: {error}; allowed: what msgspec can encode"
                ) from None

    def encode(self, payload: Any, call: str) -> bytes:
        """PayloadError names the call and the payload's type."""
        try:
            encoded = self._encode(payload)
        except Exception as error:
            kind = type(payload).__name__
            raise PayloadError(
                f"{call}: payload is {kind}, which cannot be written as {self._name}: {error}"
            ) from error
        if len(encoded) > MAX_PAYLOAD:
            raise PayloadError(
                f"{call}: payload is {len(encoded)} bytes when encoded; allowed: up to "
                f"{MAX_PAYLOAD}"
            )
        return encoded

    def decode(self, encoded: bytes, id: int) -> Any:
        """PayloadError names the message and what is wrong."""
        try:
            return self._decode(encoded)
        except Exception as error:
            raise PayloadError(
                f"the payload of message {id} is not {_name(self._type)}: {error}", id
            ) from error


def _name(type: Any) -> str:
    return getattr(type, "__name__", None) or str(type)


def _bytes(payload: Any) -> bytes:
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
        if isinstance(wanted, type) and not isinstance(found, wanted):
            raise TypeError(f"it is {_name(type(found))}")
        return found

    return decode


_FORMATS: dict[str, tuple[Callable[[Any], bytes], Callable[[Any], Callable[[bytes], Any]]]] = {
    "msgpack": (msgspec.msgpack.encode, lambda type: msgspec.msgpack.Decoder(type).decode),
    "json": (msgspec.json.encode, lambda type: msgspec.json.Decoder(type).decode),
    "pickle": (pickle.dumps, _pickled),
}
