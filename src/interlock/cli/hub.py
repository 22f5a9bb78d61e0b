"""`interlock hub`: run a hub until TERM or INT, then drain it."""

from __future__ import annotations

import argparse
import getpass
import ipaddress
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

from interlock.cli.flags import Flag
from interlock.hub import config, passwords
from interlock.hub.log import Log
from interlock.hub.settings import BY_KEY

if TYPE_CHECKING:
    from interlock.hub.server import Hub

FLAGS = (
    Flag("--config", "read this TOML file; without it every key has its default", "FILE"),
    Flag("--port", "the TCP port (6399); 0 takes a free one, which the ready line tells", "N"),
    Flag("--unix", "listen on this unix socket as well", "PATH"),
    Flag("--workers", "how many threads serve connections (one a core, at most 4)", "N"),
    Flag("--hash-password", "ask for a password (or read a line of standard input), print its hash "
         "for the passwords of a [[user]], and end"),
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
        "clients to read what they are owed; a second signal ends it at once. HUP reads the "
        "configuration again; USR1 opens the log file anew. Exit codes: 0 "
        "stopped by TERM or INT, 1 it cannot listen or broke, 2 wrong usage or configuration.",
    )
    for flag in FLAGS:
        flag.add_to(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Serve until a signal; or only check or print the configuration."""
    if given.hash_password:
        return hash_password()
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
    log = Log()
    try:
        log.open(checked["log.file"])
    except OSError as error:
        return _fail(f"cannot log to {error.filename}: {error.strerror}")
    logger = logging.getLogger("interlock.hub")
    logger.addHandler(log)
    logger.setLevel(checked["log.level"].upper())
    logger.propagate = False
    hub = Hub(checked)
    hub.on_shutdown = lambda: os.kill(os.getpid(), signal.SIGTERM)
    hub.on_apply = lambda new: set_up(log, logger, new)
    try:
        hub.start()
    except config.ConfigError as error:
        return _refuse(*error.faults)
    except OSError as error:
        return _fail(str(error.strerror or error))
    print(f"interlock hub: ready on {', '.join(hub.addresses)}", flush=True)
    while (number := signal.sigwait(AWAITED)) in RETURNING:
        if number == signal.SIGHUP:
            reload(hub, logger)
        else:
            reopen(log, logger)
    return stop(hub)


def reload(hub: Hub, logger: logging.Logger) -> None:
    """HUP: the configuration anew; one that is wrong changes nothing."""
    try:
        hub.reload()
    except config.ConfigError as error:
        for fault in error.faults:
            logger.error("the configuration is refused: %s", fault)
    except OSError as error:
        logger.error("the configuration cannot be read: %s", error)


def reopen(log: Log, logger: logging.Logger) -> None:
    """USR1: the log file anew, after somebody has moved it away."""
    try:
        log.open()
    except OSError as error:
        logger.error("the log cannot be opened anew, and goes on as before: %s", error)


def set_up(log: Log, logger: logging.Logger, new: config.Configuration) -> None:
    """The log as another configuration wants it."""
    logger.setLevel(new["log.level"].upper())
    if new["log.file"] != log.path:
        try:
            log.open(new["log.file"])
        except OSError as error:
            found = config.Raw(new["log.file"], new.origins["log.file"])
            allowed = f"a file that can be written ({error.strerror})"
            raise config.ConfigError((config.fault("log.file", found, allowed),)) from None


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
    """What `--check` prints: where the hub would listen, who may connect there, and do what."""
    lines = ["the configuration is good"]
    users = checked.users()
    password = (
        "with a password" if not any(user.is_open for user in users) else "without a password"
    )
    certificate = "with a certificate and " if checked["tls.client_ca"] else ""
    if checked["host"]:
        loopback = ipaddress.ip_address(checked["host"]).is_loopback
        reach = "this machine" if loopback else "whoever reaches the address"
        ports = [(checked["port"], bool(checked["tls.cert"]) and checked["tls.port"] < 0)]
        if checked["tls.port"] >= 0:
            ports.append((checked["tls.port"], True))
        for port, speaks_tls in ports:
            shown = f"{checked['host']}:{port or '(a free port)'}"
            how = (
                f"over TLS, {certificate}{password}" if speaks_tls else f"in the clear, {password}"
            )
            lines.append(f"{shown} is open to {reach}, {how}")
    if checked["unix"]:
        lines.append(f"unix:{checked['unix']} is open to whoever may write to it, {password}")
    for user in users:
        who = "everybody" if user.is_open else f"user {user.name}"
        lines.append(f"{who} {user.describe()}")
    return "\n".join(lines) + "\n"


def hash_password() -> int:
    """What `--hash-password` does."""
    if sys.stdin.isatty():
        password = getpass.getpass("password: ")
        if password != getpass.getpass("again: "):
            return _refuse("the two are not the same")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        return _refuse("there is no password")
    print(passwords.hashed(password))
    return 0


def _refuse(*messages: str) -> int:
    for message in messages:
        print(f"interlock: {message}", file=sys.stderr)
    return BAD_INPUT


def _fail(message: str) -> int:
    print(f"interlock: {message}", file=sys.stderr)
    return BROKEN


RETURNING = (signal.SIGHUP, signal.SIGUSR1)
AWAITED = (signal.SIGINT, signal.SIGTERM, *RETURNING)
BROKEN = 1
BAD_INPUT = 2
