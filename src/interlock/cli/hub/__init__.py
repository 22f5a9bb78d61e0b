"""`interlock hub`: run a hub until TERM or INT, then drain it; subcommands query a running hub."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING

from interlock import audit
from interlock.cli.flags import Flag
from interlock.cli.hub import backup as hub_backup
from interlock.cli.hub import clients as hub_clients
from interlock.cli.hub import daemon, signals
from interlock.cli.hub import info as hub_info
from interlock.cli.hub import stores as hub_stores
from interlock.cli.hub import topics as hub_topics
from interlock.cli.hub.check import hash_password, open_to
from interlock.cli.hub.inherited_sockets import sockets
from interlock.cli.hub.kids import convert_kids
from interlock.cli.hub.pidfile import PidFile, Taken
from interlock.hub.config import configuration as config
from interlock.hub.config import upstream_stores as agent
from interlock.hub.config.settings import BY_KEY
from interlock.hub.serve.heartbeat import Heartbeat
from interlock.hub.serve.log import Log
from interlock.runtime.systemd import Notifier, NotUsable

if TYPE_CHECKING:
    from interlock.hub.serve.server import Hub

FLAGS = (
    Flag("--config", "TOML configuration; without it every key has its default", "FILE"),
    Flag("--port", "TCP port (6399); 0 for a free one, printed in the ready line", "N"),
    Flag("--unix", "listen on this unix socket as well", "PATH"),
    Flag("--workers", "number of threads that serve connections (one per core, at most 4)", "N"),
    Flag("--journal", "make keyed queues durable, with a journal in this folder", "FOLDER"),
    Flag("--log-format", "format of log lines (text)", choices=("text", "json")),
    Flag("--upstream", "run as an agent: forward published messages to the hub there, and keep "
         "them in a spool until it has them (in place of [[store]] tables); repeatable",
         "HOST:PORT", many=True),
    Flag("--upstreams", "with several --upstream: the first that works (priority, the default), or "
         "all of them (multiple)", choices=("priority", "multiple")),
    Flag("--hash-password", "ask for a password (or read a line of standard input), print its hash "
         "for the passwords of a [[user]], and exit"),
    Flag("--daemon", "go to the background once it is ready, or print why it could not start"),
    Flag("--pid", "write the process id to this file; refused if a running hub has it",
         "FILE"),
    Flag("--convert-kids", "convert a configuration of kids, the log collector, for the hub, list "
         "what has no counterpart, and exit", "FILE"),
    Flag("--check", "check the configuration, print who could connect and do what, and exit"),
    Flag("--print-config", "print every key with its value, the origin of the value and a "
         "description, as a configuration file, and exit"),
)  # fmt: skip


# Key of the configuration that each flag sets.
SET = {"port": "port", "unix": "unix", "workers": "workers", "journal": "queues.journal",
       "log-format": "log.format"}  # fmt: skip


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "hub",
        usage="interlock hub [FLAG ...]\n"
        "       interlock hub {info,topics,stores,clients,backup} [FLAG ...]",
        description="Serve topics (publish and subscribe) and keyed queues over the Redis "
        "protocol, by default on 127.0.0.1:6399. With a QUESTION, query a running hub.",
        epilog="A flag overrides the environment (INTERLOCK_HUB_PORT and so on), which overrides "
        "the file. TERM and INT stop it: it takes no new connections and gives clients up "
        "to 'drain' seconds to read their pending output; a second signal ends it "
        "immediately. HUP reads the configuration again; USR1 reopens the log file and "
        "begins new files of stores. Exit codes: 0 stopped by TERM or INT, 1 cannot listen "
        "or continue, 2 wrong usage or configuration.",
    )
    for flag in FLAGS:
        flag.add_to(parser)
    questions = parser.add_subparsers(
        prog="interlock hub", metavar="QUESTION", title="queries to a running hub"
    )
    hub_info.add_to(questions)
    hub_topics.add_to(questions)
    hub_stores.add_to(questions)
    hub_clients.add_to(questions)
    hub_backup.add_to(questions)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Serve until a signal; or only check or print the configuration."""
    if given.hash_password:
        return hash_password()
    if given.convert_kids is not None:
        return convert_kids(given.convert_kids)
    flags = {
        key: config.Raw(BY_KEY[key].parse(text), f"flag --{flag}")
        for flag, key in SET.items()
        if (text := getattr(given, flag.replace("-", "_"))) is not None
    }
    if given.upstream:
        flags["store"] = config.Raw(
            agent.stores(given.upstream, given.upstreams), "flag --upstream"
        )
    elif given.upstreams:
        return _refuse("--upstreams is for several --upstream")
    try:
        checked = config.read(given.config, environment=os.environ, given=flags)
    except config.ConfigError as error:
        return _refuse(*error.faults)
    except OSError as error:
        return _refuse(f"{error.filename or given.config}: {error.strerror or error}")
    if given.print_config:
        print(checked.text(), end="")
        return 0
    if given.check:
        print(open_to(checked), end="")
        return 0
    # Both name this process by its number, which --daemon changes.
    notifier = Notifier.of(os.environ)
    try:
        listeners = sockets(checked)
    except NotUsable as error:
        return _fail(str(error))

    def serving(ready: Callable[[str], None]) -> int:
        with ExitStack() as stack:
            try:
                stack.enter_context(audit.to_file(by_hub=True))
            except ValueError as error:
                return _refuse(str(error))
            return serving_alone(ready)

    def serving_alone(ready: Callable[[str], None]) -> int:
        try:
            with PidFile(given.pid) if given.pid else nullcontext():
                return serve(checked, listeners, notifier, ready)
        except Taken as error:
            return _fail(str(error))
        except config.ConfigError as error:
            return _refuse(*error.faults)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            return _fail(f"{where}{error.strerror or error}")

    if given.daemon:
        return daemon.detached(serving)
    # In one write, even unbuffered: a log line must not come before its end.
    return serving(lambda line: print(f"{line}\n", end="", flush=True))


def serve(
    checked: config.Configuration,
    listeners: list[int],
    notifier: Notifier,
    ready: Callable[[str], None],
) -> int:
    """Run a hub until TERM or INT; call `ready` with the ready line. Raises OSError if it cannot
    listen."""
    from interlock.hub.serve.server import Hub

    broken = threading.Event()

    def end_broken() -> None:
        # Once: the end of a second one must not cut the drain short.
        if not broken.is_set():
            broken.set()
            os.kill(os.getpid(), signal.SIGTERM)

    # Undone if it cannot start.
    with ExitStack() as undo:
        signals.block(undo)
        log = Log.set_up(checked)
        undo.callback(log.take_down)
        hub = Hub(checked)
        hub.on_shutdown = lambda: os.kill(os.getpid(), signal.SIGTERM)
        hub.on_apply = log.apply
        hub.on_broken = end_broken
        hub.start(listeners)
        undo.pop_all()
    ready(ready_line(hub))
    notifier.ready(f"ready on {', '.join(hub.addresses)}")
    with Heartbeat(notifier, hub.pulse, hub.info):
        signals.follow(hub, log, notifier)
    notifier.stopping("sending pending output to clients")
    code = stop(hub)
    # Its supervisor starts another.
    return BROKEN if broken.is_set() else code


def ready_line(hub: Hub) -> str:
    """Return the line with the addresses that it listens on; a second line for HTTP."""
    lines = [f"interlock hub: ready on {', '.join(hub.addresses)}"]
    if hub.http_address:
        lines.append(f"interlock hub: http on {hub.http_address}")
    return "\n".join(lines)


def stop(hub: Hub) -> int:
    """Drain. A second signal means do not wait: it ends the process as usual."""
    signals.end_at_next(hub)
    print("interlock hub: stopping", file=sys.stderr, flush=True)
    cut = hub.stop()
    if cut:
        print(f"interlock hub: {cut} clients were closed with pending output", file=sys.stderr)
    return 0


def _fail(message: str) -> int:
    print(f"interlock: {message}", file=sys.stderr, flush=True)
    return BROKEN


def _refuse(*messages: str) -> int:
    for message in messages:
        print(f"interlock: {message}", file=sys.stderr)
    return BAD_INPUT


BROKEN = 1
BAD_INPUT = 2
