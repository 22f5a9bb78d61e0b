"""Takes one row's samples in a process of its own and prints each as a line of JSON.

A process for each row, so that none inherits threads, garbage or a core to stay on, and one that
crashes or hangs costs the table one line.

    python -m benchmarks.child single/1-key 5
"""

from __future__ import annotations

import json
import sys

from benchmarks.scenarios import ROWS


def main(name: str, repeat: int) -> None:
    """Take a pair unseen, to warm up, then `repeat` of them, or as many as the row has at most."""
    row = next(row for row in ROWS if row.name == name)
    if row.pair is None:
        raise SystemExit(f"{name} is taken by the program in benchmarks/rust")
    if row.unseen:
        row.pair(1)
    for number in range(min(repeat, row.pairs or repeat)):
        pair = row.pair(number)
        for side, sample in (("ours", pair.ours), ("peer", pair.peer)):
            if sample is not None:
                line = {"pair": number, "side": side} | sample.as_json()
                print(json.dumps(line), flush=True)
        for figure, why in pair.missing.items():
            print(json.dumps({"pair": number, "side": "missing", "figure": figure, "why": why}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
