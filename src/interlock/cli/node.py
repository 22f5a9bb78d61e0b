"""`interlock node`: serve a state table that is the same on several machines."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

from interlock.cli.flags import Flag, positive
from interlock.cli.hub import RETURNING, reload
from interlock.hub import config
from interlock.hub.heartbeat import Heartbeat
from interlock.hub.log import Log
from interlock.systemd import Notifier

logger = logging.getLogger("interlock.cluster")


def _link(text: str) -> tuple[str, str]:
    dc, equals, url = text.partition("=")
    if not (equals and dc and "://" in url):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: DC=URL, as west=redis://10.2.0.5")
    return dc, url


def _ack(text: str) -> int | str:
    if text == "all" or text.isdecimal():
        return text if text == "all" else int(text)
    raise argparse.ArgumentTypeError(f"{text!r}; allowed: 0, a whole number, all")


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: seconds, more than 0")
    return number


def _http(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: PORT, HOST:PORT")
    return host or "127.0.0.1", int(port)


FLAGS = (
    Flag("--table", "the table's name and the class of its rows, in a file or a module",
         "NAME=FILE.py:CLASS", required=True),
    Flag("--cluster", "the engine that the nodes of this data centre share: it has their "
         "announcements and the log", "URL", required=True),
    Flag("--stream", "keep the log on another engine: redis://, nats://, kafka://, "
         "rabbitmq+stream://", "URL"),
    Flag("--name", "the node's name (the machine's)", "NAME"),
    Flag("--dc", "the name of its data centre (main)", "NAME", default="main"),
    Flag("--link", "another data centre and its engine; again for more", "DC=URL", _link,
         many=True),
    Flag("--link-stream", "the engine with the log of another data centre, where that is not "
         "its engine", "DC=URL", _link, many=True),
    Flag("--ack", "number of other machines that must have a write before the client is answered "
         "(0)", "N", _ack, default=0),
    Flag("--database", "write rows behind, into this database: sqlite:///FILE, postgresql://...; "
         "several by the hash of the key", "URL", many=True),
    Flag("--data", "folder for checkpoints, and for a database of SQLite if --database does not "
         "say otherwise (one under the state directory, without a database)", "FOLDER"),
    Flag("--from-database", "take what a database has, though it is of another history than the "
         "log's, and old"),
    Flag("--partitions", "have a database of PostgreSQL in parts: hash:N, time:day, time:month",
         "HOW"),
    Flag("--max-staleness", "refuse reads when the node has not read its log to the end for this "
         "many seconds", "SECONDS", _seconds),
    Flag("--timeout", "seconds within which a write is done, or not at all (10)", "SECONDS",
         _seconds),
    Flag("--keep", "entries that the log keeps at least, beyond those that nodes need (0)", "N",
         positive, default=0),
    Flag("--tombstone-age", "seconds for which a deleted row is remembered (604800)", "SECONDS",
         _seconds, default=604_800.0),
    Flag("--capacity", "rows beyond which new ones are refused (1,000,000)", "N", positive,
         default=1_000_000),
    Flag("--key-size", "most bytes of a key (32)", "N", positive, default=32),
    Flag("--ttl", "seconds that a row lives if it is not told (for ever)", "SECONDS", _seconds),
    Flag("--path", "have the table in this file, where the machine has several nodes of it (in "
         "shared memory, under its name)", "FILE"),
    Flag("--mode", "who may read the table on this machine, as the permissions of a file (600)",
         "DIGITS", default="600"),
    Flag("--host", "the address to listen on (127.0.0.1)", "HOST"),
    Flag("--port", "the TCP port (6399); 0 takes a free one, which the ready line tells", "N"),
    Flag("--http", "serve /ready, /health and figures over HTTP on this port", "PORT",
         _http),
    Flag("--advertise", "the address by which clients and other nodes reach it, where that is not "
         "the one it listens on", "HOST:PORT"),
    Flag("--peer-user", "log in to other nodes as this user of their hubs, with the password in "
         "INTERLOCK_PEER_PASSWORD", "NAME"),
    Flag("--peer-ca", "reach other nodes over TLS; the file of the authority that signed their "
         "certificates", "FILE"),
    Flag("--log-format", "how each line of the log is written (text)", choices=("text", "json")),
    Flag("--config", "read this TOML file of a hub, for users, TLS and limits", "FILE"),
)  # fmt: skip


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "node",
        help="serve a state table that is the same on several machines",
        usage="interlock node --table NAME=FILE.py:CLASS --cluster URL [FLAG ...]",
        description="Serve a state table that is the same on several machines. Every node takes "
        "reads and writes: it reads its own rows, and appends writes to a log that all nodes read.",
        epilog="TERM and INT stop it. HUP reads --config again, USR1 opens the log file anew. Exit "
        "codes: 0 stopped by TERM or INT, 1 it cannot "
        "listen or go on, 2 wrong usage.",
    )
    for flag in FLAGS:
        flag.add_to(parser)
    parser.add_argument("--lease", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Serve until a signal."""
    from interlock import _core
    from interlock.cluster.node import Node, folder_of
    from interlock.cluster.peers import Peers
    from interlock.cluster.row_reference import load_row
    from interlock.cluster.settings import NodeSettings
    from interlock.errors import TableKept
    from interlock.hub.server import Hub
    from interlock.table.schema import Schema
    from interlock.table.table import SharedTable

    name, equals, reference = given.table.partition("=")
    if not equals:
        return _refuse(f"--table is {given.table!r}; allowed: NAME=FILE.py:CLASS")
    if given.lease is not None:
        return _refuse(NO_LEASE)
    try:
        row = load_row(reference)
        settings = NodeSettings(
            table=name,
            row=row,
            cluster=given.cluster,
            name=given.name or os.uname().nodename.partition(".")[0],
            dc=given.dc,
            stream=given.stream or "",
            links=dict(given.link or ()),
            link_streams=dict(given.link_stream or ()),
            ack=given.ack,
            databases=_databases(given, name),
            partitions=given.partitions,
            from_database=given.from_database,
            max_staleness=given.max_staleness,
            timeout=given.timeout or 10.0,
            keep=given.keep,
            tombstone_age=given.tombstone_age,
            capacity=given.capacity,
            key_size=given.key_size,
            ttl=given.ttl,
            peers=Peers(
                given.peer_user or "",
                os.environ.get("INTERLOCK_PEER_PASSWORD"),
                given.peer_ca or "",
            ),
        )
        table = {
            "name": name, "columns": str(Schema.of(row)), "capacity": given.capacity,
            "key_size": given.key_size, "ttl": given.ttl or 0.0, "on_full": "raise",
            "mode": given.mode, "path": given.path or "",
        }  # fmt: skip
        checked = config.read(given.config, environment=os.environ, given=_hub(given, table))
    except config.ConfigError as error:
        return _refuse(*error.faults)
    except (TypeError, ValueError) as error:
        return _refuse(str(error).removeprefix("node(): "))
    except OSError as error:
        return _refuse(f"{error.filename or given.config}: {error.strerror or error}")

    signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
    log = Log.set_up(checked)
    logger.addHandler(log)
    logger.propagate = False
    logger.setLevel(checked["log.level"].upper())
    keeper = _core.TableKeeper()
    try:
        folder = folder_of(settings, given.data)
        shared: SharedTable[Any] = SharedTable.open(
            Path(given.path) if given.path else name, row,
            capacity=given.capacity, key_size=given.key_size,
            ttl=given.ttl, on_full="raise", mode=int(given.mode, 8), keeper=True,
        )  # fmt: skip
        hub = Hub(checked, keepers={name: keeper})
        node = Node(
            settings, hub, keeper, shared, place=Path(given.path) if given.path else name,
            mode=int(given.mode, 8), folder=folder, advertise=given.advertise or "",
        )  # fmt: skip
        node.hub.on_shutdown = lambda: os.kill(os.getpid(), signal.SIGTERM)
        node.hub.on_apply = lambda new: _apply(log, new)
        node.start()
    except config.ConfigError as error:
        return _refuse(*error.faults)
    except (ValueError, TypeError) as error:
        return _refuse(str(error))
    except TableKept as error:
        return _fail(str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}")
    print(_ready_line(node), flush=True)
    notifier = Notifier.of(os.environ)
    notifier.ready(f"ready on {', '.join(node.hub.addresses)}")
    return _serve(node, log, notifier)


def _databases(given: argparse.Namespace, table: str) -> tuple[str, ...]:
    if given.database:
        return tuple(url for url in given.database if url != "none")
    if not given.data:
        return ()
    return (f"sqlite://{quote(str(Path(given.data).resolve() / f'{table}.sqlite'))}",)


def _hub(given: argparse.Namespace, table: dict[str, object]) -> dict[str, config.Raw]:
    flags: dict[str, config.Raw] = {"table": config.Raw([table], "flag --table")}
    for key in ("host", "port"):
        text = getattr(given, key)
        if text is not None:
            value: object = int(text) if key == "port" and text.isdecimal() else text
            flags[key] = config.Raw(value, f"flag --{key}")
    if given.log_format is not None:
        flags["log.format"] = config.Raw(given.log_format, "flag --log-format")
    if given.http is not None:
        host, port = given.http
        flags["http.host"] = config.Raw(host, "flag --http")
        flags["http.port"] = config.Raw(port, "flag --http")
    return flags


def _apply(log: Log, new: config.Configuration) -> None:
    log.apply(new)
    logger.setLevel(new["log.level"].upper())


def _serve(node: Any, log: Log, notifier: Notifier) -> int:
    def watch() -> None:
        node.ended.wait()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="node-end", daemon=True).start()
    with Heartbeat(notifier, node.hub.pulse, node.hub.info):
        while (number := signal.sigwait(AWAITED)) in RETURNING:
            if number == signal.SIGUSR1:
                log.reopen()
                node.hub.rotate()
            else:
                notifier.reloading()
                reload(node.hub)
                notifier.ready()
    notifier.stopping("answering what clients have asked")
    # The command SHUTDOWN is no second signal.
    node.hub.on_shutdown = lambda: None
    # A second one ends it at once.
    for number in STOPPING:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    if not node.figures.fault:
        print("interlock node: stopping", file=sys.stderr, flush=True)
    node.close()
    return _fail(node.figures.fault) if node.figures.fault else 0


def _ready_line(node: Any) -> str:
    lines = [f"interlock node: {node.settings.name} ready on {', '.join(node.hub.addresses)}"]
    if node.hub.http_address:
        lines.append(f"interlock node: http on {node.hub.http_address}")
    return "\n".join(lines)


def _fail(message: str) -> int:
    print(f"interlock: {message}", file=sys.stderr, flush=True)
    return BROKEN


def _refuse(*messages: str) -> int:
    for message in messages:
        print(f"interlock: {message}", file=sys.stderr)
    return BAD_INPUT


NO_LEASE = "--lease: there is no primary any more; --timeout says how long a write may take"
STOPPING = (signal.SIGINT, signal.SIGTERM)
AWAITED = (*STOPPING, *RETURNING)
BROKEN = 1
BAD_INPUT = 2
