"""The contract as a suite of cases that any engine can be held to.

    from interlock.testing.contract import cases, run

    for case in cases():
        for face in case.faces:
            run(case, MyHarness(), face)

A module per clause, the number in its name; a body is written once and runs against the sync and
the asyncio face. The suite needs no test framework; with pytest, parametrise over `cases()`.
Clause 18 (durability) needs a server to kill and is not among these.
"""

from interlock.testing.contract.registry import BAD_CALL, Case, cases
from interlock.testing.contract.runner import CaseHung, NotHeld, run
from interlock.testing.harness import FACES, Face, Harness

__all__ = ["BAD_CALL", "FACES", "Case", "CaseHung", "Face", "Harness", "NotHeld", "cases", "run"]
