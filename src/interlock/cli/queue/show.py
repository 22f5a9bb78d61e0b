"""Messages, keys and times formatted for people and for JSON."""

from __future__ import annotations

import base64
import json
import shlex
from argparse import Namespace
from typing import Any

from interlock.cli.tables import printable

Text = str | dict[str, str]
"""Bytes in JSON: a string where they are UTF-8, else an object with `base64`."""


def as_json(data: bytes) -> Text:
    """Return bytes in their JSON form."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def from_json(value: Any) -> bytes:
    """Return the bytes of a JSON form. Raises ValueError if it is neither form."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"}:
        return base64.b64decode(value["base64"], validate=True)
    raise ValueError(f"{value!r}; allowed: a string, or an object with base64")


def key_text(key: bytes) -> str:
    """Return a key on one line."""
    return printable(key.decode(errors="backslashreplace"))


def short_key(key: bytes) -> str:
    """Return a key for a table, shortened: a thousand bytes would fill the screen."""
    text = key_text(key)
    return text if len(text) <= KEY_WIDTH else text[: KEY_WIDTH - 1] + "…"


def keys_text(keys: tuple[bytes, ...], shared: tuple[bytes, ...]) -> str:
    """Return the keys of a message on one line; shared ones are marked."""
    named = [key_text(key) for key in keys] + [f"{key_text(key)} (shared)" for key in shared]
    more = f", and {len(named) - KEYS} more" if len(named) > KEYS else ""
    return ", ".join(named[:KEYS]) + more


def decoded(payload: bytes) -> tuple[str, Any]:
    """Return the detected format of a payload (json, text, msgpack or bytes), and its value."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        text = None
    if text is not None and text.lstrip()[:1] in ("{", "[", '"'):
        try:
            return "json", json.loads(text)
        except ValueError:
            pass
    if text is not None and all(char.isprintable() or char in "\n\t\r" for char in text):
        return "text", text
    found = _msgpack(payload)
    return ("msgpack", found[0]) if found else ("bytes", payload)


def payload_text(payload: bytes, width: int) -> str:
    """Return a payload on one line of at most `width` columns."""
    kind, value = decoded(payload)
    if kind in ("json", "msgpack"):
        try:
            value = json.dumps(value, ensure_ascii=False, default=_plain)
        except (TypeError, ValueError):
            value = repr(value)
    elif kind == "bytes":
        value = "0x" + payload[: width // 2].hex()
    shown = printable(str(value))
    return shown if len(shown) <= width else shown[: width - 1] + "…"


def payload_json(payload: bytes) -> dict[str, Any]:
    """Return a payload for JSON: raw, and decoded if it is JSON or MessagePack."""
    kind, value = decoded(payload)
    found: dict[str, Any] = {"payload": as_json(payload), "format": kind}
    if kind in ("json", "msgpack"):
        try:
            found["value"] = json.loads(json.dumps(value, default=_plain))
        except (TypeError, ValueError):
            found["value"] = repr(value)
    return found


def seconds(value: float | None) -> str:
    """Return a duration for people; empty for none."""
    if value is None:
        return ""
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 60:
        return f"{value:.1f} s"
    whole = int(value)
    for length, large, small, part in UNITS:
        if whole >= length:
            return f"{whole // length} {large} {whole % length // part} {small}"
    return f"{whole} s"


def bar(part: int, whole: int, width: int) -> str:
    """Return a bar in proportion to its part of the whole, at least one mark."""
    return "#" * max(1, round(width * part / whole)) if part and whole else ""


def command(given: Namespace, *words: str) -> str:
    """Return a command of `interlock queue` on the same engine, ready to paste."""
    url = given.url
    # A password would be visible, and the environment's URL also applies to the next command.
    at = ("--url", url) if url and "@" not in url else ()
    return shlex.join(("interlock", "queue", words[0], *words[1:], *at))


def _msgpack(payload: bytes) -> tuple[Any] | None:
    import msgspec

    try:
        return (msgspec.msgpack.decode(payload),)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError):
        return None


def _plain(value: Any) -> Any:
    return as_json(value) if isinstance(value, bytes) else str(value)


KEYS = 4
KEY_WIDTH = 60
UNITS = (
    (86400, "d", "h", 3600),
    (3600, "h", "min", 60),
    (60, "min", "s", 1),
)
