"""The end of an engine in memory that was not named: reports the messages that are lost with it.

``connect()`` without a URL is for a queue within one program. A program that merely lacks the
engine's URL would otherwise lose all its messages silently.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from interlock.errors import InterlockError
from interlock.runtime import forks
from interlock.watch import log

if TYPE_CHECKING:
    from interlock.client.faces.client import Client

__all__ = ["watch_end"]


def watch_end(client: Client) -> Any:
    """Report the remaining messages when this client is collected or the process ends.

    Return a function that reports them earlier; the report is made once.
    """
    return weakref.finalize(client, _tell, client._again(), forks.count)


def _tell(client: Client, began: int) -> None:
    if forks.count != began:
        # The child of a fork: the engine belongs to the parent.
        return
    from interlock.client.admin.operator import Operator
    from interlock.client.admin.server import Server

    try:
        counts = Operator(Server(client)).all_stats()
    except InterlockError:
        return
    finally:
        client.close()
    for name, counted in counts.items():
        if left := counted["unsettled"]:
            messages = "1 message" if left == 1 else f"{left} messages"
            log.error(
                "%s of queue %r not settled, and lost with the memory of this process; no "
                "engine is named: set INTERLOCK_URL, or give connect() a URL (memory:// if this "
                "is intended)",
                messages, name, extra={"queue": name, "unsettled": left},
            )  # fmt: skip
