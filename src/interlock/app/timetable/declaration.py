"""The decorators ``@app.cron`` and ``@app.every``: an entry of a timetable, checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from interlock.app.task import AsyncTask, Task
from interlock.app.timetable.entry import Args, Entry, Kwargs, Missed, check_arguments
from interlock.app.timetable.schedule import Schedule

__all__ = ["decorator"]

T = TypeVar("T", bound=Task[..., Any] | AsyncTask[..., Any])


def decorator(
    call: str,
    entries: dict[str, Entry],
    schedule: Schedule,
    missed: Missed,
    name: str | None,
    args: Args,
    kwargs: Kwargs,
    copies: int | None,
) -> Callable[[T], T]:
    """Return the decorator that adds an entry for a task and returns the task."""
    check_arguments(call, "-" if name is None else name, missed, args, kwargs, copies)

    def add(task: T) -> T:
        if not isinstance(task, Task | AsyncTask):
            raise TypeError(
                f"{call}: {task!r} is not a task; write it above @app.task, as in\n"
                f"@app.{call.partition('(')[0]}(...)\n@app.task"
            )
        called = task.name if name is None else name
        check_arguments(call, called, missed, args, kwargs)
        if called in entries:
            raise ValueError(
                f"{call}: {called!r} is already an entry of the timetable; give one of them name="
            )
        entry = Entry(called, task, schedule, missed, args, kwargs, copies or 0)
        try:
            entry.check()
        except TypeError as error:
            raise TypeError(
                f"{call}: its call is invalid: {error}; give args= or kwargs="
            ) from None
        entries[called] = entry
        return task

    return add
