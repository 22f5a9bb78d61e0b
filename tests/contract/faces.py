"""The cases of the suite with the faces of a queue on which each is run."""

import os
from typing import Any

import pytest

from interlock.testing.contract import cases

# The engine on which each case runs with the face that it does not use on the others.
OTHER = 1


def faced(place: int = 0) -> list[Any]:
    """Return each case with each of its faces; with INTERLOCK_SHARES=1 with one, by INTERLOCK_SEED.

    With another `place` that is another one. So a run of the CI tries each case with each face, and
    two runs each case with each face on each engine.
    """
    half = bool(os.environ.get("INTERLOCK_SHARES"))
    place += int(os.environ.get("INTERLOCK_SEED", "0"))
    return [
        pytest.param(case, face, id=f"{case.name}-{face}")
        for number, case in enumerate(cases())
        for at, face in enumerate(case.faces)
        if not half or at == (number + place) % len(case.faces)
    ]
