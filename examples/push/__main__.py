"""A push service: two gateways, a page to try it in a browser, and a demo without one.

python examples/push                 serves until Ctrl-C; open the URL that it prints
python examples/push --demo          five users, one gateway killed, all of it checked
"""

from __future__ import annotations

import argparse
import signal
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import demo
from service import Service


def main() -> None:
    """Run the service, or the demo."""
    parser = argparse.ArgumentParser(prog="push", description=__doc__)
    parser.add_argument("--demo", action="store_true", help="without a browser, and ends")
    parser.add_argument("--port", type=int, default=8701, help="of the first gateway (8701)")
    given = parser.parse_args()
    if given.demo:
        demo.run()
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    with suppress(KeyboardInterrupt), TemporaryDirectory(prefix="push-") as folder:
        serve(Path(folder), given.port)


def serve(folder: Path, port: int) -> None:
    """Run two gateways, and start another for one that is killed."""
    with Service(folder) as service:
        while True:
            for name in [name for name, one in service.gateways.items() if one.poll() is not None]:
                del service.gateways[name]
                print(f"gateway {name} is gone")
                time.sleep(5)  # so that one sees its users come to the other
            for kind in "ab":
                if all(name[0] != kind for name in service.gateways):
                    row = service.start(kind, port + (kind == "b"))
                    page = row.url.replace("ws://", "http://").removesuffix("ws")
                    print(f"gateway {kind}: open {page}, end it by kill -9 {row.pid}")
            time.sleep(0.2)


if __name__ == "__main__":
    main()
