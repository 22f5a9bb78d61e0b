"""Users online, on which device, and with how many unread: one table, four processes.

First a walk through one user's day, call by call. Then three processes play gateways: users log in,
go to the background, come back and log out, and each message to one of them raises the user's
unread count, whichever process it came through. The fourth, this one, looks at the table while they
do so. There is no server between them, and no serialisation; in the end each message that was
counted was read, dropped with its user, or is still unread: none was lost.

    python examples/presence.py
"""

from __future__ import annotations

import multiprocessing
import random
import sys
import time
import uuid
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from heapq import nlargest
from typing import Annotated

from interlock import U32, Row, SharedTable, Size

USERS = 1000
EVENTS = 20_000
WEIGHTS = {"login": 4, "background": 2, "back": 2, "logout": 1, "message": 20}


class Presence(Row):
    """A user who is logged in. The time of the last access is kept beside each row."""

    app_id: U32
    set_token: bool = True
    background: bool = False
    sdk_app_id: U32 = 0
    business_id: U32 = 0
    unread: U32 = 0
    token: Annotated[str, Size(32)]


def walk() -> None:
    """Log a user in, count, look, and log out."""
    name = f"presence-{uuid.uuid4().hex[:8]}"
    table = SharedTable.open(name, Presence, capacity=100)
    try:
        stats = table.stats()
        print(f"a table of {stats.bytes:,} bytes for 100 users, {stats.slots} slots")
        print(f"rows of {', '.join(str(level.slots) for level in stats.levels)} slots")

        # The login.
        table[888888888] = Presence(
            app_id=666,
            background=True,
            sdk_app_id=999,
            business_id=9999,
            token="user_device_token",
        )
        table.set_column(888888888, "unread", 99)
        unread = table.get_column(888888888, "unread")
        print(f"set unread: 99, got unread: {unread}")
        assert unread == 99
        # One more message, from whichever process: no other process can act between reading and
        # writing.
        print(f"one more: {table.incr(888888888, 'unread')}")
        stats = table.stats()
        print(f"rows in use: {stats.rows}, highest level in use: {stats.highest_level}")
        print(f"last access: {table.idle(888888888):.0f} s ago")
        print(table.pop(888888888))  # the logout
        print(f"rows in use: {table.stats().rows}")
    finally:
        SharedTable.remove(name)


def gateway(table: SharedTable[Presence], number: int) -> tuple[int, int]:
    """Play what happens at one gateway. Each has users of its own, and messages for all.

    Returns the messages that it counted, and those that its users read, or dropped at their logout.
    """
    chance = random.Random(number)
    counted = gone = 0
    for event in chance.choices(list(WEIGHTS), list(WEIGHTS.values()), k=EVENTS):
        mine = f"user:{chance.randrange(number, USERS, 3)}"
        if event == "login":
            token = f"device-{chance.randrange(10**6)}"
            table.setdefault(mine, Presence(app_id=666, token=token))
        elif event == "background":
            table.patch(mine, background=True)
        elif event == "back" and mine in table:
            table.patch(mine, background=False)
            gone += read(table, mine)
        elif event == "logout" and (row := table.pop(mine, None)) is not None:
            gone += row.unread
        elif event == "message":
            with suppress(KeyError):  # not logged in: nothing to count
                table.incr(f"user:{chance.randrange(USERS)}", "unread")
                counted += 1
    return counted, gone


def read(table: SharedTable[Presence], user: str) -> int:
    """Set a user's unread count to 0, and return what it was; others may raise it meanwhile."""
    while True:
        unread: int = table.get_column(user, "unread")
        if table.compare_and_set(user, "unread", unread, 0):
            return unread


def view(table: SharedTable[Presence]) -> str:
    """Draw the table as it is at this moment."""
    users = dict(table.items())
    stats = table.stats()
    background = sum(row.background for row in users.values())
    unread = sum(row.unread for row in users.values())
    lines = [f"online {len(users):>4}   in the background {background:>4}   unread {unread:>6}", ""]
    for number, level in enumerate(stats.levels, 1):
        lines.append(
            f"row {number}  {bar(level.rows, level.slots)} {level.rows:>4} of {level.slots}"
        )
    lines.append("")
    for key, row in nlargest(5, users.items(), key=lambda item: item[1].unread):
        lines.append(f"{key!s:>8} {bar(row.unread, 60)} {row.unread:>4} unread on {row.token}")
    return "\n".join(lines)


def bar(part: int, whole: int, width: int = 40) -> str:
    """Draw a part of a whole."""
    full = min(width, round(width * part / whole))
    return "█" * full + "░" * (width - full)


def live() -> None:
    """Let three gateways run, and look at the table until they have ended."""
    name = f"presence-{uuid.uuid4().hex[:8]}"
    table = SharedTable.open(name, Presence, capacity=USERS, ttl=3600)
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(3, mp_context=context) as pool:
            # The other processes are sent the table's name; they attach to the memory.
            gateways = [pool.submit(gateway, table, number) for number in range(3)]
            watch(table, gateways)
            counted, gone = map(sum, zip(*(one.result() for one in gateways), strict=True))
        left = sum(row.unread for row in table.values())
        print(f"{counted} messages counted = {gone} read or dropped + {left} unread")
        assert counted == gone + left
    finally:
        SharedTable.remove(name)


def watch(table: SharedTable[Presence], gateways: list[Future[tuple[int, int]]]) -> None:
    """Show the table while the gateways run: in one place on a terminal, else once at the end."""
    is_terminal = sys.stdout.isatty()
    while wait(gateways, timeout=0.1, return_when=FIRST_EXCEPTION).not_done:
        if is_terminal:
            print(f"\x1b[H\x1b[2J{view(table)}", flush=True)
    print(f"\x1b[H\x1b[2J{view(table)}" if is_terminal else view(table), flush=True)


def main() -> None:
    """Walk, then watch."""
    walk()
    if sys.stdout.isatty():
        time.sleep(3)  # to read it
    print()
    live()


if __name__ == "__main__":
    main()
