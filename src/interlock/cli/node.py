"""`interlock node`: serve a state table that is the same on several machines."""

from __future__ import annotations

import argparse
import logging
import os
import re
import signal
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from interlock.cli.flags import Flag, address, positive
from interlock.cli.hub import signals
from interlock.cluster.streams import BACKENDS, SCHEMES
from interlock.hub.config import configuration as config
from interlock.hub.serve.heartbeat import Heartbeat
from interlock.hub.serve.log import Log
from interlock.runtime.systemd import Notifier

logger = logging.getLogger("interlock.cluster")


def _link(text: str) -> tuple[str, str]:
    dc, equals, url = text.partition("=")
    if not (equals and dc and "://" in url):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: DC=URL, as west=redis://10.2.0.5")
    return dc, url


def _whole(text: str) -> int:
    if text.isdecimal():
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r}; allowed: a whole number")


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: seconds, more than 0")
    return number


def _cluster(text: str) -> str:
    scheme = text.partition(":")[0]
    if scheme in ENGINES:
        return text
    *titles, last = (backend.title for kind, backend in BACKENDS.items() if kind != "redis")
    raise argparse.ArgumentTypeError(
        f"{text!r}; allowed: redis://HOST:PORT, rediss://HOST:PORT, unix:///PATH, or a hub at "
        f"interlock://HOST:PORT; --stream puts the log on {', '.join(titles)} or {last}"
    )


def _http(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: PORT, HOST:PORT")
    return host or "127.0.0.1", int(port)


ENGINES = ("redis", "rediss", "redis+cluster", "rediss+cluster", "unix", "redis+unix", "interlock",
           "interlock+unix")  # fmt: skip
"""Schemes of engines in which nodes announce themselves."""
FLAGS = (
    Flag("--table", "name of the table, and the class of its rows in a file or module",
         "NAME=FILE.py:CLASS", required=True),
    Flag("--cluster", "engine shared by the nodes of this data centre, for their "
         "announcements and the log", "URL", _cluster, required=True),
    Flag("--stream", f"another engine for the log: {SCHEMES}", "URL"),
    Flag("--name", "name of the node (the machine's)", "NAME"),
    Flag("--dc", "name of its data centre (main)", "NAME", default="main"),
    Flag("--link", "another data centre and its engine; repeatable", "DC=URL", _link,
         many=True),
    Flag("--link-stream", "engine with the log of another data centre, if it is not that of "
         "--link", "DC=URL", _link, many=True),
    Flag("--ack", "number of other machines that must have a write before the client is answered "
         "(0)", "N", _whole, default=0),
    Flag("--machine", "machine, rack or zone of the node: several with the same one count once for "
         "--ack and for trimming the log (the machine it runs on)", "NAME", default=""),
    Flag("--database", "database to which rows are written behind the log: sqlite:///FILE, "
         "postgresql://...; several share the rows by the hash of the key (none)", "URL",
         many=True),
    Flag("--data", "folder for checkpoints and the ring (a folder under the state directory)",
         "FOLDER"),
    Flag("--from-database", "merge the rows of a database even if it is old and its history "
         "differs from the log's"),
    Flag("--partitions", "partitions of a PostgreSQL --database: hash:N, time:day, time:month",
         "HOW"),
    Flag("--max-staleness", "refuse reads if the node has not read its log to the end for this "
         "many seconds (never)", "SECONDS", _seconds),
    Flag("--timeout", "seconds within which a write is done, or not at all (10)", "SECONDS",
         _seconds),
    Flag("--keep", "entries to keep in the log beyond those that nodes need (0)", "N",
         _whole, default=0),
    Flag("--tombstone-age", "seconds to remember a deleted row (604800)", "SECONDS",
         _seconds, default=604_800.0),
    Flag("--capacity", "maximum number of rows (1,000,000)", "N", positive,
         default=1_000_000),
    Flag("--key-size", "maximum bytes of a key (32)", "N", positive, default=32),
    Flag("--ttl", "time to live of a row that is given none (unlimited)", "SECONDS", _seconds),
    Flag("--path", "file of the table, needed for several nodes of it on one machine (shared "
         "memory, under its name)", "FILE"),
    Flag("--mode", "permissions of the table on this machine, as of a file (600)",
         "DIGITS", default="600"),
    Flag("--host", "address to listen on (127.0.0.1)", "HOST"),
    Flag("--port", "TCP port (6399); 0 for a free one, printed in the ready line", "N"),
    Flag("--http", "port for /ready, /health and /metrics over HTTP", "PORT",
         _http),
    Flag("--advertise", "address at which clients and other nodes reach it, if it is not the one "
         "it listens on", "HOST:PORT", address),
    Flag("--peer-user", "user for the hubs of other nodes, with the password in "
         "INTERLOCK_PEER_PASSWORD", "NAME"),
    Flag("--peer-ca", "file of the authority that signed the certificates of other nodes; turns "
         "on TLS to them", "FILE"),
    Flag("--log-format", "format of log lines (text)", choices=("text", "json")),
    Flag("--config", "TOML configuration of a hub, for users, TLS and limits", "FILE"),
)  # fmt: skip


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "node",
        usage="interlock node --table NAME=FILE.py:CLASS --cluster URL [FLAG ...]",
        description="Serve a state table that is the same on several machines. Every node takes "
        "reads and writes: it reads its own rows, and appends writes to a log that all nodes read.",
        epilog="TERM and INT stop it. HUP reads --config again, USR1 reopens the log file. Exit "
        "codes: 0 stopped by TERM or INT, 1 it cannot listen or continue, 2 wrong usage.",
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
    from interlock.hub.serve.server import Hub
    from interlock.table.schema import Schema
    from interlock.table.table import SharedTable

    name, equals, reference = given.table.partition("=")
    if not equals:
        return _refuse(f"--table is {given.table!r}; allowed: NAME=FILE.py:CLASS")
    if given.lease is not None:
        return _refuse(NO_LEASE)
    if re.fullmatch("0?[0-5][0-7]{2}", given.mode):
        return _refuse(NO_MODE.format(given.mode))
    try:
        row = load_row(reference)
        if given.peer_user and not os.environ.get("INTERLOCK_PEER_PASSWORD"):
            return _refuse(NO_PASSWORD)
        if given.peer_ca:
            Path(given.peer_ca).read_bytes()
        settings = NodeSettings(
            table=name,
            row=row,
            cluster=given.cluster,
            name=os.uname().nodename.partition(".")[0] if given.name is None else given.name,
            dc=given.dc,
            stream=given.stream or "",
            links=_by_centre("--link", given.link),
            link_streams=_by_centre("--link-stream", given.link_stream),
            ack=given.ack,
            machine=given.machine,
            databases=tuple(given.database or ()),
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
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"{error.filename or given.config}: {error.strerror or error}")

    # Undone if the node cannot start.
    undo = ExitStack()
    signals.block(undo)
    try:
        log = Log.set_up(checked, logger)
        undo.callback(log.take_down)
        keeper = _core.TableKeeper()
        folder = folder_of(settings, given.data)
        shared: SharedTable[Any] = SharedTable.open(
            Path(given.path) if given.path else name, row,
            capacity=min(given.capacity, ROWS_AT_FIRST), key_size=given.key_size,
            ttl=given.ttl, on_full="raise", mode=int(given.mode, 8), keeper=True,
        )  # fmt: skip
        hub = Hub(checked, keepers={name: keeper})
        node = Node(
            settings, hub, keeper, shared, place=Path(given.path) if given.path else name,
            mode=int(given.mode, 8), folder=folder, advertise=given.advertise or "",
        )  # fmt: skip
        node.hub.on_shutdown = lambda: os.kill(os.getpid(), signal.SIGTERM)
        node.hub.on_apply = log.apply
        node.start()
        undo.pop_all()
    except config.ConfigError as error:
        return _refuse(*error.faults)
    except (ValueError, TypeError) as error:
        return _refuse(str(error))
    except TableKept as error:
        return _fail(str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}")
    finally:
        undo.close()
    print(_ready_line(node), flush=True)
    notifier = Notifier.of(os.environ)
    notifier.ready(f"ready on {', '.join(node.hub.addresses)}")
    return _serve(node, log, notifier)


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


def _serve(node: Any, log: Log, notifier: Notifier) -> int:
    def watch() -> None:
        node.ended.wait()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="node-end", daemon=True).start()
    with Heartbeat(notifier, node.hub.pulse, node.hub.info):
        signals.follow(node.hub, log, notifier)
    notifier.stopping("answering what clients have asked")
    signals.end_at_next(node.hub)
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
        head, allowed, _ = message.partition("; allowed: memory://")
        if allowed:
            # The same as for any client's engine.
            message = f"{head}; allowed: {OF_ENGINES}"
        for argument, flag in ARGUMENTS.items():
            message = message.replace(argument, flag, 1)
        message = OF_TABLE.sub(
            lambda found: f"--{found[1].replace('_', '-')} is {found[2]}", message
        )
        print(f"interlock: {message}", file=sys.stderr)
    return BAD_INPUT


def _by_centre(flag: str, given: list[tuple[str, str]] | None) -> dict[str, str]:
    """Return the URLs of a flag by data centre; raises ValueError if one is named twice."""
    found = dict(given or ())
    twice = [dc for dc in found if [name for name, _ in given or ()].count(dc) > 1]
    if twice:
        raise ValueError(f"{flag} names {twice[0]!r} twice; allowed: each data centre once")
    return found


OF_ENGINES = (
    "redis://HOST:PORT/DB, rediss://HOST:PORT, unix:///PATH, or a hub at interlock://HOST:PORT, "
    "with USER:PASSWORD@ before the host or path, and ?timeout=SECONDS at the end"
)
ARGUMENTS = {
    "connect(): url": "--cluster or --stream",
    "open_log(): url": "--cluster or --stream",
    "open_database(): url": "--database",
    "open_database(): partitions": "--partitions",
    "open_database(): name": "--table",
}
"""Arguments as errors name them, and the flags that they come from."""
OF_TABLE = re.compile(r"^table\[0\]\.(\w+) is (.*) \(flag --table\)")
"""An error of the configuration about a table's flag."""
NO_LEASE = "--lease: nodes have no lease; --timeout limits how long a write may take"
NO_MODE = (
    "--mode is {!r}; allowed: permissions that let the node read and write its table: 600, 660"
)
NO_PASSWORD = "--peer-user has no password: set the variable INTERLOCK_PEER_PASSWORD"
BROKEN = 1
BAD_INPUT = 2
ROWS_AT_FIRST = 16_384
"""Rows for which a table is made; it grows with them, up to ``--capacity``."""
