"""A shop whose prices change faster than anybody needs to see them, and texts that people edit.

The price board takes 5 ms for a price, and prices change all the time: while one waits, the next
one of the same product replaces it (`coalesce`). A product's text is indexed for the search when
nobody has changed it for 0.2 s, and at the latest after a second (`debounce`, `longest`). The last
price and the last text of each product arrive in any case.

    python examples/updates.py                                  in this process
    python examples/updates.py --url redis://127.0.0.1:6379     the same on Redis
"""

import argparse
import random
import time
from collections import Counter

from interlock import App, Job

PRODUCTS, CHANGES, EDITS = 20, 2_000, 600

app = App(audit=True)
board: dict[int, int] = {}
index: dict[int, str] = {}
handled = Counter[str]()


@app.task(queue="prices", coalesce="price:{product}", result_ttl=60)
def show(product: int, price: int) -> None:
    time.sleep(0.005)
    board[product] = price
    handled["prices"] += 1


@app.task(queue="texts", coalesce="text:{product}", debounce=0.2, longest=1, result_ttl=60)
def make_searchable(product: int, text: str) -> None:
    time.sleep(0.005)
    index[product] = text
    handled["texts"] += 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", help="the engine (memory://)")
    app.url = parser.parse_args().url
    chance = random.Random(3)
    prices: dict[int, int] = {}
    texts: dict[int, str] = {}
    # One thread for each queue: two of one name never run at once, so nothing here needs a lock.
    with app, app.worker(threads=1, queues=["prices"]) as first:
        jobs: list[Job[None]] = []
        for _ in range(CHANGES):
            product = chance.randrange(PRODUCTS)
            prices[product] = chance.randint(100, 999)
            jobs.append(show.send(product, prices[product]))
        finish("prices", jobs)
        assert board == prices

        with app.worker(threads=1, queues=["texts"]) as second:
            jobs = []
            for number in range(EDITS):
                # Somebody edits product 0 without a pause; the others a few times in a row.
                product = 0 if number % 2 else 1 + number * (PRODUCTS - 1) // EDITS
                texts[product] = f"text of product {product}, edit {number}"
                jobs.append(make_searchable.send(product, texts[product]))
                time.sleep(0.002)
            finish("texts", jobs)
        assert index == texts
    assert first.figures().violations == second.figures().violations == 0


def finish(what: str, jobs: list[Job[None]]) -> None:
    """Wait for the jobs, and print how many of the calls were saved."""
    for job in jobs:
        job.result(timeout=30)
    replaced = sum(job.replaced for job in jobs)
    # Each call either is a message of its own or replaces one.
    assert len(jobs) == handled[what] + replaced and replaced > 0
    saved = replaced / len(jobs)
    print(f"{what}: {len(jobs)} changes, {handled[what]} handled, {replaced} saved ({saved:.0%})")


if __name__ == "__main__":
    main()
