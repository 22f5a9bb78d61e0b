"""The place of an app, as other processes find it: ``module:name``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interlock.app.app import App

__all__ = ["NoPlace", "place_of"]


class NoPlace(ValueError):
    """No other process could import the app; the text says why."""


def place_of(app: App) -> str:
    """Return where an app is. Raises NoPlace.

    The module that made it goes first, then those of its tasks: others may have imported it, and do
    more when they are imported than an app's module.
    """
    first = [app._made_in, *(task.function.__module__ for task in app.tasks.values())]
    for name in dict.fromkeys([*first, *sys.modules]):
        module = sys.modules.get(name)
        if name == "__main__" or module is None:
            continue
        for attribute, value in list(vars(module).items()):
            if value is app:
                return f"{name}:{attribute}"
    raise NoPlace(
        "the app is no global name of a module that another process could import; put it into a "
        "module of its own, not into the program itself"
    )
