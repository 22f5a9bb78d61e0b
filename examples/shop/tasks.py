"""The tasks of a shop: payments of two accounts each, shipments, a report by the clock."""

import os
import random
import time

from interlock import App, Reject, Retry, RetryAfter

app = App(os.environ.get("INTERLOCK_URL"))
ACCOUNTS = [f"account-{number}" for number in range(24)]
MERCHANT = ACCOUNTS[0]


@app.task(keys=["{payer}", "{payee}"], retry=Retry(3, first=0.5), result_ttl=60)
def pay(payer: str, payee: str, cents: int) -> int:
    """Move money: no other handler touches either account meanwhile."""
    time.sleep(random.uniform(0.01, 0.06))
    if cents % 50 == 0:
        raise ConnectionError("the bank closed the connection")
    if cents % 333 == 0:
        raise Reject(f"{payer} has no {cents} cents")
    return cents


@app.task(keys="order:{order}", retry=Retry(2, first=0.5, then="hold"))
def ship(order: int) -> None:
    """Ship an order; one that no carrier takes is held until somebody looks."""
    time.sleep(random.uniform(0.02, 0.1))
    if order % 41 == 0:
        raise LookupError(f"no carrier takes order {order}")
    if order % 17 == 0 and random.random() < 0.5:
        # The carrier says: come back later. That is not a failed attempt.
        raise RetryAfter(1, attempt=False)


@app.every("30s")
@app.task(keys=MERCHANT)
def close_till() -> None:
    """Add up what the merchant got; earlier payments go first, later ones wait."""
    time.sleep(0.5)
