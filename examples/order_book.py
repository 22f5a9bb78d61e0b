"""An exchange: orders of one instrument in order, instruments side by side, spreads across two.

A spread buys one instrument and sells another. It has its own place in both books: what was
sent before it is matched before it, what comes after is matched after it, on either book.

    python examples/order_book.py                                  in this process
    python examples/order_book.py --url redis://127.0.0.1:6379     the same on Redis
"""

import argparse
from collections import defaultdict
from dataclasses import dataclass

from interlock import App


@dataclass(frozen=True)
class Order:
    number: int
    sides: tuple[tuple[str, int], ...]
    """Instrument and quantity, negative to sell; a spread has two."""


app = App(audit=True)
books: defaultdict[str, list[int]] = defaultdict(list)
positions: defaultdict[str, int] = defaultdict(int)


def instruments(order: Order) -> list[str]:
    return [instrument for instrument, _ in order.sides]


@app.task(keys=instruments, queue="orders", result_ttl=60)
def match(order: Order) -> int:
    for instrument, quantity in order.sides:
        books[instrument].append(order.number)
        positions[instrument] += quantity
    return len(order.sides)


def orders() -> list[Order]:
    made: list[Order] = []
    for number in range(600):
        first, second = f"I{number % 7}", f"I{(number * 3 + 1) % 7}"
        if number % 3 == 0 and first != second:
            made.append(Order(number, ((first, 1), (second, -1))))
        else:
            made.append(Order(number, ((first, 1),)))
    return made


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", help="the engine (memory://)")
    app.url = parser.parse_args().url
    all_orders = orders()
    with app, app.worker(threads=8, queues=["orders"]) as worker:
        jobs = [match.send(order) for order in all_orders]
        sides = sum(job.result(timeout=30) for job in jobs)

    assert sides == sum(len(order.sides) for order in all_orders)
    for instrument, numbers in books.items():
        # Each book saw its orders as they were sent, spreads in their place among them.
        assert numbers == sorted(numbers), instrument
    assert worker.figures().violations == 0
    spreads = sum(len(order.sides) == 2 for order in all_orders)
    print(f"{len(all_orders)} orders, {spreads} spreads, {len(books)} books, each in order")


if __name__ == "__main__":
    main()
