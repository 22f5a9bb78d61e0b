"""The log of the queues on an engine."""

from __future__ import annotations

import logging
import traceback
from collections.abc import MutableMapping
from typing import Any


class _Log(logging.LoggerAdapter[logging.Logger]):
    """Never raises: handlers and filters are the user's code, and a call must not fail by them."""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, kwargs  # the adapter of the library would replace `extra`

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        try:
            # A record names the line that logs, not this one.
            super().log(level, msg, *args, **{"stacklevel": 2, **kwargs})
        except Exception:
            traceback.print_exc()


log = _Log(logging.getLogger("interlock.queue"), {})
