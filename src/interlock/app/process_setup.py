"""Gives each process of a pool the app as the worker's program has configured it.

A process of a pool imports the app's module. Changes that the program made after its own import are
missing there: the engine, or a hook that it added in ``main()``. Values are sent along and set in
the process. Registrations, such as hooks and tasks, are compared by name: a process that lacks one
reports it instead of becoming ready, and the worker ends with that error. For the program's other
apps, through which a handler may send, only the hooks of sends are compared.
"""

from __future__ import annotations

import collections
import contextlib
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
from interlock.app.middleware import AROUND_SENDS
from interlock.app.place import MAINS, module_of, names_of
from interlock.worker.message.tasks import SetupRefused

if TYPE_CHECKING:
    from interlock.app.app import App

__all__ = ["Other", "ProcessSetup", "Settings", "set_up", "setup_of"]

_log = logging.getLogger("interlock.worker")


@dataclass(frozen=True, slots=True)
class Settings:
    """Values that a program may set on an app after construction."""

    url: str | None
    send_timeout: float
    retry: bytes | None
    """The retry policy, pickled; None: unchanged."""

    def give(self, app: App) -> None:
        """Set it."""
        app.url = self.url
        app.send_timeout = self.send_timeout
        if self.retry is not None:
            app.retry = pickle.loads(self.retry)
        app._was_set_up = True


@dataclass(frozen=True, slots=True)
class Other:
    """The changes that the worker's program has made to an app other than its own."""

    settings: Settings | None
    """The engine's URL; None: unchanged."""
    hooks: tuple[tuple[str, str], ...]
    """The hooks of sends, in words, each with the module of its function."""

    def check(self, app: App, name: str) -> None:
        """Raise SetupRefused if the app lacks a hook here."""
        missing = self._missing(app)
        for module in dict.fromkeys(module for _, module in missing):
            # Importing the module may add the hook. Most hooks are present without that, and an
            # import may be expensive.
            if module and module not in MAINS:
                with contextlib.suppress(Exception):
                    importlib.import_module(module)
        if missing := self._missing(app):
            told = ", ".join(dict.fromkeys(words for words, _ in missing))
            raise SetupRefused(
                f"a process of the pool may send through another app, {name}, and does not have "
                f"{told} there: the program added that later. Add it while that app's module is "
                "imported, or use pool='thread' or 'asyncio'"
            )

    def _missing(self, app: App) -> list[tuple[str, str]]:
        return list(collections.Counter(self.hooks) - collections.Counter(_of_sends(app)))


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
    others: dict[str, Other]
    """The other apps of the program, by each of their names."""
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
                f"a process of the pool imports {self.reference} and does not have "
                f"{', '.join(missing)}: the program added that later. Add it while the app's "
                "module is imported, or use pool='thread' or 'asyncio'"
            )
        # A connection made during the import may be to another engine.
        app.close()
        self.settings.give(app)
        for other in list(type(app)._made):
            if not other._was_set_up:
                set_up(other)
        return app


def set_up(app: App) -> None:
    """Apply, in a process of a pool, the program's settings to an app other than the worker's,
    perhaps after the import had set something else.

    Raises SetupRefused if the app lacks a hook that the program has added.
    """
    # First, because an import may send.
    app._was_set_up = True
    known = next((name for name in names_of(app) if name in reach.others), None)
    if known is None:
        return
    other: Other = reach.others[known]
    try:
        other.check(app, known)
    except SetupRefused:
        app._was_set_up = False
        raise
    if other.settings is not None:
        other.settings.give(app)


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


def _others(app: App) -> dict[str, Other]:
    known = {other: names_of(other) for other in list(type(app)._made)}
    done = {other: _done_to(other) for other in known}
    meant: dict[str, set[Other]] = collections.defaultdict(set)
    for other, names in known.items():
        for name in names:
            meant[name].add(done[other])
    found: dict[str, Other] = {}
    for other, names in known.items():
        if other is app or done[other] == Other(None, ()):
            continue
        # Apps of the same name cannot be distinguished, unless all of them are to have the same
        # settings.
        own = [name for name in names if len(meant[name]) == 1]
        found.update(dict.fromkeys(own, done[other]))
        if other.tasks and not own:
            _log.warning(
                "%r was changed after it was created, and the processes of the pool do not see "
                "the change: the app is not a global name, and its tasks are the same functions "
                "as another app's. Give it a global name in the module that creates it",
                other,
            )
    return found


def _done_to(app: App) -> Other:
    settings = None
    if app._was_changed:
        try:
            settings = _settings(app)
        except ValueError as error:
            # Perhaps no handler sends to it.
            _log.warning("%s", error)
            settings = Settings(app._named(), app.send_timeout, None)
    return Other(settings, tuple(_of_sends(app)))


def _settings(app: App) -> Settings:
    retry = None
    if app.retry is not app._made_with[1]:
        try:
            retry = pickle.dumps(app.retry)
        except Exception as error:
            raise ValueError(
                f"worker(): pool is 'process', and app.retry of {app!r}, which was set after the "
                f"app was created, cannot be sent to a process: {error}"
            ) from error
    return Settings(app._named(), app.send_timeout, retry)


def _registered(app: App) -> Iterable[str]:
    for name, task in app.tasks.items():
        yield f"the task {name!r} {_told(_underlying(task.function))}"
    for what, function in _functions(app):
        yield f"{what} {_told(function)}"


def _of_sends(app: App) -> Iterable[tuple[str, str]]:
    for event, hook in app._hooks.all():
        if event in AROUND_SENDS:
            function = _underlying(hook)
            yield f"the hook {event} {_told(function)}", module_of(function)


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
    """Run the program's file as a module of another name, as multiprocessing does: the code under
    ``if __name__ == "__main__"`` does not run."""
    loader = importlib.machinery.SourceFileLoader(MAINS[1], path)
    spec = importlib.util.spec_from_loader(MAINS[1], loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    for name in MAINS:
        sys.modules[name] = module
    loader.exec_module(module)
