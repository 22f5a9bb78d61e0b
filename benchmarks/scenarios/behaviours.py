"""The executor beside bocpy, the other exact order on several keys that there is in Python.

bocpy's workers are interpreters of their own; only from CPython 3.12 on has each its own lock, and
below that it is three times slower. So these rows run, both sides, on an interpreter that shows it
at its best (see interpreters.py).
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.drive import Clock
from benchmarks.row import Row, Sample, alternating
from interlock import KeyedExecutor

LANES = 100
STEP = 37
OURS = 60_000
PEER = 30_000


def submitted(keys: int) -> Callable[[], Sample]:
    """Return a run that submits its messages and waits until all have run.

    Each has this number of keys; nobody asks for a result.
    """

    def run() -> Sample:
        from benchmarks import peers_bocpy

        names = [f"account:{number}" for number in range(LANES)]
        accounts = dict.fromkeys(names, (-1, 0, 0))

        def on_one(account: str, number: int) -> None:
            last, count, wrong = accounts[account]
            accounts[account] = (number, count + 1, wrong + (number < last))

        def on_two(account: str, other: str, number: int) -> None:
            last, count, wrong = accounts[account]
            accounts[account] = (number, count + 1, wrong + (number < last))
            last, count, wrong = accounts[other]
            accounts[other] = (number, count + 1, wrong + (number < last))

        executor = KeyedExecutor(peers_bocpy.workers())
        executor.submit(int).result()
        submit = executor.submit_keyed
        clock = Clock()
        if keys == 1:
            for number in range(OURS):
                account = names[number % LANES]
                submit(account, on_one, account, number)
        else:
            for number in range(OURS):
                pair = names[number % LANES], names[(number + STEP) % LANES]
                submit(pair, on_two, *pair, number)
        executor.shutdown()
        seconds = clock.seconds()
        done = sum(count for _, count, _ in accounts.values())
        misordered = sum(wrong for _, _, wrong in accounts.values())
        return Sample.each(seconds, OURS, lost=OURS * keys - done, misordered=misordered)

    return run


def _scheduled(keys: int) -> Callable[[], Sample]:
    def run() -> Sample:
        from benchmarks import peers_bocpy

        return peers_bocpy.behaviours(PEER, keys, LANES, STEP)

    return run


ROWS = tuple(
    Row(
        name=f"behaviours/{keys}-key" + ("" if keys == 1 else "s"),
        title=f"submit + run, {keys} key" + ("" if keys == 1 else "s"),
        peer="bocpy behaviours",
        bar=bar,
        prototype=prototype,
        pair=alternating(submitted(keys), _scheduled(keys)),
        runner="behaviours",
    )
    for keys, bar, prototype in ((1, 0.4, 0.40), (2, 0.5, 0.50))
)
