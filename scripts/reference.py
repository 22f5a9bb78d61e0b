"""Writes the pages of docs/reference that are made from declarations, or checks them.

    python scripts/reference.py           writes the pages
    python scripts/reference.py --check   exits with 1 if a page is not what it would write

A flag has one declaration (src/interlock/cli/), as have a setting and a figure of the hub
(src/interlock/hub/config/settings.py and hub/serve/figures.py) and a command of the hub, which
COMMAND DOCS reports: so help, parser, server and these pages cannot differ.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from interlock import Hub, _core
from interlock.cli import (
    cron,
    dashboard,
    exporter,
    hub,
    node,
    parser,
    pub,
    queue,
    replay,
    send,
    sub,
    top,
    worker,
)
from interlock.cli.cluster import GROUPS as CLUSTER_GROUPS
from interlock.cli.cluster import subcommand as cluster_subcommand
from interlock.cli.cluster.subcommand import SHARED as CLUSTER_SHARED
from interlock.cli.flags import Flag
from interlock.cli.hub import backup as hub_backup
from interlock.cli.hub import connection
from interlock.cli.hub import info as hub_info
from interlock.cli.hub import topics as hub_topics
from interlock.cli.queue.subcommand import SHARED
from interlock.cli.store import GROUPS as STORE_GROUPS
from interlock.cli.store import subcommand
from interlock.cli.store.subcommand import JSON as STORE_JSON
from interlock.cli.table import GROUPS as TABLE_GROUPS
from interlock.cli.table.subcommand import JSON
from interlock.hub.client import Client
from interlock.hub.config.configuration import toml
from interlock.hub.config.settings import SETTINGS
from interlock.hub.config.stores import STORES
from interlock.hub.config.table_lists import ListOf
from interlock.hub.config.tables import TABLES
from interlock.hub.config.users import USERS
from interlock.hub.serve.figures import FIGURES, STORE_FIGURES, TABLE_FIGURES, Figure, metric_name
from interlock.metrics.exporter import EXPORTER_FAMILIES
from interlock.metrics.families import OUTCOMES, WORKER_FAMILIES
from interlock.outbox.exporter import OUTBOX_FAMILIES
from interlock.runtime.queue_figures import MOST_QUEUES, QUEUE_FAMILIES, STATES, Family
from interlock.table.kinds import KINDS
from interlock.worker.message.meter import BOUNDS, MOST_LOOKED_AT, MOST_TASKS

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.hub_differences import DIFFERENCES, DIFFERENCES_HEAD
from scripts.reference_pages import metrics as words
from scripts.reference_pages.app import (
    COMPLETION,
    CRON,
    CRON_TAIL,
    DASHBOARD,
    DASHBOARD_TAIL,
    SEND,
    SEND_TAIL,
    TOP,
    WORKER,
    WORKER_TAIL,
)
from scripts.reference_pages.cluster import (
    CLUSTER,
    CLUSTER_COMMAND,
    CLUSTER_HEAD,
    CLUSTER_TAIL,
    NODE,
    NODE_TAIL,
)
from scripts.reference_pages.queue import QUEUE, QUEUE_HEAD, QUEUE_JSON, QUEUE_NAMES, QUEUE_TAIL
from scripts.reference_pages.replay import HEAD, TAIL
from scripts.reference_pages.store import INFO_STORES, STORE, STORE_COMMAND, STORE_HEAD
from scripts.reference_pages.table import TABLE, TABLE_COMMAND, TABLE_HEAD, TABLE_TAIL

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
INSTALL = FOLDER.parent / "howto" / "install.md"

QUEUES = """
## interlock queue

Looks at the queues of a hub or a Redis, and operates them: [its own page](queue-cli.md).
"""

HUB = """
## interlock hub

Serves topics and keyed queues over the Redis protocol, on 127.0.0.1:6399 unless told otherwise:
[how to use it](../howto/hub.md).

```text
interlock hub [FLAGS]
```

"""

HUB_TAIL = """
A flag goes before the [environment](hub-configuration.md), that before the file.
Once it listens it prints `interlock hub: ready on ADDRESS, ...`. TERM and INT stop it: it takes no
more connections, waits up to `drain` seconds until its clients have read what they are owed, and
closes. A second signal ends it at once. HUP reads the configuration again; USR1 opens the log file
anew and begins new files of [stores](../howto/hub-stores.md). In the background, or
under systemd: [as a service](../howto/hub-systemd.md).

### Exit codes of the hub

| code | means |
|---|---|
| 0 | stopped by TERM or INT; with `--daemon`, it serves |
| 1 | it cannot listen, or another has the file of `--pid`: the line names it and the reason |
| 2 | wrong usage or configuration: a line for each fault |

### Examples of the hub

```console
$ interlock hub --check
$ interlock hub --print-config --port 0
```

## interlock hub info, topics, stores, clients

Ask a hub that runs, or a Redis: [how to use them](../howto/hub-watch.md).

```text
interlock hub info [FLAGS]
interlock hub topics [FLAGS] [--clients [--limit N]] [GLOB]
interlock hub stores [FLAGS]
interlock hub clients [FLAGS]
```

"""

ASKED_TAIL = """
`--watch` is for `info` only, `--clients` and `--limit` for `topics`. Exit codes: 0 answered, 1 no
connection, or it was lost, or the server refused, 2 wrong usage, 130 Ctrl-C.
"""

BACKUP = """
## interlock hub backup

Copies the journal of a hub while it runs, or of its folder on this machine: [what is in it, and how
to restore it](../howto/hub-backup.md). `DESTINATION` is a folder that is empty or not there.

```text
interlock hub backup [FLAGS] [FROM] DESTINATION
```

"""

BACKUP_TAIL = """
Exit codes: 0 copied and read once more, 1 it could not be read or written, or the hub refused, 2
wrong usage or `DESTINATION` is not empty, 130 Ctrl-C.
"""

PUB = """
## interlock pub

Publishes each `MESSAGE`, or without one each line of standard input, and prints for each how many
subscribers it reached. Works with Redis too.

```text
interlock pub [FLAGS] TOPIC [MESSAGE ...]
```

"""

SUB = """
## interlock sub

Prints what is published to topics, a line a message: topic, space, payload. A line on standard
error says when the subscriptions stand. Works with Redis too.

```text
interlock sub [FLAGS] TOPIC ...
```

"""

SUB_TAIL = """
Both exit with 0 when they did what was asked, 1 without a connection or when it was
lost (`sub` also when `--count` messages did not come in time), 2 for wrong usage, 130 on Ctrl-C.
"""

CONFIGURATION = """\
<!-- Made by scripts/reference.py from hub/config/settings.py: change that, run it again. -->

# The hub's configuration

A hub needs no configuration. If a value is given more than once, a flag of
[`interlock hub`](cli.md) or an argument of [`Hub`](hub.md) overrides the environment, the
environment overrides the file, and the file overrides the default. (`Hub` ignores the environment.)
`interlock hub --print-config` prints all keys as a configuration file, with the meaning and the
source of each value.

The file is TOML; a key with dots is written in a table:

```toml
port = 6380

[limits.pubsub]
hard = 67108864
```

Invalid values and unknown keys are refused, with their name, their source and what is allowed; all
errors are reported together.

"""

INFO = """\
<!-- Made by scripts/reference.py from hub/serve/figures.py: change that, run it again. -->

# The hub's figures

The figures of the command `INFO` and of `Hub.info()`, and their names in `/metrics`, for
Prometheus: [how to watch a hub](../howto/hub-watch.md). A counter starts at 0 with the hub and only
rises; a gauge rises and falls; a label identifies the hub, and is a label of `interlock_hub_info`;
a text has no metric.
`interlock_hub_draining` is 1 while the hub stops.

"""

INFO_TABLES = """
## Table figures

`INFO` has a line `table_NAME` per table, such as `rows=5,slots=1248`; `Hub.tables()` has numbers,
and `/metrics` has the label `table`. A table knows its number of rows
until one of them may have expired. From then on, counting live rows means visiting every slot.
Tables with up to 16,384 slots are then counted on each request. Larger tables are counted on a
thread, on request, at most once a second and for at most a fiftieth of the time. Their figures are
those of the previous count; before the first count, these figures are missing.

"""

COMMANDS = """\
<!-- Made by scripts/reference.py from what a hub answers to COMMAND DOCS. -->

# The hub's commands

The hub speaks RESP2, RESP3 and inline commands. What it has in common with Redis 7.0.15 it answers
in the same bytes, errors included; [where it does not](#where-it-differs-from-redis) has its
reason. These are its commands, as `COMMAND DOCS` tells them, and the classes by which
[rights](../howto/hub-security.md) are given:

"""


def cli() -> str:
    """Return the page of the command line."""
    parts = [
        HEAD,
        table(replay.FLAGS),
        TAIL,
        QUEUES,
        TABLE_COMMAND,
        NODE,
        table(node.FLAGS),
        NODE_TAIL,
        CLUSTER_COMMAND,
        STORE_COMMAND,
        HUB,
        table(hub.FLAGS),
        HUB_TAIL,
    ]
    parts += [
        table((*connection.FLAGS, hub_info.WATCH, hub_topics.CLIENTS, hub_topics.LIMIT)),
        ASKED_TAIL,
    ]
    parts += [BACKUP, table(hub_backup.FLAGS), BACKUP_TAIL, PUB, table(pub.FLAGS)]
    parts += [SUB, table(sub.FLAGS), SUB_TAIL]
    parts += [WORKER, table(worker.FLAGS), WORKER_TAIL]
    parts += [SEND, table(send.FLAGS), SEND_TAIL, COMPLETION]
    parts += [CRON, table(cron.FLAGS), CRON_TAIL]
    parts += [DASHBOARD, table(dashboard.FLAGS), DASHBOARD_TAIL]
    parts += [TOP, table(top.FLAGS)]
    return "".join([*parts, words.EXPORTER_CLI, table(exporter.FLAGS), words.EXPORTER_CLI_TAIL])


def queue_cli() -> str:
    """Return the page of `interlock queue`."""
    parts = [QUEUE, table(SHARED), QUEUE_HEAD, *subcommands("queue", SHARED, queue.GROUPS)]
    parts.append(QUEUE_JSON.lstrip("\n"))
    for of, each, names in QUEUE_NAMES:
        shown = ", ".join(
            re.sub(r"(\w+)$", r"`\1`", one) if one[-1] != ")" else one for one in names
        )
        parts.append(f"| {of} | {each} | {shown} |\n")
    return "".join([*parts, QUEUE_TAIL])


def table_cli() -> str:
    """Return the page of `interlock table`."""
    shared = (JSON,)
    parts = [TABLE, table(shared), TABLE_HEAD, *subcommands("table", shared, TABLE_GROUPS)]
    return "".join([*parts, TABLE_TAIL])


def table_page() -> str:
    """Return the page of the table with the kinds of columns in their place."""
    rows = ["| type | holds | bytes in a row |", "|---|---|---|"]
    for kind, rule in KINDS.items():
        if rule.numpy in ("U", "S"):
            rows.append(f"| `Annotated[{kind}, Size(n)]` | {rule.holds} | n + 2 |")
            continue
        also = ", `float`" if kind == "F64" else ""
        rows.append(f"| `{kind}`{also} | {rule.holds} | {rule.numpy[1:] or 1} |")
    return filled(FOLDER / "table.md", "kinds", rows)


def install_page() -> str:
    """Return the page of the installation with the names of the extras in their place."""
    project = tomllib.loads((FOLDER.parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
    others = (f"`{extra}`" for extra in project["optional-dependencies"] if extra != "fast")
    return filled(INSTALL, "extras", [", ".join(others)])


def filled(path: Path, name: str, lines: Sequence[str]) -> str:
    """Return a page with these lines between its comments `name` and `/name`."""
    return re.sub(
        rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)",
        lambda mark: mark[1] + "".join(f"{line}\n" for line in lines) + mark[2],
        path.read_text("utf-8"),
        flags=re.DOTALL,
    )


def cluster_cli() -> str:
    """Return the page of `interlock cluster`."""
    shared = CLUSTER_SHARED
    parts = [CLUSTER, table(shared), CLUSTER_HEAD]
    parts += subcommands("cluster", shared, (*CLUSTER_GROUPS, cluster_subcommand))
    return "".join([*parts, CLUSTER_TAIL])


def store_cli() -> str:
    """Return the page of `interlock store`."""
    shared = (STORE_JSON,)
    groups = (*STORE_GROUPS, subcommand)
    parts = [STORE, table(shared), STORE_HEAD, *subcommands("store", shared, groups)]
    return "".join(parts).rstrip("\n") + "\n"


def subcommands(
    command: str, shared: tuple[Flag, ...], groups: tuple[ModuleType, ...]
) -> Iterator[str]:
    """Yield the section of each subcommand of a command."""
    for name, one in subparsers(subparsers(parser(command))[command]).items():
        words = [str(action.metavar) + (" ..." if action.nargs in ("*", "+") else "")
                 for action in one._actions if not action.option_strings]  # fmt: skip
        optional = {action.metavar for action in one._actions if action.nargs in ("*", "?")}
        words = [f"[{word}]" if word.split()[0] in optional else word for word in words]
        flags = tuple(flag for flag in declared(one, groups) if flag not in shared)
        usage = " ".join([f"interlock {command}", name, *words, *(["[FLAGS]"] if flags else [])])
        yield f"## interlock {command} {name}\n\n{one.description}\n\n"
        yield f"```text\n{usage}\n```\n\n"
        yield f"{table(flags)}\n" if flags else ""


def subparsers(of: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the subcommands of a parser, in their order."""
    (found,) = (one for one in of._actions if isinstance(one, argparse._SubParsersAction))
    return dict(found.choices)


def declared(of: argparse.ArgumentParser, groups: tuple[ModuleType, ...]) -> list[Flag]:
    """Return the declarations of a subcommand's flags, in its order."""
    flags = list(SHARED)
    for value in (value for group in groups for value in vars(group).values()):
        found = tuple(value.values()) if isinstance(value, dict) else value
        some = found if isinstance(found, tuple) else (found,)
        flags += (flag for flag in some if isinstance(flag, Flag))
    return [
        next(
            flag
            for flag in flags
            if (flag.name, flag.help) == (action.option_strings[0], action.help)
        )
        for action in of._actions
        if action.option_strings and action.option_strings[0] != "-h"
    ]


def configuration() -> str:
    """Return the page of the hub's settings."""
    lines = ["| key | default | allowed | meaning | environment |", "|---|---|---|---|---|"]
    for setting in SETTINGS:
        cells = [f"`{setting.key}`", f"`{toml(setting.default)}`", cell(setting.allowed)]
        cells += [cell(sentence(setting.help)), f"`{setting.variable}`"]
        lines.append(f"| {' | '.join(cells)} |")
    return (
        CONFIGURATION + "\n".join(lines) + "\n" + entries(USERS) + entries(TABLES) + entries(STORES)
    )


def entries(of: ListOf[Any]) -> str:
    """Return the section of the keys of a list of tables."""
    lines = [f"\n## [[{of.name}]]\n", "| key | default | allowed | meaning |", "|---|---|---|---|"]
    for key in of.keys:
        default = "" if key.required else f"`{toml(key.default)}`"
        cells = [f"`{key.name}`", default, cell(key.allowed), cell(sentence(key.help))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def info() -> str:
    """Return the page of the hub's figures."""
    lines = ["| INFO | kind | meaning | metric |", "|---|---|---|---|"]
    for figure in FIGURES:
        metric = f"`{figure.metric}`" if figure.metric else ""
        meaning = cell(sentence(figure.help))
        lines.append(f"| `{figure.name}` | {figure.kind.value} | {meaning} | {metric} |")
    of_tables, of_stores = labelled("table", TABLE_FIGURES), labelled("store", STORE_FIGURES)
    return INFO + "\n".join(lines) + "\n" + INFO_TABLES + of_tables + INFO_STORES + of_stores


def metrics() -> str:
    """Return the page of the metrics of workers and queues."""
    parts = [words.METRICS, words.WORKER, *map(of_family, WORKER_FAMILIES.values())]
    parts.append(words.OUTCOMES_HEAD)
    parts += [f"| `{name}` | {meaning} |\n" for name, meaning in OUTCOMES.items()]
    bounds = ", ".join(f"{bound:g}" for bound in BOUNDS)
    parts.append(words.WORKER_TAIL.format(bounds=bounds, tasks=MOST_TASKS, looks=MOST_LOOKED_AT))
    parts += [words.QUEUES.format(queues=f"{MOST_QUEUES:,}"), *map(of_family, QUEUE_FAMILIES)]
    parts.append(words.STATES.format(states=", ".join(f"`{state}`" for state in STATES)))
    parts += [words.EXPORTER, *map(of_family, EXPORTER_FAMILIES), words.EXPORTER_TAIL]
    parts += [words.OUTBOX, *map(of_family, OUTBOX_FAMILIES), words.OUTBOX_TAIL]
    return "".join(parts)


def of_family(family: Family) -> str:
    """Return the row of a family."""
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"| `{family.name}` | {family.kind} | {labels} | {sentence(cell(family.help))} |\n"


def labelled(label: str, figures: Sequence[Figure]) -> str:
    """Return the rows of figures that have a label."""
    lines = ["| figure | kind | meaning | metric |", "|---|---|---|---|"]
    for figure in figures:
        metric = f"`{metric_name(f'{label}_{figure.name}', figure.kind)}`"
        cells = [f"`{figure.name}`", figure.kind.value, cell(sentence(figure.help)), metric]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def commands() -> str:
    """Return the page of the hub's commands, queried from a hub."""
    with Hub(port=0) as server, Client(server.url) as client:
        docs = client.call("COMMAND", "DOCS")
    assert isinstance(docs, dict)
    lines = ["| command | what it does | since, in Redis | classes |", "|---|---|---|---|"]
    for name, told in sorted(docs.items()):
        lines += described(name.decode().upper(), told)
    told = "".join(f"| {' | '.join(row)} |\n" for row in DIFFERENCES)
    return COMMANDS + "\n".join(lines) + "\n" + DIFFERENCES_HEAD + told


CLASSES = dict(_core.HubServer.commands())
OWN = {"LOG", "CLIENT SLOW", "PUBSUB CLIENTS", "CONFIG RELOAD", "TABLE", "STORE", "NODE"}
"""Commands that Redis lacks."""


def described(name: str, told: dict[bytes, object]) -> list[str]:
    """Return the rows of a command and of its subcommands."""
    words = {key.decode(): value for key, value in told.items()}
    summary, since = (
        found.decode() if isinstance(found := words.get(key), bytes) else ""
        for key in ("summary", "since")
    )
    # COMMAND DOCS must name a version of Redis; a command that Redis lacks has none.
    since = "" if name.partition(" ")[0] in OWN or name in OWN else since
    classes = " ".join(CLASSES[name.lower().replace(" ", "|")])
    rows = [f"| `{name}` | {cell(sentence(summary))} | {since} | {classes} |"]
    inner = words.get("subcommands")
    if isinstance(inner, dict):
        for subname, subtold in sorted(inner.items()):
            rows += described(subname.decode().upper().replace("|", " "), subtold)
    return rows


def table(flags: tuple[Flag, ...]) -> str:
    """Return a table with one row for each flag."""
    lines = ["| flag | value | meaning |", "|---|---|---|"]
    for flag in flags:
        lines.append(f"| `{flag.name}` | {value(flag)} | {cell(sentence(flag.help))} |")
    return "\n".join(lines) + "\n"


def value(flag: Flag) -> str:
    """Return the placeholder of the flag's value; empty for a flag without one."""
    if flag.choices is not None:
        return ", ".join(f"`{choice}`" for choice in flag.choices)
    return f"`{cell(flag.metavar)}`" if flag.metavar is not None else ""


def sentence(text: str) -> str:
    """Return the help line with a capital, for a table cell."""
    return text[:1].upper() + text[1:]


def cell(text: str) -> str:
    return text.replace("|", "\\|")


PAGES: dict[Path, Callable[[], str]] = {
    FOLDER / "cli.md": cli,
    FOLDER / "queue-cli.md": queue_cli,
    FOLDER / "table-cli.md": table_cli,
    FOLDER / "table.md": table_page,
    INSTALL: install_page,
    FOLDER / "cluster-cli.md": cluster_cli,
    FOLDER / "store-cli.md": store_cli,
    FOLDER / "hub-configuration.md": configuration,
    FOLDER / "hub-commands.md": commands,
    FOLDER / "hub-info.md": info,
    FOLDER / "metrics.md": metrics,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="only compare")
    check = parser.parse_args().check
    code = 0
    for path, page in PAGES.items():
        if not check:
            path.write_text(page(), encoding="utf-8")
        elif path.read_text(encoding="utf-8") != page():
            print(f"{path.name} is not what is declared; run scripts/reference.py", file=sys.stderr)
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
