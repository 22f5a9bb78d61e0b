"""Common parts of the subcommands of `interlock queue`: flags, the server, errors, answers."""

from __future__ import annotations

import argparse
import getpass
import os
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from interlock.cli.flags import Flag
from interlock.cli.tables import printable
from interlock.explanation import printable_json
from interlock.runtime.limits import MAX_NAME

if TYPE_CHECKING:
    from interlock.client.admin.operator import Operator

Commands = "argparse._SubParsersAction[argparse.ArgumentParser]"
Work = Callable[["Operator"], int]

URL = Flag(
    "--url",
    "the engine: interlock://HOST:PORT of a hub, redis://USER:PASSWORD@HOST:PORT, rediss://, "
    "redis+cluster://, unix:PATH (the variable INTERLOCK_URL)",
    "URL",
)
JSON = Flag("--json", "print JSON")
SHARED = (URL, JSON)
EXIT_CODES = (
    "Exit codes: 0 done, 1 refused, not found, or no connection, 2 wrong usage, 130 Ctrl-C."
)


def declare(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
    flags: Sequence[Flag] = (),
    *,
    about: str = "",
    queue: str | None = "QUEUE",
    ids: str = "",
) -> argparse.ArgumentParser:
    """Declare a subcommand: its help line, its arguments, and the shared flags.

    `about` continues the help line. `queue` is None for a command without a queue, and "[QUEUE]" if
    it is optional; `ids` is "ID" for required ids, "[ID]" for optional ones.
    """
    described = f"{text[:1].upper()}{text[1:]}."
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=f"{described} {about}".strip(), epilog=EXIT_CODES
    )
    if queue is not None:
        many = None if queue == "QUEUE" else "?"
        parser.add_argument("queue", metavar="QUEUE", nargs=many, help="its name")
    if ids:
        nargs = "+" if ids == "ID" else "*"
        parser.add_argument("ids", metavar="ID", nargs=nargs, type=message_id, help="messages")
    for flag in (*SHARED, *flags):
        flag.add_to(parser)
    parser.set_defaults(run=run, fail=parser.error)
    return parser


def message_id(text: str) -> int:
    """Parse a message's id."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a message's id, a whole number")
    return int(text)


def ask(given: argparse.Namespace, work: Work) -> int:
    """Return the result of `work`, or print the error that stopped it and return the exit code."""
    from interlock import audit
    from interlock.client.admin.operator import Operator
    from interlock.client.admin.server import Server
    from interlock.client.connection.refusals import is_advised
    from interlock.client.faces.client import connect
    from interlock.errors import EngineUnavailable, InterlockError

    url = address(given)
    if not url:
        print(f"interlock: no engine is named; {ALLOWED}", file=sys.stderr)
        return BAD_INPUT
    name = getattr(given, "queue", None)
    if name is not None and (fault := wrong_name(name)):
        print(f"interlock: QUEUE is {name!r}: {fault}", file=sys.stderr)
        return BAD_INPUT
    try:
        with audit.to_file(), connect(url) as client:
            user = client._engine.target.user or "default"
            audit.acting(user, _place())
            return work(Operator(Server(client)))
    except BrokenPipeError:  # the reader closed standard output
        raise
    except ImportError as error:
        return failed(f"{error}; `pip install .` in the clone of Interlock brings what it needs")
    except ValueError as error:
        print(f"interlock: {error}", file=sys.stderr)
        return BAD_INPUT
    except InterlockError as error:
        said = explained(str(error))
        failed(said)
        if isinstance(error, EngineUnavailable) and not is_advised(said):
            failed(f"is it running there? {ALLOWED}")
        return BROKEN


def _place() -> str:
    """Return the user and host that run this command, for the audit log."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without an entry, as in a container
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def address(given: argparse.Namespace) -> str:
    """Return the URL of the engine; empty if none is given.

    HOST:PORT is a hub's, as for the commands that query a hub.
    """
    url: str = given.url or os.environ.get("INTERLOCK_URL") or ""
    return url if not url or "://" in url or url.startswith("unix:") else f"interlock://{url}"


def wrong_name(name: str) -> str:
    """Return the fault in a queue's name; empty if it is valid."""
    length = len(name.encode(errors="surrogateescape"))
    if not 1 <= length <= MAX_NAME or "{" in name or "}" in name:
        return f"allowed: 1 to {MAX_NAME} bytes, without braces"
    return ""


def existing(operator: Operator, queue: str) -> bool:
    """Return whether the queue exists; if not, print that, with the existing ones."""
    stats = operator.stats(queue)
    # A queue that was ever put into, declared, sealed or paused is found by its counts or its name.
    if stats["puts"] or stats["unsettled"] or stats["sealed"] or stats["paused"]:
        return True
    names = operator.queues()
    if queue in names:
        return True
    there = f"there are: {', '.join(names[:20])}" if names else f"there are none{operator.note}"
    if len(names) > 20:
        there += f", and {len(names) - 20} more"
    failed(f"no queue {queue!r} on this server; {there}")
    return False


def on_queue(given: argparse.Namespace, work: Work) -> int:
    """Do as `ask` does, for a queue that must exist."""
    return ask(given, lambda engine: work(engine) if existing(engine, given.queue) else BROKEN)


def explained(error: str) -> str:
    """Return the server's error, with advice if the error is not plain."""
    from interlock.client.connection.refusals import advised

    for part, advice in ADVICE.items():
        if part in error:
            return f"{error}; {advice}"
    return advised(error)


def emit(record: object) -> None:
    """Print a line of JSON."""
    print(printable_json(record, ascii=escaped()), flush=True)


def escaped() -> bool:
    """Return whether JSON must be ASCII here: Python escapes characters that standard output cannot
    encode in its own way, which is not JSON."""
    return (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"


def emit_all(records: Iterable[object]) -> None:
    """Print lines of JSON."""
    for record in records:
        emit(record)


def failed(message: str) -> int:
    """Print the error, and return the exit code."""
    # It may hold a name or an error from the engine, whose text comes from outside.
    print(f"interlock: {printable(message, LINES)}", file=sys.stderr, flush=True)
    return BROKEN


def count(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


BROKEN = 1
LINES = "\n\t"
BAD_INPUT = 2
ALLOWED = (
    "set --url or INTERLOCK_URL: interlock://127.0.0.1:6399 for a hub, redis://127.0.0.1:6379 "
    "for Redis"
)
ADVICE = {
    "CERTIFICATE_VERIFY_FAILED": "name its authority: rediss://HOST:PORT?ca=FILE",
    "SEALED": "`interlock queue reopen` accepts puts again",
}
