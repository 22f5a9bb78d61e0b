"""A bank of 400 accounts, two in each transfer, and one of them is locked.

The first transfer of the locked account fails, and is held until somebody decides. Whatever waits
for it keeps its other account closed too, so soon the whole bank stands: that is behind="wait", the
default. Then the operator switches the queue to behind="park", and all but two accounts continue.
After the account is unlocked and the held transfer retried, the parked ones return.

    python examples/stuck_account.py                                  in this process
    python examples/stuck_account.py --url redis://127.0.0.1:6379     the same on Redis

There the operator types `interlock queue roots bank`, `configure bank --behind park`, `explain bank
ID` and `retry bank ID`.
"""

import argparse
import logging
import random
import threading
import time

from interlock import App, RemoteQueue, Retry, Stats, connect

ACCOUNTS, LOCKED, OTHER = 400, 7, 8
STEP = 250

app = App()
balances = [1_000] * ACCOUNTS
is_locked = threading.Event()
sent: list[tuple[int, int]] = []
done: list[int] = []
chance = random.Random(1)
began = time.monotonic()


class AccountLocked(Exception): ...


# In production: behind="park" here, or of the queue where the app declares it.
@app.task(
    keys=["account:{source}", "account:{target}"],
    queue="bank",
    retry=Retry(attempts=2, first=0.01, then="hold"),
)
def transfer(number: int, source: int, target: int) -> None:
    if is_locked.is_set() and LOCKED in (source, target):
        raise AccountLocked(f"account {LOCKED} is locked")
    balances[source] -= 1
    balances[target] += 1
    done.append(number)


def send(count: int) -> None:
    """Send transfers between random accounts; the very first one is of the locked account."""
    for _ in range(count):
        source, target = chance.sample(range(ACCOUNTS), 2) if sent else (LOCKED, OTHER)
        transfer.send(len(sent), source, target)
        sent.append((source, target))


def rest(queue: RemoteQueue[bytes], waiting: bool = False) -> Stats:
    """Return the counts once no transfer runs or could run; without `waiting`, once none waits."""
    until = time.monotonic() + 30
    while True:
        stats = queue.stats()
        busy = stats.ready + stats.leased + stats.backing_off + (0 if waiting else stats.waiting)
        if not busy:
            return stats
        assert time.monotonic() < until, stats
        time.sleep(0.01)


def report(queue: RemoteQueue[bytes], waiting: bool = False) -> float:
    """Print how far the bank is, and return the share of its accounts that stand."""
    stats = rest(queue, waiting)
    standing = {
        key
        for state in ("held", "waiting")
        for message in queue.messages(10_000, state=state)
        for key in message.keys
    }
    share = len(standing) / ACCOUNTS
    print(
        f"{time.monotonic() - began:5.1f} s: {len(sent):4} sent, {len(done):4} done, "
        f"{stats.waiting:4} wait, {stats.parked:3} parked; {share:6.1%} of the accounts stand"
    )
    return share


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", help="the engine (memory://)")
    app.url = parser.parse_args().url or "memory://bank"
    logging.disable()  # each failure and each hold is logged
    with connect(app.url) as client, app, app.worker(threads=8, queues=["bank"]):
        queue = client.queue("bank", bytes)
        queue.configure(behind="wait")
        is_locked.set()
        share = 0.0
        for _ in range(8):
            send(STEP)
            share = report(queue, waiting=True)
        assert share > 0.95
        print(queue.roots())

        print("behind: wait -> park")
        queue.configure(behind="park")
        report(queue)
        for _ in range(4):
            send(STEP)
            share = report(queue)
        shut = {number for number, pair in enumerate(sent) if {*pair} & {LOCKED, OTHER}}
        assert share == 2 / ACCOUNTS and queue.stats().parked == len(shut) - 1
        assert sorted(done) == [n for n in range(len(sent)) if n not in shut]
        print(queue.explain(queue.messages(state="parked")[-1].id))

        print(f"account {LOCKED} is unlocked")
        is_locked.clear()
        (held,) = queue.messages(state="held")
        queue.retry(held.id)
        report(queue)

    assert sorted(done) == list(range(len(sent))) and sum(balances) == 1_000 * ACCOUNTS
    # The accounts of the held transfer kept their order.
    for account in (LOCKED, OTHER):
        assert order(account) == sorted(order(account))
    # Other accounts of parked transfers did not.
    overtaken = [account for account in range(ACCOUNTS) if order(account) != sorted(order(account))]
    shortest = min(overtaken, key=lambda account: len(order(account)))
    print(f"{len(overtaken)} accounts saw a transfer overtaken: {shortest} did {order(shortest)}")


def order(account: int) -> list[int]:
    """Return the transfers of an account, by number, as they were done."""
    return [number for number in done if account in sent[number]]


if __name__ == "__main__":
    main()
