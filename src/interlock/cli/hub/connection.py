"""Flags and errors of the connection, for the subcommands that query a running hub."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import replace

from interlock.cli.flags import Flag
from interlock.cli.pub import BAD_INPUT, BROKEN, reason
from interlock.hub.client import Client
from interlock.hub.resp import ReplyError
from interlock.hub.url import Address, parse

URL = Flag(
    "--url",
    "the hub to ask: HOST:PORT, redis://USER:PASSWORD@HOST:PORT, rediss://... for TLS, or "
    "unix:PATH (the variable INTERLOCK_URL, else 127.0.0.1:6399)",
    "URL",
)
CA = Flag("--ca", "with rediss://, file of the authority that signed its certificate", "FILE")
JSON = Flag("--json", "print JSON")
FLAGS = (URL, CA, JSON)
EXIT_CODES = "Works with Redis too. Exit codes: 0 answered, 1 no connection, or it was lost, or "
EXIT_CODES += "the server refused, 2 wrong usage, 130 Ctrl-C."


def ask(given: argparse.Namespace, work: Callable[[Client], int]) -> int:
    """Return the result of `work`, or print the error that stopped it and return the exit code."""
    try:
        place = address(given)
    except ValueError as error:
        print(f"interlock: {error}", file=sys.stderr)
        return BAD_INPUT
    try:
        client = Client(place, name="interlock-cli")
    except (OSError, ReplyError) as error:
        print(f"interlock: cannot connect to {place}: {reason(error)}", file=sys.stderr)
        print(f"interlock: {advice(error)}", file=sys.stderr)
        return BROKEN
    with client:
        try:
            return work(client)
        except BrokenPipeError:  # the reader closed standard output
            raise
        except (OSError, ReplyError) as error:
            print(f"interlock: {place}: {reason(error)}", file=sys.stderr)
            return BROKEN


def address(given: argparse.Namespace) -> Address:
    """Return the address of the requested hub. Raises ValueError if it is invalid."""
    text = given.url or os.environ.get("INTERLOCK_URL") or "127.0.0.1:6399"
    place = parse(text)
    if given.ca and not place.tls:
        raise ValueError("--ca is for a rediss:// URL only")
    return replace(place, ca=given.ca) if given.ca else place


def advice(error: Exception) -> str:
    """Return advice about a failed connection."""
    if isinstance(error, ReplyError) and error.code in ("NOAUTH", "WRONGPASS", "NOPERM"):
        return "name a user: --url redis://USER:PASSWORD@HOST:PORT, or INTERLOCK_URL"
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return "name the file of the authority that signed its certificate with --ca"
    return "is it running there? `interlock hub` starts one; --url or INTERLOCK_URL names another"
