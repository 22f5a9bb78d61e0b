"""Who is online, on which device, and with how many unread: one table, four processes.

Three processes play gateways: users log in, go to the background, come back and log out, and each
message to one of them raises its unread count, whichever process it came through. The fourth, this
one, looks at the table while they do so. There is no server between them, and no serialisation.

    python examples/presence.py
"""

from __future__ import annotations

import multiprocessing
import random
import uuid
from contextlib import suppress
from typing import Annotated

from interlock import U32, Row, SharedTable, Size

USERS = 1000
EVENTS = 20_000


class Presence(Row):
    """A user who is logged in."""

    app_id: U32
    background: bool = False
    unread: U32 = 0
    token: Annotated[str, Size(32)]


def gateway(table: SharedTable[Presence], number: int) -> None:
    """Play what happens at one gateway. Each has users of its own, and messages for all."""
    chance = random.Random(number)
    for _ in range(EVENTS):
        mine = f"user:{chance.randrange(number, USERS, 3)}"
        match chance.choices(["login", "away", "back", "logout", "message"], [4, 2, 2, 1, 20])[0]:
            case "login":
                row = Presence(app_id=666, token=f"device-{chance.randrange(10**6)}")
                table.setdefault(mine, row)
            case "away":
                table.patch(mine, background=True)
            case "back":
                table.patch(mine, background=False, unread=0)
            case "logout":
                table.pop(mine, None)
            case "message":
                # Who is not logged in has no count.
                with suppress(KeyError):
                    table.incr(f"user:{chance.randrange(USERS)}", "unread")


def main() -> None:
    """Walk through one user's day, then let the gateways run, and look."""
    name = f"presence-{uuid.uuid4().hex[:8]}"
    table = SharedTable.open(name, Presence, capacity=USERS, ttl=3600)
    try:
        table["888888888"] = Presence(app_id=666, background=True, token="user_device_token")
        table.set_column("888888888", "unread", 99)
        stats = table.stats()
        print(f"user 888888888: {table[888888888]}")
        print(f"{stats.bytes:,} bytes, rows of {[level.slots for level in stats.levels]} slots")

        context = multiprocessing.get_context("spawn")
        gateways = [context.Process(target=gateway, args=(table, n)) for n in range(3)]
        for process in gateways:
            process.start()
        while any(process.is_alive() for process in gateways):
            online = list(table.values())
            away = sum(row.background for row in online)
            unread = sum(row.unread for row in online)
            print(f"online {len(online):>4}   in the background {away:>4}   unread {unread:>6}")
            gateways[0].join(0.5)
        for process in gateways:
            process.join()
            assert process.exitcode == 0
        stats = table.stats()
        print(f"{stats.rows} rows in {stats.highest_level} levels, {stats.moves} were moved")
    finally:
        SharedTable.remove(name)


if __name__ == "__main__":
    main()
