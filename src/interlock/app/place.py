"""The place of an app, as other processes find it: ``module:name``."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interlock.app.app import App

__all__ = ["MAINS", "NoPlace", "module_of", "names_of", "place_for_pool", "place_in_program"]

MAINS = ("__main__", "__mp_main__")
"""The names of the program itself: the second is the one that multiprocessing gives it."""


class NoPlace(ValueError):
    """No other process could import the app; the text gives the reason."""


def place_of(app: App) -> str:
    """Return where an app is. Raises NoPlace.

    The module that made it is tried first, then those of its tasks: other modules may have imported
    it, and importing them may do more than importing an app's module.
    """
    first = [app._made_in, *(task.function.__module__ for task in app.tasks.values())]
    for name in dict.fromkeys([*first, *sys.modules]):
        module = sys.modules.get(name)
        if name in MAINS or module is None:
            continue
        attribute = _attribute(module, app)
        if attribute is not None:
            return f"{name}:{attribute}"
    raise NoPlace(
        "the app is not a global name of a module that another process could import; put it into a "
        "module of its own, not into the program itself"
    )


def place_in_program(app: App) -> str:
    """Return where this program and its processes find an app: in a module, or in the program
    itself, as ``__main__:name``. Raises NoPlace."""
    try:
        return place_of(app)
    except NoPlace:
        main: Any = sys.modules.get("__main__")
        name = None if main is None else _attribute(main, app)
        if name is None:
            raise
        return f"__main__:{name}"


def place_for_pool(app: App) -> str:
    """Return where the processes of a pool find an app. Raises NoPlace.

    An app in the program itself is found there if the program is a module or a file.
    """
    module, _, attribute = place_in_program(app).partition(":")
    module = _name_in_pool(module)
    place = f"{module}:{attribute}"
    if module not in MAINS:
        return place
    path = getattr(sys.modules["__main__"], "__file__", None)
    if path is None or not os.path.isfile(path):
        raise NoPlace(
            "the app is in a program that is not a file (an interactive session, or python -c); "
            "put it into a module of its own"
        )
    return place


def module_of(thing: Any) -> str:
    """Return the module of a function or class under the name that it has in a pool's process
    too."""
    return _name_in_pool(str(getattr(thing, "__module__", None) or ""))


def names_of(app: App) -> list[str]:
    """Return what identifies an app both in this program and in the processes of a pool: its place
    and its tasks, because it may not be a global name."""
    names = [
        f"{module_of(task.function)}.{getattr(task.function, '__qualname__', '')} as {task.name}"
        for task in app.tasks.values()
    ]
    try:
        module, _, attribute = place_in_program(app).partition(":")
    except NoPlace:
        return names
    return [f"{_name_in_pool(module)}:{attribute}", *names]


def _name_in_pool(module: str) -> str:
    if module not in MAINS:
        return module
    # `python -m shop.tasks`: the processes of a pool import it by its own name.
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec.name if spec is not None and spec.name not in MAINS else "__main__"


def _attribute(module: Any, app: App) -> str | None:
    return next((name for name, value in list(vars(module).items()) if value is app), None)
