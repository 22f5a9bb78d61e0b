"""`interlock hub`: run a hub until TERM or INT, then drain it."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import TYPE_CHECKING

from interlock.cli.flags import Flag
from interlock.hub import config
from interlock.hub.settings import BY_KEY

if TYPE_CHECKING:
    from interlock.hub.server import Hub

FLAGS = (
    Flag("--config", "read this TOML file; without it every key has its default", "FILE"),
    Flag("--port", "the TCP port (6399); 0 takes a free one, which the ready line tells", "N"),
    Flag("--unix", "listen on this unix socket as well", "PATH"),
    Flag("--workers", "how many threads serve connections (one a core, at most 4)", "N"),
    Flag("--check", "read the configuration, say what would be open to whom, and end"),
    Flag("--print-config", "print every key with its value, where that came from, and what it "
         "does, as a file that would give it, and end"),
)  # fmt: skip


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "hub",
        help="serve topics over the Redis protocol",
        description="Serve topics (publish and subscribe) over the Redis protocol, on "
        "127.0.0.1:6399 unless told otherwise.",
        epilog="A flag goes before the environment (INTERLOCK_HUB_PORT and so on), that before "
        "the file. TERM and INT stop it: no more connections, then up to 'drain' seconds for "
        "clients to read what they are owed; a second signal ends it at once. Exit codes: 0 "
        "stopped by TERM or INT, 1 it cannot listen or broke, 2 wrong usage or configuration.",
    )
    for flag in FLAGS:
        flag.add_to(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Serve until a signal; or only check or print the configuration."""
    flags = {
        key: config.Raw(BY_KEY[key].parse(text), f"flag --{key}")
        for key in ("port", "unix", "workers")
        if (text := getattr(given, key)) is not None
    }
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
    return serve(checked)


def serve(checked: config.Configuration) -> int:
    """Run a hub until TERM or INT."""
    from interlock.hub.server import Hub

    # Blocked before the first thread is made, so that all of them leave signals to this one.
    signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
    hub = Hub(checked)
    try:
        hub.start()
    except OSError as error:
        print(f"interlock: {error.strerror or error}", file=sys.stderr)
        return BROKEN
    print(f"interlock hub: ready on {', '.join(hub.addresses)}", flush=True)
    while signal.sigwait(AWAITED) == signal.SIGHUP:
        print("interlock hub: HUP changes nothing yet; restart it", file=sys.stderr, flush=True)
    return stop(hub)


def stop(hub: Hub) -> int:
    """Drain. Who sends a second signal does not want to wait: it ends the process as usual."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, AWAITED)
    print("interlock hub: stopping", file=sys.stderr, flush=True)
    cut = hub.stop()
    if cut:
        print(f"interlock hub: {cut} clients were owed something still", file=sys.stderr)
    return 0


def open_to(checked: config.Configuration) -> str:
    """What `--check` prints."""
    lines = ["the configuration is good"]
    if checked["host"]:
        reach = "this machine" if not checked["unprotected"] else "whoever reaches the address"
        lines.append(f"{checked['host']}:{checked['port']} is open to {reach}, without a password")
    if checked["unix"]:
        lines.append(f"unix:{checked['unix']} is open to whoever may write to it")
    return "\n".join(lines) + "\n"


def _refuse(*messages: str) -> int:
    for message in messages:
        print(f"interlock: {message}", file=sys.stderr)
    return BAD_INPUT


AWAITED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
BROKEN = 1
BAD_INPUT = 2
