"""The executor beside ThreadPoolExecutor, on one core: what a submit and its future cost."""

from __future__ import annotations

from benchmarks import peers
from benchmarks.drive import Clock, faults, on_one_core
from benchmarks.row import Row, Sample, alternating
from interlock import KeyedExecutor

LANES = 1_000
KEYS = [f"account:{number}" for number in range(LANES)]
WAVE = 1_000
OURS_WAVES = 60
PEER_WAVES = 15
ROUND_TRIPS = 10_000


def waves() -> Sample:
    """Measure two workers: submit a wave of 1,000, then take each result."""
    log: list[int] = []

    def handle(number: int) -> int:
        log.append(number)
        return number

    lost = 0
    with KeyedExecutor(2) as executor:
        executor.submit(int).result()
        submit = executor.submit_keyed
        clock = Clock()
        for start in range(0, OURS_WAVES * WAVE, WAVE):
            numbers = range(start, start + WAVE)
            futures = [submit(KEYS[number % LANES], handle, number) for number in numbers]
            for number, future in zip(numbers, futures, strict=True):
                if future.result() != number:
                    lost += 1
        seconds = clock.seconds()
    messages = OURS_WAVES * WAVE
    gone, misordered = faults(log, messages, lambda number: number % LANES)
    return Sample.each(seconds, messages, lost=lost + gone, misordered=misordered)


def round_trips() -> Sample:
    """Measure two workers: submit one, wait for its result."""

    def handle(number: int) -> int:
        return number

    lost = 0
    with KeyedExecutor(2) as executor:
        executor.submit(int).result()
        submit = executor.submit_keyed
        clock = Clock()
        for number in range(ROUND_TRIPS):
            if submit("room", handle, number).result() is not number:
                lost += 1
        seconds = clock.seconds()
    return Sample.each(seconds, ROUND_TRIPS, lost=lost)


ROWS = (
    Row(
        name="executor/throughput",
        title="submit_keyed + result, 2 workers, pinned",
        peer="ThreadPoolExecutor",
        bar=0.20,
        prototype=0.12,
        pair=alternating(
            on_one_core(waves), on_one_core(lambda: peers.pool_waves(PEER_WAVES, WAVE, LANES))
        ),
    ),
    Row(
        name="executor/round-trip",
        title="submit to result, round trip, pinned",
        peer="ThreadPoolExecutor",
        bar=0.7,
        prototype=0.57,
        pair=alternating(
            on_one_core(round_trips), on_one_core(lambda: peers.pool_round_trips(ROUND_TRIPS))
        ),
    ),
)
