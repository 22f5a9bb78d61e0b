"""`interlock hub --check` and `--hash-password`: the configuration without a hub."""

from __future__ import annotations

import ipaddress
import sys

from interlock.hub import passwords
from interlock.hub.config.configuration import Configuration
from interlock.hub.config.users import ask_password
from interlock.hub.url import shown


def open_to(checked: Configuration) -> str:
    """Return the output of `--check`.

    It shows where the hub would listen, who may connect there, and their rights.
    """
    lines = ["the configuration is valid"]
    users = checked.users()
    password = "with a password" if ask_password(users) else "without a password"
    certificate = "with a certificate and " if checked["tls.client_ca"] else ""
    if checked["host"]:
        ports = [(checked["port"], bool(checked["tls.cert"]) and checked["tls.port"] < 0)]
        if checked["tls.port"] >= 0:
            ports.append((checked["tls.port"], True))
        for port, speaks_tls in ports:
            where = f"{checked['host']}:{port or '(a free port)'}"
            how = f"over TLS, {certificate}" if speaks_tls else "in the clear, "
            lines.append(f"{where} is open to {reach(checked['host'])}, {how}{password}")
    if checked["unix"]:
        lines.append(f"unix:{checked['unix']} is open to everyone who may write to it, {password}")
    if checked["http.port"] >= 0:
        where = shown(checked["http.host"], checked["http.port"])
        lines.append(f"http {where} is open to {reach(checked['http.host'])}: figures, no messages")
    lines += [served.describe() for served in checked["table"]]
    lines += [store.describe() for store in checked["store"]]
    lines += [f"store {name}: its spool is in {folder}" for name, folder in checked.spools()]
    for user in users:
        who = "everybody" if user.is_open else f"user {user.name}"
        lines.append(f"{who} {user.describe()}")
    return "\n".join(lines) + "\n"


def reach(host: str) -> str:
    """Name the clients that can reach an address."""
    loopback = ipaddress.ip_address(host).is_loopback
    return "this machine" if loopback else "everyone who can reach the address"


def hash_password() -> int:
    """Print the hash of a password that is typed twice, or read as a line; return the exit code."""
    if sys.stdin.isatty():
        import getpass

        password = getpass.getpass("password: ")
        if password != getpass.getpass("again: "):
            return _refuse("the two passwords differ")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        return _refuse("the password is empty")
    print(passwords.hashed(password))
    return 0


def _refuse(message: str) -> int:
    print(f"interlock: {message}", file=sys.stderr)
    return BAD_INPUT


BAD_INPUT = 2
