"""A client of a bank whose API takes ten calls a second, and twenty at once after a pause.

All workers together keep to the rate, without a thread that waits. Payments of one account are made
in the order in which they were sent. If the bank answers 429 all the same, because somebody else
calls it too, nobody calls it until the time that it names.

    python examples/bank_api.py                                  in this process
    python examples/bank_api.py --url redis://127.0.0.1:6379     the same on Redis
"""

import argparse
import threading
import time
from collections import defaultdict

from interlock import App, Rate, RetryAfter

ACCOUNTS = 5
PAYMENTS = 40

app = App(audit=True, queues={"payments": {"limits": {"bank": Rate(10, per=1, burst=20)}}})


class Bank:
    """The other side: each call takes a token of a bucket, which ten tokens a second refill."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.tokens, self.since, self.refused = 20.0, time.monotonic(), 0
        self.paid: defaultdict[int, list[int]] = defaultdict(list)

    def pay(self, account: int, number: int) -> float:
        """Pay, and return 0; or return the seconds after which to try again."""
        with self.lock:
            now = time.monotonic()
            self.tokens = min(self.tokens + 10 * (now - self.since), 20)
            self.since = now
            if self.tokens < 1:
                self.refused += 1
                return (1 - self.tokens) / 10
            self.tokens -= 1
            self.paid[account].append(number)
            return 0


bank = Bank()


@app.task(keys="account:{account}", queue="payments", limit="bank", result_ttl=60)
def pay(account: int, number: int) -> int:
    wait = bank.pay(account, number)
    if wait:
        # A refusal is not a failure: no attempt counts, and the payment keeps its place.
        raise RetryAfter(wait, attempt=False, limit="bank")
    return number


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", help="the engine (memory://)")
    app.url = parser.parse_args().url
    started = time.monotonic()
    with app, app.worker(threads=8, queues=["payments"]) as worker:
        jobs = [pay.send(number % ACCOUNTS, number) for number in range(PAYMENTS)]
        for number, job in enumerate(jobs):
            assert job.result(timeout=30) == number
    seconds = time.monotonic() - started

    assert len(bank.paid) == ACCOUNTS
    assert all(numbers == sorted(numbers) for numbers in bank.paid.values())
    assert sum(map(len, bank.paid.values())) == PAYMENTS
    # Twenty at once, then one each tenth of a second.
    assert seconds >= 0.99 * (PAYMENTS - 20) / 10
    assert worker.figures().violations == 0
    print(f"{PAYMENTS} payments in {seconds:.1f} s; the bank refused {bank.refused} calls")


if __name__ == "__main__":
    main()
