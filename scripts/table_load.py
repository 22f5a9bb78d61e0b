"""Fills tables until they overwrite, and draws the result: docs/explanation/table-load.svg.

    .venv/bin/python scripts/table_load.py

The table is a real one, of 100,000 slots; each has a seed of its own, so that each run fills
others. The alternatives are simulated here: four rows of single slots, and buckets without a move,
of as many slots. It takes a minute or two, and prints the figures of the page.
"""

from __future__ import annotations

import random
import statistics
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from interlock import U8, Row, SharedTable

PAGE = Path(__file__).resolve().parents[1] / "docs" / "explanation" / "table-load.svg"
CAPACITY = 91_000
RATIO = (0.70, 0.20, 0.07, 0.03)
TABLES = 20
"""Number of tables of each kind."""
MOST = 1.3
"""Rows to insert, by the number of slots."""
POINTS = 130


class Mark(Row):
    """The smallest possible row."""

    mark: U8 = 0


@dataclass
class Filled:
    """A table during its filling."""

    slots: int
    loads: list[float] = field(default_factory=list)
    """Rows inserted, as a fraction of the slots."""
    lost: list[float] = field(default_factory=list)
    """Fraction of these that was overwritten, at each load."""
    levels: list[list[float]] = field(default_factory=list)
    """Fraction of each row's slots in use."""
    first: float = 0.0
    """Load at which the first row was overwritten."""
    buckets: list[float] = field(default_factory=list)
    """Buckets that a hit reads, at each load."""


def real() -> Filled:
    """Fill a table of the crate."""
    name = f"load-{uuid.uuid4().hex}"
    table = SharedTable.open(name, Mark, capacity=CAPACITY, key_size=8)
    try:
        slots = table.stats().slots
        filled = Filled(slots)
        inserted = 0
        for point in range(1, POINTS + 1):
            upto = round(slots * MOST * point / POINTS)
            # Near the expected first overwrite, rows are checked almost one by one: counting is not
            # free.
            step = 20 if 0.98 < upto / slots < 1.02 and not filled.first else upto - inserted
            while inserted < upto:
                for number in range(inserted, min(inserted + step, upto)):
                    table[number.to_bytes(8, "little")] = Mark()
                inserted = min(inserted + step, upto)
                stats = table.stats()
                if stats.overwritten and not filled.first:
                    filled.first = inserted / slots
            used = [level.rows for level in stats.levels]
            filled.loads.append(inserted / slots)
            filled.lost.append(stats.overwritten / inserted)
            filled.levels.append([level.rows / level.slots for level in stats.levels])
            filled.buckets.append(sum(n * rows for n, rows in enumerate(used, 1)) / sum(used))
        return filled
    finally:
        SharedTable.remove(name)


def played(slots: int, bucket: int, seed: int) -> Filled:
    """Fill four rows of buckets of this many slots, without a move: the oldest is overwritten."""
    chance = random.Random(seed)
    sizes = [prime(round(slots * part / bucket)) for part in RATIO]
    rows: list[list[list[int]]] = [[[] for _ in range(size)] for size in sizes]
    total = sum(sizes) * bucket
    filled = Filled(total)
    points = {round(total * MOST * point / POINTS) for point in range(1, POINTS + 1)}
    lost = 0
    for inserted in range(1, round(total * MOST) + 1):
        hashed = chance.getrandbits(64)
        candidates = [row[hashed % len(row)] for row in rows]
        for one in candidates:
            if len(one) < bucket:
                one.append(inserted)
                break
        else:
            # Each is in the order of insertion; there are no reads here, so that is also the order
            # of access.
            oldest = min(candidates, key=lambda one: one[0])
            del oldest[0]
            oldest.append(inserted)
            lost += 1
            filled.first = filled.first or inserted / total
        if inserted in points:
            filled.loads.append(inserted / total)
            filled.lost.append(lost / inserted)
    return filled


def prime(upto: int) -> int:
    """Return the last prime up to here."""
    return next(n for n in range(upto, 1, -1) if all(n % d for d in range(2, int(n**0.5) + 1)))


# -- The picture ---------------------------------------------------------------------------------

STYLE = """
text{font:13px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:#14181f}
.head{font-weight:650}.tick{font-size:12px;fill:#5a6373}.mid{text-anchor:middle}.right{text-anchor:end}
.back{fill:#fff}.grid{stroke:#d9dde4}.axis{stroke:#5a6373;fill:none}
.line{fill:none;stroke-width:2}.a{stroke:#c8571b}.b{stroke:#8a6fc2}.c{stroke:#2466b0}.d{stroke:#1d8056}
text.a{fill:#c8571b;stroke:none}text.b{fill:#8a6fc2;stroke:none}text.c{fill:#2466b0;stroke:none}
text.d{fill:#1d8056;stroke:none}.dot{stroke:none}.dot.a{fill:#c8571b}.dot.b{fill:#8a6fc2}.dot.c{fill:#2466b0}
@media(prefers-color-scheme:dark){text{fill:#eceff4}.tick{fill:#9aa5b6}.back{fill:#11141a}
.grid{stroke:#2a303b}.axis{stroke:#9aa5b6}.a{stroke:#f0944f}.b{stroke:#b9a3e8}.c{stroke:#6ba8ee}.d{stroke:#4fc48c}
text.a{fill:#f0944f}text.b{fill:#b9a3e8}text.c{fill:#6ba8ee}text.d{fill:#4fc48c}
.dot.a{fill:#f0944f}.dot.b{fill:#b9a3e8}.dot.c{fill:#6ba8ee}}
"""


@dataclass(frozen=True)
class Panel:
    """A coordinate system."""

    left: float
    top: float
    width: float
    height: float
    most_x: float
    most_y: float

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the coordinates of a point."""
        return (
            round(self.left + self.width * x / self.most_x, 1),
            round(self.top + self.height * (1 - y / self.most_y), 1),
        )

    def frame(self, head: str, xs: list[float], ys: list[float]) -> Iterator[str]:
        """Draw the axes, in percent."""
        yield f'<text class="head" x="{self.left}" y="{self.top - 18}">{head}</text>'
        for y in ys:
            x1, at = self.at(0, y)
            x2, _ = self.at(self.most_x, y)
            yield f'<path class="grid" d="M{x1} {at}H{x2}"/>'
            yield f'<text class="tick right" x="{x1 - 6}" y="{at + 4}">{y:.0%}</text>'
        for x in xs:
            at, y1 = self.at(x, 0)
            yield f'<path class="axis" d="M{at} {y1}v5"/>'
            yield f'<text class="tick mid" x="{at}" y="{y1 + 19}">{x:.0%}</text>'
        x1, y1 = self.at(0, 0)
        x2, _ = self.at(self.most_x, 0)
        yield f'<path class="axis" d="M{x1} {y1}H{x2}"/>'
        middle, _ = self.at(self.most_x / 2, 0)
        words = "rows inserted, of as many as there are slots"
        yield f'<text class="tick mid" x="{middle}" y="{y1 + 38}">{words}</text>'

    def line(self, kind: str, xs: list[float], ys: list[float]) -> str:
        """Draw a curve."""
        points = " ".join(f"{x} {y}" for x, y in map(self.at, xs, ys))
        return f'<path class="line {kind}" d="M{points}"/>'

    def dot(self, kind: str, x: float, number: int, words: str) -> Iterator[str]:
        """Mark the first overwrite, and describe it in the legend."""
        px, py = self.at(x, 0)
        yield f'<circle class="dot {kind}" cx="{px}" cy="{py}" r="5"/>'
        line = self.top + 22 + 22 * number
        yield f'<circle class="dot {kind}" cx="{self.left + 16}" cy="{line - 4}" r="5"/>'
        yield f'<text x="{self.left + 28}" y="{line}">{words}</text>'


def draw(single: list[Filled], buckets: list[Filled], tables: list[Filled]) -> str:
    """Draw both panels."""
    lost = Panel(70, 60, 460, 250, MOST, 0.35)
    fill = Panel(630, 60, 250, 250, MOST, 1.0)
    firsts = [median(kind) for kind in (single, buckets, tables)]
    one = tables[0]
    words = (
        f"Four rows of single slots overwrite a live row for the first time at a load of "
        f"{firsts[0]:.1%}, buckets of 16 slots at {firsts[1]:.1%}, the table at {firsts[2]:.1%}."
    )
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 370" width="900" height="370" '
        'role="img" aria-labelledby="title words">',
        '<title id="title">Load, and what is overwritten</title>',
        f'<desc id="words">{words}</desc>',
        f"<style>{STYLE}</style>",
        '<rect class="back" width="900" height="370"/>',
        *lost.frame(
            "Live rows overwritten, of those inserted",
            [0, 0.25, 0.5, 0.75, 1, 1.25],
            [0, 0.1, 0.2, 0.3],
        ),
        *(
            lost.line(kind, all_[0].loads, mean(all_, lambda one: one.lost))
            for kind, all_ in (("a", single), ("b", buckets), ("c", tables))
        ),
        *lost.dot("a", firsts[0], 0, f"rows of single slots: the first at {firsts[0]:.0%}"),
        *lost.dot("b", firsts[1], 1, f"rows of buckets of 16, no move: at {firsts[1]:.0%}"),
        *lost.dot("c", firsts[2], 2, f"the table, one move: at {firsts[2]:.1%}"),
        *fill.frame("Slots in use, by row", [0, 0.5, 1], [0, 0.25, 0.5, 0.75, 1]),
        *(
            fill.line(kind, one.loads, [levels[number] for levels in one.levels])
            for number, kind in enumerate("cdba")
        ),
        *(
            '<text class="{} {}" x="{}" y="{}">{}</text>'.format(kind, side, *fill.at(x, y), name)
            for kind, name, x, y, side in (
                ("c", "first", 0.33, 0.55, "right"),
                ("d", "second", 0.68, 0.4, "right"),
                ("b", "third", 0.82, 0.15, "right"),
                ("a", "fourth", 1.0, 0.15, ""),
            )
        ),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def median(all_: list[Filled]) -> float:
    """Return the load of the first overwrite, of the median table."""
    return statistics.median(one.first for one in all_)


def mean(all_: list[Filled], of: Callable[[Filled], list[float]]) -> list[float]:
    """Return the mean over the tables, at each load."""
    return [statistics.fmean(point) for point in zip(*map(of, all_), strict=True)]


def main() -> None:
    """Fill, print, draw."""
    tables = [real() for _ in range(TABLES)]
    slots = tables[0].slots
    single = [played(slots, 1, seed) for seed in range(TABLES)]
    buckets = [played(slots, 16, seed) for seed in range(TABLES)]
    print(f"{TABLES} of each, {slots:,} slots")
    for name, all_ in (("single slots", single), ("buckets of 16", buckets), ("table", tables)):
        firsts = sorted(one.first for one in all_)
        at_full = next(n for n, load in enumerate(all_[0].loads) if load >= 0.9999)
        lost = mean(all_, lambda one: one.lost)[at_full]
        between = f"{firsts[0]:.1%} to {firsts[-1]:.1%}"
        print(f"{name}: first overwritten at {median(all_):.1%} ({between}); by 100 %: {lost:.2%}")
    for wanted in (0.5, 0.91, 0.99):
        at = min(range(POINTS), key=lambda n: abs(tables[0].loads[n] - wanted))
        used = ", ".join(f"{part:.1%}" for part in tables[0].levels[at])
        hit = mean(tables, lambda one: one.buckets)[at]
        print(f"at {tables[0].loads[at]:.0%}: rows {used} full; a hit reads {hit:.2f} buckets")
    PAGE.write_text(draw(single, buckets, tables), encoding="utf-8")


if __name__ == "__main__":
    main()
