"""The seed of a test that leaves something to chance."""

import os
import random
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def seed() -> int:
    """Return INTERLOCK_SEED where it is given, else a number by `--randomly-seed` and the test's
    name. It is printed, and shown when the test fails: given as INTERLOCK_SEED it repeats the
    test."""
    given = os.environ.get("INTERLOCK_SEED")
    found = int(given) if given else random.randrange(2**32)
    print(f"INTERLOCK_SEED={found}")
    return found


def share(cases: Iterable[T]) -> list[T]:
    """Return the cases of a long test; with INTERLOCK_SHARES=1 every other one, by INTERLOCK_SEED.

    So two runs try all of them. A test that takes more than three seconds is marked instead, with
    `@pytest.mark.share(n)`.
    """
    found = list(cases)
    if not os.environ.get("INTERLOCK_SHARES"):
        return found
    return found[int(os.environ.get("INTERLOCK_SEED", "0")) % 2 :: 2]


def turn(kinds: Iterable[T]) -> list[T]:
    """Return the kinds of things that take long to prepare; with INTERLOCK_SHARES=1 one of them, by
    INTERLOCK_SEED."""
    found = list(kinds)
    if not os.environ.get("INTERLOCK_SHARES"):
        return found
    return [found[int(os.environ.get("INTERLOCK_SEED", "0")) % len(found)]]
