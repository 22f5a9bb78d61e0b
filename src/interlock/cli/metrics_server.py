"""The port on which a worker or an exporter tells its metrics."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from interlock.hub.httpd import HttpServer
from interlock.metrics.pages import Pages


@contextlib.contextmanager
def serving(where: tuple[str, int], pages: Pages) -> Iterator[str]:
    """Serve these pages, and yield the address. Raises OSError where it cannot listen."""
    server = HttpServer(*where, pages)
    server.start()
    try:
        yield server.address
    finally:
        server.close()
