"""The port on which a worker or an exporter serves its metrics."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from interlock.hub.serve.http_server import HttpServer
from interlock.metrics.pages import Pages


@contextlib.contextmanager
def serving(where: tuple[str, int], pages: Pages) -> Iterator[str]:
    """Serve these pages, and yield the address. Raises OSError if it cannot listen."""
    try:
        server = HttpServer(*where, pages)
    except OSError as error:
        # Without the error number.
        raise OSError(error.strerror) from None
    server.start()
    try:
        yield server.address
    finally:
        server.close()
