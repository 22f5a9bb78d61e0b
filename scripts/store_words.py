"""Words of the page of `interlock store` beside the declarations, for scripts/reference.py."""

STORE = """\
<!-- Made by scripts/reference.py from the parser and the flags' declarations: change those. -->

# interlock store

Looks at the files that [stores](../howto/hub-stores.md) of a hub have written, whether one runs or
not. Data goes to standard output, all else to standard error.

## For all of them

"""

STORE_HEAD = """
A `PATH` is a folder with files of stores, or one of them: its data, compressed or not, or its
index. A `POSITION` is that of a message in its topic, `1526919030474-0`, or a time in ISO 8601.

| code | means |
|---|---|
| 0 | done; all of it is whole |
| 1 | something is missing, damaged or cannot be read: a line says what, and at which position |
| 2 | wrong usage |
| 130 | Ctrl-C |

"""

STORE_COMMAND = """
## interlock store

Looks at files that stores of a hub have written: [its own page](store-cli.md).
"""

INFO_STORES = """
## Of each store

A line `store_NAME` of `INFO`, such as `accepted=5,written=5`; `Hub.stores()` has them as numbers,
and `/metrics` with the label `store`. They are counted from the store's beginning on.

"""
