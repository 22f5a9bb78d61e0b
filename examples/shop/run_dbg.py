"""A shop to look at: a hub, two workers, customers, metrics, and the dashboard over all of it.

python examples/shop/run.py                     runs until Ctrl-C; open the page that it prints
python examples/shop/run.py --url redis://…     on a Redis instead of a hub of its own
python examples/shop/run.py --demo             without a browser: asks what the page would, and ends
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path

HERE = Path(__file__).parent
READY = 60.0
"""Seconds that a slow machine has for starting all of it."""


def main() -> None:
    """Run the shop."""
    parser = argparse.ArgumentParser(prog="shop", description=__doc__)
    parser.add_argument("--demo", action="store_true", help="without a browser, and ends")
    parser.add_argument("--url", help="an engine that runs already (a hub of its own)")
    given = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    with suppress(KeyboardInterrupt), ExitStack() as ends:
        # The hub says: ready on HOST:PORT.
        url = given.url or f"interlock://{start(ends, 'hub', '--port', '0').split()[-1]}"
        os.environ["INTERLOCK_URL"] = url
        for _ in range(2):
            start(ends, "worker", "tasks:app", "--concurrency", "4", "--log-level", "error")
        port = "0" if given.demo else "8787"
        page = json.loads(start(ends, "dashboard", "--write", "--port", port, "--json"))["url"]
        print(f"the shop is open; look at {page}", flush=True)
        serve(page if given.demo else None)


def start(ends: ExitStack, *command: str) -> str:
    """Start one of Interlock's commands; return the line in which it says that it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-m", "interlock", *command], cwd=HERE, stdout=subprocess.PIPE, text=True
    )
    ends.callback(process.wait)
    ends.callback(process.terminate)
    assert process.stdout is not None
    if line := process.stdout.readline():
        return line
    raise SystemExit(f"interlock {' '.join(command)} ended with {process.wait()}")


def serve(page: str | None) -> None:
    """Send customers; for a demo only until the page has seen enough of them."""
    sys.path.insert(0, str(HERE))
    from tasks import ACCOUNTS, MERCHANT, pay, ship

    until = time.monotonic() + READY
    for order in range(1, sys.maxsize):
        payer, payee = random.sample(ACCOUNTS[1:], 2)
        pay.send(payer, MERCHANT if order % 3 == 0 else payee, random.randrange(1, 1000))
        ship.send(order)
        time.sleep(0.05)
        if page is not None and order % 20 == 0:
            seen = look(page); print(order, {k: seen[k] for k in ("acks","dead","held","unsettled")}, flush=True)
            if seen["acks"] >= 50 and seen["dead"] and seen["held"]:
                print(f"{seen['acks']} handled, {seen['dead']} dead, {seen['held']} held")
                return
            assert time.monotonic() < until, seen


def look(page: str) -> dict[str, int]:
    """Return the counts of the queue, as the dashboard has them."""
    with urllib.request.urlopen(f"{page.rstrip('/')}/api/queues/default", timeout=10) as answer:
        found: dict[str, dict[str, int]] = json.load(answer)
    return found["stats"]


if __name__ == "__main__":
    main()
