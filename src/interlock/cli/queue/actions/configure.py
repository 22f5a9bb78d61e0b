"""`interlock queue configure`: show the options of a queue, and change them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from interlock.cli.flags import Flag
from interlock.cli.queue.subcommand import BAD_INPUT, ask, declare, emit, failed

if TYPE_CHECKING:
    from interlock.client.admin.operator import Operator
    from interlock.client.request import Argument
    from interlock.runtime.concurrency import Rate

FLAGS = {
    # wire: flags
    "maxsize": Flag("--maxsize", "maximum unsettled messages, including leased; 0: unlimited", "N"),
    "maxbytes": Flag("--maxbytes", "maximum bytes of their payloads; 0: unlimited", "N"),
    "maxdead": Flag("--maxdead", "maximum number of dead letters", "N"),
    "dedup_window": Flag(
        "--dedup-window",
        "seconds that the dedup string of a settled message is remembered",
        "SECONDS",
    ),
    "durability": Flag("--durability", "always, everysec or none; on a hub with a journal", "WORD"),
    "dead_ttl": Flag("--dead-ttl", "seconds that a dead letter is kept; none: no limit", "SECONDS"),
    "limits": Flag(
        "--limits",
        "limits and rates, such as bank=4,tenant:*=2,api=10/1s:20; none: no limits",
        "LIST",
    ),
    "weights": Flag(
        "--weights", "messages of a group's turn, such as acme=3,free:*=1; none: one each", "LIST"
    ),
    "behind": Flag(
        "--behind",
        "outcome for messages behind a held or dead one: wait, bury, cancel or park",
        "WORD",
    ),
    "attempts": Flag("--attempts", "total attempts of a message; none: unlimited", "N"),
    "first": Flag("--first", "seconds of backoff after the first failure", "SECONDS"),
    "factor": Flag("--factor", "factor by which each further backoff grows, 1 or more", "NUMBER"),
    "longest": Flag("--longest", "maximum backoff in seconds", "SECONDS"),
    "jitter": Flag(
        "--jitter", "true: each backoff is random, from half to all of its length; false", "WORD"
    ),
    "then": Flag("--then", "outcome after the last attempt: dead or hold", "WORD"),
    # /wire
}
"""Named as in `Client.queue` and `Retry`."""


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(
        commands,
        "configure",
        configure,
        "show the options of a queue, or change some",
        tuple(FLAGS.values()),
        about="Without options it shows all. Other options are unchanged, and no message is "
        "dropped: with a lower --maxsize puts wait until there is room. Programs that declare "
        "different options are refused when they next start. A queue that does not exist "
        "is declared.",
    )


def configure(given: argparse.Namespace) -> int:
    """Change the named options, and show them."""
    named = {name: getattr(given, name) for name in FLAGS if getattr(given, name) is not None}
    try:
        changed = pairs(named)
    except (TypeError, ValueError) as error:
        name, _, rest = str(error).rpartition("(): ")[2].partition(" ")
        failed(f"--{name.removeprefix('--').replace('_', '-')} {rest}")
        return BAD_INPUT

    def work(operator: Operator) -> int:
        from interlock.client.wire.declaration import NAMED, plain, shown

        before = operator.options(given.queue)
        after = operator.change_options(given.queue, changed) if changed else before
        old, new = (
            {one.argument: shown(name, words[name]) for name, one in NAMED.items()}
            for words in (before, after)
        )
        if given.json:
            old, new = (plain(options) for options in (old, new))
            differs = {name: [old[name], new[name]] for name in new if old[name] != new[name]}
            emit({"queue": given.queue, "options": new, "changed": differs})
        else:
            show(given.queue, old, new, named)
        return 0

    return ask(given, work)


def pairs(named: dict[str, str]) -> dict[str, Argument]:
    """Return the names and values on the wire of options as they were typed."""
    from interlock.client.wire import declaration
    from interlock.client.wire.functions import OPTIONS, POLICY
    from interlock.retry import Retry

    values: dict[str, Any] = {name: typed(name, text) for name, text in named.items()}
    plain = {one.argument for one in OPTIONS}
    policy = {one.name for one in POLICY if one.argument in values}
    retry = Retry(**{name: value for name, value in values.items() if name not in plain})
    given = {name: value for name, value in values.items() if name in plain}
    found = declaration.pairs("configure()", given)
    of_retry = declaration.pairs("configure()", {"retry": retry})
    return found | {name: value for name, value in of_retry.items() if name in policy}


def typed(name: str, text: str) -> object:
    """Return the value of an option."""
    from interlock.client.wire.functions import OPTIONS, POLICY

    if name == "jitter":
        if text not in ("true", "false"):
            raise ValueError(f"--jitter is {text!r}; allowed: true, false")
        return text == "true"
    if name == "limits":
        return _limits(text)
    if name == "weights":
        return _weights(text)
    if FLAGS[name].metavar == "WORD":
        return text
    if text == "none" and any(o.argument == name and o.unbounded for o in (*OPTIONS, *POLICY)):
        return None
    whole = FLAGS[name].metavar == "N"
    try:
        return int(text) if whole else float(text)
    except ValueError:
        kind = "a whole number" if whole else "a number"
        raise ValueError(f"{FLAGS[name].name} is {text!r}; allowed: {kind}") from None


def _limits(text: str) -> dict[str, int | Rate]:
    """Return limits and rates from ``bank=4,api=10/1s:20``; ``none``: no limits."""
    from interlock.runtime.concurrency import Rate

    found: dict[str, int | Rate] = {}
    for entry in text.split(",") if text != "none" else ():
        name, _, value = map(str.strip, entry.rpartition("="))
        if not name or not ("/" in value or value.isdecimal()):
            raise ValueError(
                f"--limits has {entry!r}; allowed: NAME=N or NAME=N/TIME:BURST, several joined by "
                "commas, or none"
            )
        if name in found:
            raise ValueError(f"--limits has {name!r} twice; allowed: each name once")
        try:
            found[name] = Rate.read(value) if "/" in value else int(value)
        except ValueError as error:
            said = str(error).removeprefix("Rate(): ")
            raise ValueError(f"--limits has {entry!r}: {said}") from None
    return found


def _weights(text: str) -> dict[str, int]:
    """Return weights from ``acme=3,free:*=1``; ``none``: no weights."""
    found: dict[str, int] = {}
    for entry in text.split(",") if text != "none" else ():
        group, _, weight = map(str.strip, entry.rpartition("="))
        if not group or not weight.isdecimal():
            raise ValueError(
                f"--weights has {entry!r}; allowed: GROUP=N, several joined by commas, or none"
            )
        if group in found:
            raise ValueError(f"--weights has {group!r} twice; allowed: each group once")
        found[group] = int(weight)
    return found


def show(queue: str, old: dict[str, Any], new: dict[str, Any], named: dict[str, str]) -> None:
    """Print a line for each option: the named ones, or all."""
    from interlock.client.wire.declaration import word

    if not named:
        print(queue)
    for name in named or new:
        was, now = word(old[name]), word(new[name])
        if not named:
            print(f"  {name:<14}{now}")
        else:
            print(f"{queue}  {name}  {f'{was} -> {now}' if was != now else f'{now}, as before'}")
