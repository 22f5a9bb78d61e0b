"""Words of the page of `interlock store` beside the declarations, for scripts/reference.py."""

STORE = """\
<!-- Made by scripts/reference.py from the parser and the flags' declarations: change those. -->

# interlock store

Reads the files that the [stores](../howto/hub-stores.md) of a hub have written, whether or not the
hub runs. Data goes to standard output, everything else to standard error.

## All subcommands

"""

STORE_HEAD = """
A `PATH` is a folder with the files of stores, or one of these files: its data, compressed or not,
or its index. A `POSITION` is the position of a message in its topic, `1526919030474-0`, or a time
in ISO 8601.

| code | meaning |
|---|---|
| 0 | done; everything is intact |
| 1 | something is missing, damaged or unreadable: a line gives the reason and the position |
| 2 | wrong usage |
| 130 | Ctrl-C |

"""

STORE_COMMAND = """
## interlock store

Reads the files that the stores of a hub have written: [its own page](store-cli.md).
"""

INFO_STORES = """
## Store figures

`INFO` has a line `store_NAME` per store, such as `accepted=5,written=5`; `Hub.stores()` has
numbers, and `/metrics` has the label `store`. Counting starts when the store is opened.

"""
