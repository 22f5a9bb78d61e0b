"""Gives each process of a pool the app as the worker's program has configured it.

A process of a pool imports the app's module. What the program has set since its own import is not
in there: the engine, or a hook that it added in ``main()``. Values are sent along and set in the
process. What is registered, such as hooks and tasks, is compared by its name: a process that lacks
something says so instead of becoming ready, and the worker ends with that error.
"""

from __future__ import annotations

import collections
import functools
import importlib
import importlib.machinery
import importlib.util
import logging
import pickle
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from interlock.app import reach
from interlock.app.place import MAINS, module_of, names_of
from interlock.app.reach import Settings
from interlock.worker.tasks import SetupRefused

if TYPE_CHECKING:
    from interlock.app.app import App

__all__ = ["ProcessSetup", "setup_of"]

_log = logging.getLogger("interlock.worker")


@dataclass(frozen=True, slots=True)
class ProcessSetup:
    """Configuration of a process of a pool."""

    reference: str
    """The app, as ``module:name``."""
    main: str
    """The file of the program, if the app is in the program itself; else empty."""
    modules: tuple[str, ...]
    """The modules of everything that is registered; importing them may register it."""
    argv: tuple[str, ...]
    settings: Settings
    others: dict[str, Settings]
    """Settings of the other apps that were changed after they were made, by each of their names."""
    registered: tuple[str, ...]
    """The tasks, hooks and lifespan of the app, in words."""

    def app(self) -> App:
        """Import the app into this process and configure it.

        Raises SetupRefused if the process lacks something that the worker's app has, and whatever
        the import raises.
        """
        reach.in_pool = True
        # Another app may be imported later, or never.
        reach.others.update(self.others)
        sys.argv[:] = self.argv
        if self.main:
            _run_main(self.main)
        app: App = _found(self.reference)
        for name in self.modules:
            importlib.import_module(name)
        missing = collections.Counter(self.registered) - collections.Counter(_registered(app))
        if missing:
            raise SetupRefused(
                f"a process of the pool imports {self.reference} and does not get "
                f"{', '.join(missing)}: the program added that later. Add it in the app's module "
                f"when that is imported, or use pool='thread' or 'asyncio'"
            )
        # What the import has connected is connected to another engine perhaps.
        app.close()
        self.settings.give(app)
        for other in list(type(app)._made):
            if not other._was_set_up:
                reach.set_up(other)
        return app


def setup_of(app: App, reference: str) -> ProcessSetup:
    """Return the setup of the processes of a worker of this app.

    Raises ValueError if the app has a retry policy that cannot be sent to another process.
    """
    main = ""
    if reference.partition(":")[0] in MAINS:
        main = str(sys.modules["__main__"].__file__)
    settings = _settings(app)
    functions = [task.function for task in app.tasks.values()]
    functions += [function for _, function in _functions(app)]
    modules = dict.fromkeys(module_of(function) for function in functions)
    return ProcessSetup(
        reference=reference,
        main=main,
        modules=tuple(name for name in modules if name and name not in MAINS),
        argv=tuple(sys.argv),
        settings=replace(settings, url=settings.url or "memory://"),
        others=_others(app),
        registered=tuple(_registered(app)),
    )


def _others(app: App) -> dict[str, Settings]:
    known = {other: names_of(other) for other in list(type(app)._made)}
    count = collections.Counter(name for names in known.values() for name in names)
    found: dict[str, Settings] = {}
    for other, names in known.items():
        if other is app or not other._was_changed:
            continue
        own = [name for name in names if count[name] == 1]
        try:
            settings = _settings(other)
        except ValueError as error:
            # Perhaps no handler sends to it.
            _log.warning("%s", error)
            settings = Settings(other._named(), other.send_timeout, None)
        found.update(dict.fromkeys(own, settings))
        if other.tasks and not own:
            _log.warning(
                "%r was changed after it was made, and the processes of the pool do not get "
                "that: it is no global name, and its tasks are the same functions as those of "
                "another app. Give it a name of its own in the module that makes it",
                other,
            )
    return found


def _settings(app: App) -> Settings:
    retry = None
    if app.retry is not app._made_with[1]:
        try:
            retry = pickle.dumps(app.retry)
        except Exception as error:
            raise ValueError(
                f"worker(): pool is 'process', and app.retry of {app!r}, which was set after the "
                f"app was made, cannot be sent to a process: {error}"
            ) from error
    return Settings(app._named(), app.send_timeout, retry)


def _registered(app: App) -> Iterable[str]:
    for name, task in app.tasks.items():
        yield f"the task {name!r} {_told(_underlying(task.function))}"
    for what, function in _functions(app):
        yield f"{what} {_told(function)}"


def _told(function: Any) -> str:
    return f"{module_of(function)}.{getattr(function, '__qualname__', '')}".rstrip(".")


def _functions(app: App) -> Iterable[tuple[str, Any]]:
    for event, hook in [*app._hooks.all(), *app._lifespan.of_processes()]:
        yield f"the {'hook ' * (event != 'lifespan')}{event}", _underlying(hook)


def _underlying(hook: Any) -> Any:
    """Return the function or the class that a hook is made of."""
    while isinstance(hook, functools.partial):
        hook = hook.func
    owner = getattr(hook, "__self__", None)
    if owner is not None and not isinstance(owner, type) and hasattr(hook, "__func__"):
        return type(owner)
    return hook if hasattr(hook, "__qualname__") else type(hook)


def _found(place: str) -> Any:
    module, _, path = place.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _run_main(path: str) -> None:
    """Run the program's file as a module of another name, as multiprocessing does: what stands
    under ``if __name__ == "__main__"`` is left out."""
    loader = importlib.machinery.SourceFileLoader(MAINS[1], path)
    spec = importlib.util.spec_from_loader(MAINS[1], loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    for name in MAINS:
        sys.modules[name] = module
    loader.exec_module(module)
