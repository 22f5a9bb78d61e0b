"""The cases of the suite: one small body each, identified by its clause."""

import importlib
import pkgutil
import re
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

from interlock.testing.contract.trial import Trial
from interlock.testing.harness import FACES, Face, Harness

Body = Callable[[Trial], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Case:
    """One promise of the contract, with the body that tests an engine for it."""

    clause: int
    """The clause's number in the contract; `BAD_CALL` for its last section."""
    name: str
    """Unique in the suite, begins with the clause's number: `03_a_later_message_waits_too`."""
    body: Body
    faces: tuple[Face, ...]
    """Faces that it tests; nearly always both."""

    def unheld(self, harness: Harness) -> str | None:
        """Return the engine's stated reason why it cannot pass this case, or None if it can."""
        reasons = harness.capabilities
        return reasons.get(self.name) or reasons.get(self.clause)


def clause(number: int, *, faces: tuple[Face, ...] = FACES) -> Callable[[Body], Body]:
    """Mark a body as a case of clause `number`; the function's name becomes the case's."""

    def register(body: Body) -> Body:
        prefix = "bad_call" if number == BAD_CALL else f"{number:02}"
        name = f"{prefix}_{body.__name__}"
        if name in _registered:
            raise ValueError(f"two cases are called {name}")
        _registered[name] = Case(number, name, body, faces)
        return body

    return register


def cases() -> Iterator[Case]:
    """Yield every case, by clause, then in source order.

    Raises RuntimeError under `python -O`, which would strip the assertions and pass everything.
    """
    if not __debug__:
        raise RuntimeError("cases() needs assertions; run without -O")
    package = importlib.import_module("interlock.testing.contract")
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if _OF_CASES.fullmatch(module.name.rpartition(".")[2]):
            importlib.import_module(module.name)
    yield from sorted(_registered.values(), key=lambda case: case.clause)


BAD_CALL = 99
"""Behind all clauses: the contract's last section, "What a bad call gets"."""

_OF_CASES = re.compile(r"c\d\d_\w+|bad_calls")
_registered: dict[str, Case] = {}
