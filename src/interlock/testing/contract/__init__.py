"""The contract as a suite of test cases for any engine.

    from interlock.testing.contract import cases, run

    for case in cases():
        for face in case.faces:
            run(case, MyHarness(), face)

One module per clause, named by its number; a body is written once and runs against the sync and the
asyncio face. The suite needs no test framework; with pytest, parametrise over `cases()`. Clause 18
(durability) needs a server to kill and is not included.
"""

from interlock.testing.contract.registry import BAD_CALL, Case, cases
from interlock.testing.contract.runner import CaseHung, NotHeld, run
from interlock.testing.harness import FACES, Face, Harness

__all__ = ["BAD_CALL", "FACES", "Case", "CaseHung", "Face", "Harness", "NotHeld", "cases", "run"]
