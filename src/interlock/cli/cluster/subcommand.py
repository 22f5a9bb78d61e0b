"""Common parts of the subcommands of `interlock cluster`: flags, nodes, errors, output."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from interlock.cli.flags import Flag, seconds
from interlock.cli.tables import printable
from interlock.explanation import printable_json

if TYPE_CHECKING:
    from interlock.client.faces.client import Client
    from interlock.client.rows.announcements import Announcement
    from interlock.hub.client import Client as NodeClient
    from interlock.hub.url import Address

URL = Flag(
    "--url",
    "cluster: interlock+cluster://ENGINE:PORT/CLUSTER, with /DB before its name if needed, and "
    "?user=USER&password=PASSWORD for its nodes (the variable INTERLOCK_URL)",
    "URL",
)
JSON = Flag("--json", "print JSON")
SHARED = (URL, JSON)
WAIT = Flag(
    "--wait", "maximum seconds to wait for completion (30)", "SECONDS", seconds, default=30.0
)
EXIT_CODES = (
    "Exit codes: 0 done, 1 refused, not found, or no connection, 2 wrong usage, 130 Ctrl-C."
)
ALLOWED = "set --url or INTERLOCK_URL: interlock+cluster://ENGINE:PORT/CLUSTER"
Work = Callable[["Cluster"], int]


class Refusal(Exception):
    """A subcommand cannot be executed; the text is for people."""


class Unanswered(Refusal):
    """A node does not answer."""


class Cluster:
    """The nodes of one cluster."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self.name = name
        target = client._engine.target
        self.url = target.shown
        assert target.members is not None
        self._members = target.members

    def nodes(self, within: float | None = None) -> list[Announcement]:
        """Return the nodes that are announced, by data centre and id.

        Args:
            within: seconds for it at most. Default: the timeout of the URL.
        """
        from interlock.client.rows.announcements import Directory

        wait = min(self._members.timeout, within or self._members.timeout)
        directory = Directory(self._client._engine, self.name)
        found = self._client._sessions.run(None, directory.announced, wait)
        return sorted(found, key=lambda one: (one.dc, one.id))

    def node(self, id: str) -> Announcement:
        """Return the node with this id; raises Refusal for an unknown id."""
        found = self.nodes()
        for one in found:
            if one.id == id:
                return one
        if not found:
            raise Refusal(f"no node of cluster {self.name!r} has announced itself at {self.url}")
        raise Refusal(
            f"cluster {self.name!r} has no node {id!r}; it has {', '.join(o.id for o in found)}"
        )

    def place(self, node: str) -> Address:
        """Return the address of a node, given its id or HOST:PORT."""
        return self.address(node if ":" in node else self.node(node).address)

    def address(self, text: str) -> Address:
        """Return an address with the login for it."""
        from interlock.cluster.peers import Peers

        members = self._members
        return Peers(members.user, members.password, members.ca, members.tls).address(text)

    @contextmanager
    def opened(self, place: Address, timeout: float | None = None) -> Iterator[NodeClient]:
        """Connect to a node. Raises Refusal with its error reply, or Unanswered."""
        from interlock.cluster.peers import broken
        from interlock.hub.client import Client
        from interlock.hub.resp import ReplyError

        wait = min(self._members.timeout, 5.0) if timeout is None else timeout
        try:
            with Client(place, timeout=wait, name="interlock-cli") as node:
                yield node
        except ReplyError as error:
            text = str(error).removeprefix("NODE ").removeprefix("ERR ")
            if text.startswith("NOAUTH"):
                text = "it requires a login"
            raise Refusal(f"{place}: {text}{_advice(error)}") from None
        except OSError as error:
            raise Unanswered(f"{place} does not answer: {broken(error, place)}") from None

    def call(self, place: Address, *words: str, timeout: float | None = None) -> Any:
        """Call ``NODE`` at a node; raises as `opened`."""
        with self.opened(place, timeout) as node:
            return node.call("NODE", *words)

    def status(self, place: Address, timeout: float | None = None) -> dict[str, Any]:
        """Return the status of a node; raises as `opened`."""
        told = self.call(place, "STATUS", timeout=timeout)
        try:
            found: dict[str, Any] = json.loads(told)
            return found
        except (TypeError, ValueError):
            raise Refusal(f"{place} answered {told!r:.80}, which is not a status") from None

    def statuses(
        self, nodes: Sequence[str], timeout: float | None = None
    ) -> list[dict[str, Any] | Refusal]:
        """Return the status of each node, or the reason why it is unknown; asks all in parallel.

        Args:
            nodes: ``HOST:PORT`` of each.
            timeout: seconds to wait for each. Default: that of the URL, up to 5.
        """

        def one(node: str) -> dict[str, Any] | Refusal:
            try:
                return self.status(self.address(node), timeout)
            except Refusal as refusal:
                return refusal

        with ThreadPoolExecutor(max(1, min(len(nodes), 32))) as pool:
            return list(pool.map(one, nodes))


def declare(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
    flags: Sequence[Flag] = (),
    *,
    arguments: Sequence[tuple[str, str, str | None]] = (),
    about: str = "",
) -> None:
    """Declare a subcommand: its help line, its arguments (metavar, help, nargs), its flags."""
    described = f"{text[:1].upper()}{text[1:]}."
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=f"{described} {about}".strip(), epilog=EXIT_CODES
    )
    for metavar, help_, nargs in arguments:
        parser.add_argument(metavar.lower(), metavar=metavar, help=help_, nargs=nargs)
    for flag in (*SHARED, *flags):
        flag.add_to(parser)
    parser.set_defaults(run=run)


def ask(given: argparse.Namespace, work: Work) -> int:
    """Run `work` and return its exit code; print errors."""
    from interlock.client.faces.client import connect
    from interlock.errors import InterlockError

    url = given.url or os.environ.get("INTERLOCK_URL") or ""
    if not url:
        return failed(f"no cluster is named; {ALLOWED}", BAD_INPUT)
    try:
        with connect(url) as client:
            members = client._engine.target.members
            if members is None or not members.cluster:
                return failed(f"{client.url} names no cluster; {ALLOWED}", BAD_INPUT)
            return work(Cluster(client, members.cluster))
    except BrokenPipeError:  # the reader closed standard output
        raise
    except Refusal as refusal:
        return failed(str(refusal))
    except ValueError as error:
        return failed(str(error), BAD_INPUT)
    except (InterlockError, ImportError) as error:
        return failed(str(error))


def until(what: Callable[[], bool], wait: float) -> float | None:
    """Wait until a condition holds; return the seconds it took, or None if `wait` has passed."""
    began = time.monotonic()
    while not what():
        if time.monotonic() - began > wait:
            return None
        time.sleep(STEP)
    return time.monotonic() - began


def emit(record: object) -> None:
    """Print a line of JSON."""
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    print(printable_json(record, ascii=encoding != "utf8"), flush=True)


def failed(text: str, code: int = 1) -> int:
    """Print an error, and return the exit code."""
    print(f"interlock: {printable(text)}", file=sys.stderr, flush=True)
    return code


def duration(seconds: float) -> str:
    """Return a duration for people to read."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{max(seconds, 0):.2g} s"


def count(number: int, one: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {one if number == 1 else one + 's'}"


def milliseconds(ms: float) -> str:
    """Return milliseconds, in a larger unit from 10 s on."""
    return f"{ms:.0f} ms" if ms < 10_000 else duration(ms / 1000)


def _advice(error: Exception) -> str:
    text = str(error)
    if text.startswith(("NOAUTH", "WRONGPASS", "NOPERM")):
        return "; name an administrator in the URL: ?user=USER&password=PASSWORD"
    if "unknown command" in text or "not a node of a cluster" in text:
        return "; that is not a node"
    return ""


STEP = 0.05
"""Seconds between two polls."""
BAD_INPUT = 2
