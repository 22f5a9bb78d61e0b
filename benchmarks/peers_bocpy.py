"""bocpy's side: behaviours over one or two cowns, each with as little to do as the check needs.

A module of its own, for bocpy loads the module of its behaviours into every worker's interpreter,
and neither the other peers nor our native module should go there.
"""

from __future__ import annotations

import bocpy

from benchmarks.drive import Clock
from benchmarks.row import Sample


def on_one(account, number):  # type: ignore[no-untyped-def]
    """Count the number, and whether it came after a larger one."""
    last, count, wrong = account.value
    account.value = (number, count + 1, wrong + (number < last))


def on_two(account, other, number):  # type: ignore[no-untyped-def]
    """Count the number on both, as `on_one` does."""
    last, count, wrong = account.value
    account.value = (number, count + 1, wrong + (number < last))
    last, count, wrong = other.value
    other.value = (number, count + 1, wrong + (number < last))


def workers() -> int:
    """Return as many workers as bocpy starts unasked: one less than there are cores."""
    count: int = bocpy.WORKER_COUNT
    return count


def behaviours(messages: int, keys: int, lanes: int, step: int) -> Sample:
    """Schedule that many, and wait until all have run.

    A behaviour takes a cown, or that and another `step` further on.
    """
    # Typed or not as bocpy is installed or not.
    bocpy.start(module=(__name__, __file__))  # type: ignore[no-untyped-call, unused-ignore]
    cowns = [bocpy.Cown((-1, 0, 0)) for _ in range(lanes)]
    call = bocpy.whencall
    call(on_one, [bocpy.Cown((-1, 0, 0))], [0])
    bocpy.quiesce()
    clock = Clock()
    if keys == 1:
        for number in range(messages):
            call(on_one, [cowns[number % lanes]], [number])
    else:
        for number in range(messages):
            call(on_two, [cowns[number % lanes], cowns[(number + step) % lanes]], [number])
    bocpy.quiesce()
    seconds = clock.seconds()
    done = misordered = 0
    for cown in cowns:
        with cown:
            _, count, wrong = cown.value
        done += count
        misordered += wrong
    del cown, cowns
    bocpy.wait()
    return Sample.each(seconds, messages, lost=messages * keys - done, misordered=misordered)
