"""Payments of few accounts, booked one by one and in lists, through a bank whose call costs 5 ms.

Each account's payments are booked in order, by 8 handlers. A busy account waits for its own calls,
whatever the number of handlers, unless a call carries what has gathered meanwhile.

    python examples/ledger_runs.py                                  in this process
    python examples/ledger_runs.py --url redis://127.0.0.1:6379     the same on Redis
"""

import argparse
import threading
import time

from interlock import App, Run, connect

ACCOUNTS = [0] * 60 + [1] * 20 + list(range(2, 22)) * 2
"""One account has half of all payments."""

app = App(audit=True)
lock = threading.Lock()
calls: dict[str, int] = {"one by one": 0, "in lists": 0}
balances: dict[str, dict[int, list[int]]] = {way: {} for way in calls}


def call_bank(way: str, account: int, amounts: list[int]) -> None:
    """Book payments of one account in one call."""
    time.sleep(0.005)
    with lock:
        calls[way] += 1
        balances[way].setdefault(account, []).extend(amounts)


@app.task(queue="single", keys="account:{payment[0]}")
def book(payment: tuple[int, int]) -> None:
    call_bank("one by one", payment[0], [payment[1]])


@app.task(queue="lists", keys="account:{payments[0]}", run=100)
def book_all(payments: Run[tuple[int, int]]) -> None:
    call_bank("in lists", payments[0][0], [amount for _, amount in payments])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", help="the engine (memory://)")
    app.url = parser.parse_args().url or "memory://ledger"
    for way, task in (("one by one", book), ("in lists", book_all)):
        began = time.monotonic()
        queue = task.declared.queue
        with connect(app.url) as client, app.worker(threads=8, queues=[queue]):
            for number, account in enumerate(ACCOUNTS):
                task.send((account, number))
            client.queue(queue).join()
        took = time.monotonic() - began
        print(f"{way:>10}: {len(ACCOUNTS)} payments, {calls[way]} calls of the bank, {took:.2f} s")
    app.close()
    assert balances["one by one"] == balances["in lists"], "every account has the same, in order"
    assert calls["in lists"] < calls["one by one"]
    print("every account was booked in the same order both ways")


if __name__ == "__main__":
    main()
