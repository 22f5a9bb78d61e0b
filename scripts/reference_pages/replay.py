"""Words of docs/reference/cli.md about the replay, for scripts/reference.py."""

HEAD = """\
<!-- Made by scripts/reference.py from the flags' declarations: change those, and run it again. -->

# The command line

Data goes to standard output, all else to standard error. `interlock --help` and `--help` behind a
subcommand say what this page says. `python -m interlock` is the same command.

## interlock replay

Replays recorded messages: in order per key, never two conflicting ones at the same time, all else
in parallel; then checks from outside that it was so.

```text
interlock replay [FLAGS] TRACE
interlock replay [FLAGS] --git REPO
```

`TRACE` is a file of [JSON lines](trace-files.md), plain or gzip, told by its content; `-` is
standard input.

"""

TAIL = """
### Exit codes

| code | means |
|---|---|
| 0 | order was kept: no violation, and the digest equals the serial run's |
| 1 | it was not, or the run broke. (A handler that raises is counted and shown) |
| 2 | wrong usage or bad input; a bad line is named with its number and what is wrong |
| 130 | Ctrl-C |

### Environment

`NO_COLOR` switches colours off. They are used only where standard output is a terminal.

### Examples

```console
$ interlock replay examples/data/redis-commits.jsonl.gz --limit 200 --work sleep:200us
$ interlock replay examples/data/redis-commits.jsonl.gz --limit 200 --way taskgroup --json
$ interlock replay examples/data/redis-commits.jsonl.gz --limit 200 --picture run.svg
```
"""
