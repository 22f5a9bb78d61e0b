"""Transfers between accounts: two keys each, a rate table that all read, and handlers that crash.

A transfer holds both its accounts alone and the rates together with the others; a change of the
rates holds them alone. Some handlers crash half way, when the money has left one account and not
reached the other. The message is redelivered in its place, and finds by its own number what is
already done. No lock, no deadlock, and no cent lost.

    python examples/transfers.py                                  in this process
    python examples/transfers.py --url redis://127.0.0.1:6379     the same on Redis
"""

import argparse
import logging
import random
from collections import Counter

from interlock import App, Job, Retry, current_lease

ACCOUNTS = 20
TRANSFERS = 500

app = App(audit=True)
balances = [10_000] * ACCOUNTS
rates = {"fee": 1}
taken: set[int] = set()
given: set[int] = set()
counted = Counter[str]()


@app.task(
    keys=["account:{source}", "account:{target}"],
    shared="rates",
    queue="transfers",
    retry=Retry(first=0),
    result_ttl=60,
)
def move(number: int, source: int, target: int, cents: int) -> int:
    fee = rates["fee"]
    if number not in taken:
        balances[source] -= cents + fee
        taken.add(number)
        counted["fees"] += fee
    if current_lease().attempt == 1 and number % 10 == 0:
        counted["crashes"] += 1
        raise ConnectionError("the line broke")
    if number not in given:
        balances[target] += cents
        given.add(number)
    return fee


@app.task(keys="rates", queue="transfers")
def set_fee(cents: int) -> None:
    # No transfer is under way: they share the key that is held alone here.
    assert taken == given
    rates["fee"] = cents


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", help="the engine (memory://)")
    app.url = parser.parse_args().url
    logging.disable()  # each crash is logged; fifty tracebacks would be in the way here
    chance = random.Random(7)
    with app, app.worker(threads=8, queues=["transfers"]) as worker:
        jobs: list[Job[int]] = []
        for number in range(TRANSFERS):
            if number == TRANSFERS // 2:
                set_fee.send(2)
            source, target = chance.sample(range(ACCOUNTS), 2)
            jobs.append(move.send(number, source, target, chance.randint(1, 50)))
        fees = [job.result(timeout=30) for job in jobs]

    assert sum(balances) + counted["fees"] == 10_000 * ACCOUNTS
    assert counted["crashes"] == TRANSFERS // 10
    # A transfer that was sent before the change paid the old fee, one sent after it the new one.
    assert fees == [1] * (TRANSFERS // 2) + [2] * (TRANSFERS // 2)
    assert worker.figures().violations == 0
    print(f"{TRANSFERS} transfers, {counted['crashes']} crashes, no cent lost")


if __name__ == "__main__":
    main()
