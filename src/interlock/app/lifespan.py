"""Startup and shutdown: hooks of workers and their processes, and the lifespan of handlers'
resources.

``on_worker_start`` and ``on_worker_stop`` are called once per worker; ``on_process_start``,
``on_process_stop`` and the lifespan once in each process that runs handlers: the worker's own, or
each one of a pool of processes. There the lifespan's value is ``App.state``.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from interlock.worker.message.scope import Scope

__all__ = ["EVENTS", "Lifespan"]

_log = logging.getLogger("interlock.worker")

EVENTS = ("on_worker_start", "on_worker_stop", "on_process_start", "on_process_stop")


class Lifespan:
    """The hooks and the lifespan of one app."""

    def __init__(self, app: object) -> None:
        self._app = app
        self._hooks: dict[str, list[Callable[[], object]]] = {name: [] for name in EVENTS}
        self._made: Callable[[Any], Any] | None = None
        self._given: Callable[..., object] | None = None
        self._states: list[tuple[object, Any]] = []

    def add(self, event: str, hook: Callable[..., object]) -> None:
        """Add a hook. Raises TypeError if it is not a function without arguments."""
        if not callable(hook):
            raise TypeError(f"{event}(): {type(hook).__name__} is given; allowed: a function")
        try:
            inspect.signature(hook).bind()
        except TypeError:
            raise TypeError(
                f"{event}(): {_name(hook)}() takes arguments; allowed: a function without"
            ) from None
        except ValueError:
            pass  # written in C, without a signature
        self._hooks[event].append(hook)

    def set(self, lifespan: Callable[..., object]) -> None:
        """Set the lifespan. Raises TypeError if it is not suitable, ValueError if one is already
        set."""
        allowed = (
            "a function that takes the app and is a generator, asynchronous or not, or returns "
            "a context manager"
        )
        if not callable(lifespan):
            raise TypeError(f"lifespan: {type(lifespan).__name__} is given; allowed: {allowed}")
        if self._made is not None:
            raise ValueError(f"lifespan: {_name(lifespan)}() is given, but the app already has one")
        try:
            inspect.signature(lifespan).bind(None)
        except TypeError:
            raise TypeError(
                f"lifespan: {_name(lifespan)}() does not take one argument, the app; allowed: "
                f"{allowed}"
            ) from None
        except ValueError:
            pass  # written in C, without a signature
        self._given = lifespan
        if inspect.isasyncgenfunction(lifespan):
            self._made = contextlib.asynccontextmanager(lifespan)
        elif inspect.isgeneratorfunction(lifespan):
            self._made = contextlib.contextmanager(lifespan)
        else:
            self._made = lifespan

    def of_processes(self) -> Iterable[tuple[str, Callable[..., object]]]:
        """Return the hooks and the lifespan that each process of a pool runs, each with its
        name."""
        names = [name for name in EVENTS if "process" in name]
        found = [(name, hook) for name in names for hook in self._hooks[name]]
        return found if self._given is None else [*found, ("lifespan", self._given)]

    @property
    def state(self) -> Any:
        """See ``App.state``."""
        if not self._states:
            raise RuntimeError(
                "state: no worker of this app has started in this process, so it has no "
                "lifespan; app.testing() has one too, inside its with block"
            )
        return self._states[-1][1]

    def scope(self, worker: bool, process: bool) -> Scope | None:
        """Return the scope of handlers. None: there is nothing to set up.

        Args:
            worker: include the hooks of the worker.
            process: include those of a process, and the lifespan.
        """
        wanted = [name for name in EVENTS if (worker if "worker" in name else process)]
        if not any(self._hooks[name] for name in wanted) and not (process and self._made):
            # Reading the state raises an error that says which is missing: the value, or the
            # worker.
            return None
        return self._scope(worker, process)

    @contextlib.asynccontextmanager
    async def _scope(self, worker: bool, process: bool) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            if worker:
                await self._began(stack, "worker")
            if process:
                await self._began(stack, "process")
                if self._made is not None:
                    await self._lived(stack, self._made(self._app))
            yield

    async def _began(self, stack: contextlib.AsyncExitStack, what: str) -> None:
        for hook in self._hooks[f"on_{what}_start"]:
            await _called(hook)
        stack.push_async_callback(self._ended, tuple(reversed(self._hooks[f"on_{what}_stop"])))

    async def _ended(self, hooks: Iterable[Callable[[], object]]) -> None:
        for hook in hooks:
            try:
                await _called(hook)
            except Exception:
                # The other hooks still run.
                _log.exception("the hook %s() raised at the end of a worker", _name(hook))

    async def _lived(self, stack: contextlib.AsyncExitStack, manager: Any) -> None:
        if hasattr(manager, "__aenter__"):
            state = await stack.enter_async_context(manager)
        elif hasattr(manager, "__enter__"):
            state = stack.enter_context(manager)
        else:
            raise TypeError(
                f"lifespan: it returned {type(manager).__name__}; allowed: a context manager, "
                "asynchronous or not"
            )
        one = (object(), state)
        self._states.append(one)
        stack.callback(self._states.remove, one)


async def _called(hook: Callable[[], object]) -> None:
    found = hook()
    if inspect.isawaitable(found):
        await found


def _name(function: object) -> str:
    return getattr(function, "__name__", type(function).__name__)
