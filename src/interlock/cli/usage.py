"""Errors of wrong usage: a suggestion, or the help if no argument was given."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """A parser with suggestions; argparse makes its subcommands' parsers of the same class."""

    def error(self, message: str) -> NoReturn:
        """End with 2."""
        if message.endswith(NOTHING_SAID):
            self.print_help(sys.stderr)
            self.exit(2)
        super().error(message + meant(message))


def meant(message: str) -> str:
    """Return a suggestion of the choice nearest to a wrong one, if any is near."""
    found = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
    if not found:
        return ""
    choices = re.findall(r"[\w-]+", found[2])
    near = difflib.get_close_matches(found[1], choices, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


NOTHING_SAID = "arguments are required: COMMAND"
