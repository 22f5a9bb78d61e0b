"""The versions of an outbox's tables: the SQL of each, and the error for another one."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["WrongVersion", "check_version", "statements"]


class WrongVersion(Exception):
    """The database has no tables of an outbox, or those of another version."""


def statements(
    versions: Sequence[Sequence[str]], name: str, meta: str, since: int = 0
) -> list[str]:
    """Return the SQL that brings the tables from a version to the present one; 0: none are there.

    Args:
        versions: the statements of each version, with ``@`` for the name.
        name: the schema, or the prefix of the tables.
        meta: the table that has the version, quoted.
    """
    found: list[str] = []
    for number, texts in enumerate(versions, start=1):
        if number > since:
            found += [text.replace("@", name).strip() for text in texts]
            found.append(f"update {meta} set version = {number};")
    return found


def check_version(what: str, version: int | None, known: int) -> None:
    """Raise WrongVersion unless the tables have the version that this release knows.

    Args:
        what: the tables, for the error.
        version: None: they do not exist.
    """
    if version == known:
        return
    if version is None:
        raise WrongVersion(f"there is no {what}; run `interlock outbox migrate`")
    if version > known:
        raise WrongVersion(
            f"the {what} has version {version}, of a later release; this one knows {known}"
        )
    raise WrongVersion(
        f"the {what} has version {version}, and this release needs {known}; run "
        "`interlock outbox migrate`"
    )
