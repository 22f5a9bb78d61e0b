"""Words of docs/reference/cli.md about what is run beside an app."""

# ruff: noqa: E501

WORKER = """
## interlock worker

Handles the messages of an app's tasks: [how to run workers](../howto/worker.md). With `list`, `stacks ID` and `drain ID` it
asks [workers of all machines](../howto/watch-workers.md#workers-of-all-machines) by way of their engine; with `stacks` alone the
workers of this user on this machine, what their handlers are doing now.

```text
interlock worker MODULE:APP [FLAGS]
interlock worker list [--url URL] [--queues NAMES] [--json]
interlock worker stacks ID [--url URL] [--json]
interlock worker drain ID [--wait] [--url URL] [--json]
interlock worker stacks [--json] [--pid N]
```

`MODULE` is imported as from the current folder; `APP` is the name in it.

"""

WORKER_TAIL = """
Once the engine has answered, and with `--pool process` a process is ready, it prints `interlock worker: ready, ...`.

### Exit codes of a worker

| code | means |
|---|---|
| 0 | stopped by TERM or INT, and all it held was settled as its handlers said |
| 1 | something was handed back while its handler ran, the auditor found a violation, or it broke: the engine refuses it, or no process of its pool starts; of `stacks` and `drain`: no worker answers |
| 2 | wrong usage, no such app or queue: the line says what there is |
"""

CRON = """
## interlock cron

The [timetable](../howto/timetables.md) of an app: the entries that `@app.cron` and `@app.every` declare, and those that are
stored in its engine.

```text
interlock cron list MODULE:APP [--url URL] [--json]
interlock cron next MODULE:APP [NAME] [--count N] [--json]
interlock cron run MODULE:APP NAME [--url URL] [--json]
interlock cron add MODULE:APP NAME --task NAME (--cron EXPRESSION | --every PERIOD) [FLAGS]
interlock cron change MODULE:APP NAME --task NAME (--cron EXPRESSION | --every PERIOD) [FLAGS]
interlock cron remove MODULE:APP NAME [--url URL] [--json]
```

`list` shows all entries with their last and their next tick, as the engine knows them; `next` the
ticks to come of declared entries, by the clock of this machine; `run` sends the call of one now. `change` replaces a stored
entry as a whole; `list --json` has its `args`, `kwargs` and `copies`.

"""

CRON_TAIL = """
Exit codes: 0 done, 1 no connection, or refused, 2 wrong usage, no such app or entry, 130 Ctrl-C.
"""

TOP = """
## interlock top

All queues of an engine live in the terminal: [how to use it](../howto/top.md).

```text
interlock top [FLAGS]
```

"""

DASHBOARD = """
## interlock dashboard

Serves a page over the queues of an engine: [how to use it](../howto/dashboard.md), and
[its API](dashboard.md).

```text
interlock dashboard [FLAGS]
```

"""

DASHBOARD_TAIL = """
Once it serves it prints `interlock dashboard: URL`, and the token if it has made one; with `--json` one line,
`{"url": ..., "token": ...}`. It exits with 0 after TERM or INT, with 1 where the address is taken or a package is
missing, and with 2 for wrong usage.
"""

SEND = """
## interlock send

Sends a call of a [task](../howto/tasks.md), and prints the message's id.

```text
interlock send MODULE:TASK [ARG ...] [FLAGS]
interlock send MODULE:APP:NAME [ARG ...] [FLAGS]
```

The module is imported as from the current folder. Each ARG is read by the annotation of its
parameter: text where that is `str`, else JSON, or the text of a date, a UUID, an enum. An argument
that is wrong is named, and nothing is sent. Words that begin with a dash follow `--`.

"""

SEND_TAIL = """
### Exit codes of a send

| code | when |
|---|---|
| 0 | it was sent, or its `--dedup` name is known; with `--wait` its handler has returned |
| 1 | the engine was not reached or refused it; with `--wait` it was given up, or is not handled |
| 2 | wrong usage, no such task, a wrong argument |

"""

COMPLETION = """## interlock completion

Prints the completion of this command for `bash`, `zsh` or `fish`.

```text
interlock completion bash|zsh|fish
```

| shell | where |
|---|---|
| bash | `source <(interlock completion bash)` in `~/.bashrc` |
| zsh | `eval "$(interlock completion zsh)"` in `~/.zshrc`, behind `compinit` |
| fish | `interlock completion fish > ~/.config/fish/completions/interlock.fish` |

Where the package is installed under `/usr` or `/usr/local`, shells find it by themselves.
"""
