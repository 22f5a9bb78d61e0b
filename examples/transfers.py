"""Transfers between accounts: two keys each, a rate table that all read, and handlers that crash.

A transfer holds both its accounts alone and the rates together with the others. Some handlers raise
half way; the message comes again, in its place, and finds by its own id what is done already. No
lock, no deadlock, and no cent lost.
"""

import logging
import random
from collections import Counter
from dataclasses import dataclass

from interlock import KeyedQueue, Retry, current_lease

ACCOUNTS = 20
TRANSFERS = 2_000


@dataclass(frozen=True)
class Transfer:
    number: int
    source: int
    target: int
    cents: int


balances = [10_000] * ACCOUNTS
rates = {"fee": 1}
taken: set[int] = set()
given: set[int] = set()
fees = Counter[str]()
random.seed(7)


def move(transfer: Transfer) -> None:
    fee = rates["fee"]
    if transfer.number not in taken:
        balances[transfer.source] -= transfer.cents + fee
        taken.add(transfer.number)
        fees["paid"] += fee
    if current_lease().attempt == 1 and transfer.number % 10 == 0:
        # The money has left one account and not reached the other.
        raise ConnectionError("the line broke")
    if transfer.number not in given:
        balances[transfer.target] += transfer.cents
        given.add(transfer.number)


def main() -> None:
    logging.disable()  # each failure is logged; two hundred lines would be in the way here
    queue = KeyedQueue[Transfer](
        keys=lambda transfer: [f"account:{transfer.source}", f"account:{transfer.target}"],
        shared=lambda _: "rates",
        retry=Retry(first=0),
    )
    with queue.consume(move, threads=8):
        for number in range(TRANSFERS):
            source, target = random.sample(range(ACCOUNTS), 2)
            queue.put(Transfer(number, source, target, random.randint(1, 50)))
        queue.join()

    assert sum(balances) + fees["paid"] == 10_000 * ACCOUNTS
    assert fees["paid"] == TRANSFERS
    assert queue.stats().retries == TRANSFERS // 10
    print(f"{TRANSFERS:,} transfers, {queue.stats().retries} crashes, no cent lost")


if __name__ == "__main__":
    main()
