"""The seed of a test that leaves something to chance."""

import os
import random


def seed() -> int:
    """Return INTERLOCK_SEED where it is given, else a number by `--randomly-seed` and the test's
    name. It is printed, and shown when the test fails: given as INTERLOCK_SEED it repeats the
    test."""
    given = os.environ.get("INTERLOCK_SEED")
    found = int(given) if given else random.randrange(2**32)
    print(f"INTERLOCK_SEED={found}")
    return found
