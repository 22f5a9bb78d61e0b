"""The declaration of a flag: once, with everything that help and parsing need."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Flag:
    """One flag of a subcommand."""

    name: str
    """Name with its dashes."""

    help: str
    """One line for `--help`."""

    metavar: str | None = None
    """Placeholder of its value; None for a flag without one."""

    parse: Callable[[str], Any] = str
    """Converts the value; raises ArgumentTypeError for an invalid one."""

    default: Any = None
    choices: Sequence[str] | None = None
    required: bool = False
    many: bool = False
    """True if it may be given several times; its value is then a list."""

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Add it to a parser."""
        if self.metavar is None and self.choices is None:
            parser.add_argument(self.name, action="store_true", help=self.help)
            return
        if self.many:
            parser.add_argument(
                self.name, metavar=self.metavar, type=self.parse, action="append", help=self.help
            )
            return
        parser.add_argument(
            self.name,
            metavar=self.metavar,
            type=self.parse,
            default=self.default,
            required=self.required,
            choices=self.choices,
            help=self.help,
        )


def positive(text: str) -> int:
    """Parse a whole number above 0."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a whole number from 1")
    return number


def address(text: str) -> str:
    """Return HOST:PORT."""
    host, _, port = text.rpartition(":")
    if host and port.isdecimal() and 0 < int(port) <= 65535:
        return text
    raise argparse.ArgumentTypeError(f"{text!r}; allowed: HOST:PORT")


def listening(text: str) -> tuple[str, int]:
    """Parse an address to listen on, `[HOST:]PORT`; the default host is loopback."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: [HOST:]PORT, the port 0 to 65535")
    return host or "127.0.0.1", int(port)


def seconds(text: str) -> float:
    """Parse a number of seconds above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: seconds above 0")
    return number


def share(text: str) -> float:
    """Parse a fraction: above 0, up to 1."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 1:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: above 0, to 1")
    return number
