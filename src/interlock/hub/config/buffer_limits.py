"""Output buffer limits of clients, in Redis's words: client-output-buffer-limit.

The hub's own settings are ``limits.normal.*`` and ``limits.pubsub.*``; this is a second name for
them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

NAME = "client-output-buffer-limit"
CLASSES = {"normal": "normal", "pubsub": "pubsub"}
REPLICAS = ("replica", "slave")
"""Classes that Redis has and the hub has not: accepted, without effect."""

UNITS = {"": 1, "b": 1, "k": 1000, "kb": 1 << 10, "m": 10**6, "mb": 1 << 20, "g": 10**9,
         "gb": 1 << 30}  # fmt: skip


def parse(text: str) -> dict[str, int]:
    """Return the settings for ``class hard soft seconds [...]``, by their keys.

    Raises ValueError with Redis's text.
    """
    words = text.split()
    if len(words) % 4:
        raise ValueError("Wrong number of arguments in buffer limit configuration.")
    found: dict[str, int] = {}
    for name, *numbers in zip(*[iter(words)] * 4, strict=True):
        hard, soft, seconds = map(amount, numbers)
        if hard is None or soft is None or seconds is None or not numbers[2].isdigit():
            raise ValueError(
                "Error in hard, soft or soft_seconds setting in buffer limit configuration."
            )
        if name.lower() in REPLICAS:
            continue
        if name.lower() not in CLASSES:
            raise ValueError("Invalid client class specified in buffer limit configuration.")
        key = f"limits.{name.lower()}"
        found |= {f"{key}.hard": hard, f"{key}.soft": soft, f"{key}.soft_seconds": seconds}
    return found


def shown(settings: Mapping[str, object]) -> str:
    """Return the value as CONFIG GET of Redis has it."""
    classes = []
    for name in CLASSES:
        values = (settings[f"limits.{name}.{part}"] for part in ("hard", "soft", "soft_seconds"))
        classes.append(" ".join([name, *map(str, values)]))
    normal, pubsub = classes
    return f"{normal} slave 0 0 0 {pubsub}"


def amount(text: str) -> int | None:
    """Return a number of bytes such as ``8mb``; None if the text is not one."""
    found = re.fullmatch(r"(\d{1,15})([a-z]*)", text.lower())
    if found is None or found[2] not in UNITS:
        return None
    return int(found[1]) * UNITS[found[2]]
