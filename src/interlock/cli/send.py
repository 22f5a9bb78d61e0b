"""`interlock send MODULE:TASK [ARG ...]`: send a call of a task."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from interlock.cli.flags import Flag, seconds
from interlock.cli.tables import printable

if TYPE_CHECKING:
    import inspect

    from interlock.app.job import Job

FLAGS = (
    Flag("--kw", "an argument by its name; repeatable", "NAME=VALUE", many=True),
    Flag("--delay", "seconds until the message takes its place", "SECONDS", seconds),
    Flag("--priority", "-100 to 100; never changes the order on a key (the task's)", "N", int),
    Flag("--dedup", "dedup string; while a message with it is unsettled, or was settled within the "
         "queue's window, nothing is sent", "NAME"),
    Flag("--expires", "seconds after which no handler may start (the task's)", "SECONDS",
         seconds),
    Flag("--wait", "wait until it is handled, and print what the handler returned, as JSON"),
    Flag("--timeout", "with --wait, maximum seconds to wait (60)", "SECONDS", seconds, 60.0),
    Flag("--url", "the engine; overrides the app's own and INTERLOCK_URL", "URL"),
    Flag("--json", "print a JSON object with id, known, replaced, task, queue, keys and shared, "
         "and with --wait the result"),
)  # fmt: skip


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "send",
        description="Send a call of a task, and print the message's id. Each ARG is parsed by the "
        "annotation of its parameter: as text if that is str, else as JSON or as the text "
        "of a date, a UUID or an enum.",
        epilog="Put -- before arguments that begin with a dash. Exit codes: 0 sent, or already "
        "known, and with --wait handled; 1 the engine was not reached or refused the call, "
        "or with --wait the message was given up or not handled in time; 2 wrong usage, no "
        "such task, a wrong argument.",
    )
    parser.add_argument(
        "task",
        metavar="MODULE:TASK",
        help=("module and variable of the task; or MODULE:APP:NAME, by its name"),
    )
    parser.add_argument("arguments", metavar="ARG", nargs="*", help="the call's arguments")
    for flag in FLAGS:
        flag.add_to(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Send it, and wait for it on request."""
    from interlock.app.argument_text import arguments_of
    from interlock.errors import InterlockError
    from interlock.worker.process.app_reference import NoApp

    # As in `interlock worker`: the folder of the command is not a place for a program's modules.
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        task = found(given.task)
        by_place(given.arguments, task.signature)
        args, kwargs = arguments_of(
            task.function, task.signature, given.arguments, named(given.kw or ())
        )
        options = {
            name: value
            for name in ("delay", "priority", "dedup", "expires")
            if (value := getattr(given, name)) is not None
        }
        ready = task.options(**options)
        if given.wait and not task.declared.result_ttl:
            raise ValueError(
                f"--wait: the task {task.name!r} keeps no results; give it result_ttl=, in seconds"
            )
    except NoApp as error:
        sys.stderr.write(error.traceback)
        return refuse(str(error))
    except (ValueError, TypeError) as error:
        return refuse(str(error))
    app = task._app
    if given.url is not None:
        app.url = given.url
    url = app._named() or "memory://"
    if url.startswith("memory:"):
        return refuse(
            f"the engine of {given.task} is {url}, which is in this process, so no worker would "
            "handle it; give --url, or set INTERLOCK_URL"
        )
    try:
        return told(ready.send(*args, **kwargs), ready.keys_of(*args, **kwargs), given)
    except (ValueError, TypeError) as error:
        return refuse(str(error))
    except (InterlockError, TimeoutError) as error:
        return failed(error)
    finally:
        app.close()


def told(job: Job[Any], keys: Any, given: argparse.Namespace) -> int:
    """Print the sent message, and with --wait its result."""
    import msgspec

    from interlock.errors import InterlockError
    from interlock.explanation import key_names

    facts: dict[str, Any] = {
        "id": job.id, "known": job.known, "replaced": job.replaced, "task": job.task,
        "queue": job._queue, "keys": key_names(keys.keys), "shared": key_names(keys.shared),
    }  # fmt: skip
    said = f"message {job.id} of queue {job._queue!r}"
    if job.known:
        print(f"{said} has that dedup string; nothing was sent", file=sys.stderr, flush=True)
    if job.replaced:
        print(f"{said} waits under that name; it has these arguments now", file=sys.stderr)
    if not given.wait:
        print(json.dumps(facts) if given.json else job.id, flush=True)
        return 0
    if not given.json:
        print(f"{said} is sent" if not job.known else f"waiting for {said}", file=sys.stderr)
    try:
        result = json.loads(msgspec.json.encode(job.result(given.timeout)))
    except (InterlockError, TimeoutError) as error:
        if given.json:
            reason = getattr(error, "reason", None)
            print(json.dumps({**facts, "error": str(error), "reason": reason}), flush=True)
        return failed(error)
    print(json.dumps({**facts, "result": result} if given.json else result), flush=True)
    return 0


def found(reference: str) -> Any:
    """Return the task of a reference. Raises NoApp."""
    from interlock.app.app import App
    from interlock.app.task import AsyncTask, Task
    from interlock.worker.process.app_reference import NoApp, load

    parts = reference.split(":")
    if len(parts) == 3:
        place = ":".join(parts[:2])
        tasks = load(place, App).tasks
        if parts[2] not in tasks:
            raise NoApp(
                f"the app {place} has no task {parts[2]!r}; it has {', '.join(tasks) or 'none'}"
            )
        return tasks[parts[2]]
    if len(parts) != 2 or not all(parts):
        raise NoApp(
            f"{reference!r} is not a reference to a task; allowed: module:task, such as "
            f"'shop.tasks:ship', or module:app:name"
        )
    # Errors in the module are reported as for an app.
    load(f"{parts[0]}:__name__", str)
    module: Any = sys.modules[parts[0]]
    value = getattr(module, parts[1], None)
    if isinstance(value, Task | AsyncTask):
        return value
    if isinstance(value, App):
        names = ", ".join(value.tasks) or "none"
        raise NoApp(
            f"{reference} is an app; add the name of a task, {reference}:NAME; its tasks: {names}"
        )
    names = ", ".join(
        name for name, each in vars(module).items() if isinstance(each, Task | AsyncTask)
    )
    what = "there is no" if value is None else f"{type(value).__name__} is the"
    raise NoApp(
        f"{what} {parts[1]!r} in the module {parts[0]!r}, but a task is needed; its tasks: "
        f"{names or 'none'}"
    )


def by_place(given: Sequence[str], signature: inspect.Signature) -> None:
    """Check that no positional argument looks like a named one. Raises ValueError."""
    for each in given:
        name, equals, _ = each.partition("=")
        if equals and name in signature.parameters:
            raise ValueError(
                f"{each!r} names the parameter {name!r}; write --kw {each}, or to pass the text "
                f"itself, --kw NAME={each}"
            )


def named(given: Any) -> dict[str, str]:
    """Return the arguments by their names. Raises ValueError."""
    names: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not (name and equals):
            raise ValueError(f"--kw is {each!r}; allowed: NAME=VALUE")
        if name in names:
            raise ValueError(f"--kw names {name!r} twice")
        names[name] = value
    return names


def refuse(message: str) -> int:
    """Print wrong usage or bad input, and return the exit code for it."""
    print(f"interlock: {printable(message, LINES)}", file=sys.stderr, flush=True)
    return BAD_INPUT


def failed(error: Exception) -> int:
    """Print the error, and return the exit code for it."""
    reason = getattr(error, "reason", "")
    told = f"{error}{f' ({reason})' if reason else ''}"
    print(f"interlock: {printable(told, LINES)}", file=sys.stderr, flush=True)
    return BROKEN


BROKEN = 1
BAD_INPUT = 2
LINES = "\n"
"""Characters that a multi-line text keeps."""
