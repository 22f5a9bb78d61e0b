"""The naive model of a queue: how long a message backs off, and the errors that it keeps."""

from __future__ import annotations


def backoff(id: int, attempt: int, first: int, factor: int, longest: int, jitter: int) -> int:
    """Return the µs until the next attempt; the factor is in thousandths."""
    plain = float(first)
    for _ in range(1, min(attempt, 1001)):
        plain *= factor / 1000
    whole = int(min(plain, longest))
    if not jitter:
        return whole
    half = whole // 2
    part = ((id % 16777213) * 40503 + attempt * 9973) % 65536 / 65536
    return half + int((whole - half) * part)


def history(before: str, error: str, attempt: int, now: int, most: int) -> str:
    """Return the errors of all attempts, the newest first, as many as fit."""
    text = error.translate({0x1E: " ", 0x1F: " "})
    kept = [f"{text}\x1f{attempt}\x1f{now}"]
    for older in before.split("\x1e") if before else ():
        if len("\x1e".join([*kept, older])) > most:
            break
        kept.append(older)
    return "\x1e".join(kept)
