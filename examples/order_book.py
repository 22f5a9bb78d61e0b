"""An exchange: orders of one instrument in order, instruments side by side, spreads across two.

A spread buys one instrument and sells another. It stands in both books at its own place: what was
put before it is matched before it, what comes after is matched after it, on either book.
"""

from collections import defaultdict
from dataclasses import dataclass

from interlock import KeyedExecutor


@dataclass(frozen=True)
class Order:
    number: int
    sides: tuple[tuple[str, int], ...]
    """Instrument and quantity, negative to sell; a spread has two."""


books: defaultdict[str, list[int]] = defaultdict(list)
positions: defaultdict[str, int] = defaultdict(int)


def match(order: Order) -> int:
    for instrument, quantity in order.sides:
        books[instrument].append(order.number)
        positions[instrument] += quantity
    return len(order.sides)


def orders() -> list[Order]:
    made: list[Order] = []
    for number in range(3_000):
        first, second = f"I{number % 7}", f"I{(number * 3 + 1) % 7}"
        if number % 3 == 0 and first != second:
            made.append(Order(number, ((first, 1), (second, -1))))
        else:
            made.append(Order(number, ((first, 1),)))
    return made


def main() -> None:
    all_orders = orders()
    with KeyedExecutor(8) as executor:
        matched = executor.map_keyed(
            match,
            all_orders,
            keys=lambda order: [instrument for instrument, _ in order.sides],
            buffersize=100,
        )
        sides = sum(matched)

    assert sides == sum(len(order.sides) for order in all_orders)
    for instrument, numbers in books.items():
        # Each book saw its orders as they were put, spreads in their place among them.
        assert numbers == sorted(numbers), instrument
    spreads = sum(len(order.sides) == 2 for order in all_orders)
    print(f"{len(all_orders):,} orders, {spreads} spreads, {len(books)} books, each in order")


if __name__ == "__main__":
    main()
