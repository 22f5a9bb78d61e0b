"""A day of the service in ten seconds: five users, two gateways, one of them killed.

Each step says what must be so, and the demo fails where it is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from device import Device
from service import Service
from state import State

MESSAGES = 100


async def day(service: Service) -> None:
    """Run the users through the day."""
    state = service.state
    a, b = [await asyncio.to_thread(service.start, kind) for kind in "ab"]
    [gateway_a, gateway_b] = service.gateways
    # Each knows one gateway, and learns of the other when it logs in.
    at_a = {name: Device(name, [a.url]) for name in ("ann", "bob", "eve")}
    at_b = {name: Device(name, [b.url], is_nervous=name == "cleo") for name in ("cleo", "dan")}
    devices = at_a | at_b
    ann, bob, eve, cleo, dan = devices.values()
    for device in devices.values():
        await device.until(lambda device=device: len(device.online) == 5)  # type: ignore[misc]
    say(f"five users are online, {len(at_a)} at {gateway_a}, {len(at_b)} at {gateway_b}", state)

    await bob.background()
    await dan.close()
    await so(lambda: state.users["bob"].background and not state.users["dan"].gateway)
    for number in range(MESSAGES):
        for to in ("bob", "cleo", "dan"):
            await ann.send(to, str(number))
    await cleo.until(lambda: len(cleo.messages) == MESSAGES)
    await bob.until(lambda: bob.badge == MESSAGES)
    await so(lambda: [state.users[name].unread for name in ("cleo", "dan")] == [0, MESSAGES])
    assert texts(cleo, "ann") == numbers(MESSAGES)
    assert bob.messages == []
    say(f"ann wrote {MESSAGES} messages to bob, cleo and dan; cleo saw hers, in order", state)

    # Cleo writes to all three of the gateway that is killed; Eve's telephone dies with it.
    writing = asyncio.create_task(write(cleo, ["ann", "bob", "eve"]))
    await ann.until(lambda: len(ann.messages) > MESSAGES // 4)
    await asyncio.gather(eve.close(), asyncio.to_thread(service.kill, gateway_a))
    for number in range(MESSAGES):
        await ann.send("cleo", f"{number} again")  # some of it before she has noticed
    await writing
    await ann.until(lambda: ann.gateway == bob.gateway == gateway_b)
    say(f"{gateway_a} was killed while cleo wrote {MESSAGES} to ann, bob, eve; so did ann", state)

    await ann.until(lambda: len(ann.messages) == MESSAGES)
    await cleo.until(lambda: len(cleo.messages) == 2 * MESSAGES)
    await bob.until(lambda: bob.badge == 2 * MESSAGES)
    assert texts(ann, "cleo") == numbers(MESSAGES)
    assert texts(cleo, "ann") == [*numbers(MESSAGES), *(f"{n} again" for n in range(MESSAGES))]
    assert state.users["bob"].token == "device-of-bob" and state.users["bob"].background
    say("ann and bob are at the other; nothing was lost, nothing came twice or late", state)

    await so(lambda: gateway_a not in state.gateways)
    await cleo.until(lambda: [name for name, *_ in cleo.online] == ["ann", "bob", "cleo"])
    # The other gateway handles the messages of the dead one again when its leases expire.
    await so(lambda: len(eve.messages) + state.users["eve"].unread >= MESSAGES)
    say("eve has not come back: she is not online, and is still logged in", state)

    # Missed messages come before newer ones, and nothing was counted twice.
    assert state.users["bob"].unread == 2 * MESSAGES
    for number in range(MESSAGES, 2 * MESSAGES):
        await ann.send("bob", str(number))
        if number == MESSAGES + MESSAGES // 2:
            await bob.foreground()
    again = [Device(name, [b.url]) for name in ("dan", "eve")]
    await bob.until(lambda: len(bob.messages) == 3 * MESSAGES)
    for device in again:
        await device.until(lambda device=device: len(device.messages) == MESSAGES)  # type: ignore[misc]
    assert texts(bob, "ann") == numbers(2 * MESSAGES)
    assert texts(bob, "cleo") == texts(again[0], "ann") == numbers(MESSAGES)
    assert texts(again[1], "cleo") == numbers(MESSAGES)
    await so(lambda: all(user.unread == 0 for user in state.users.values()))
    say("bob, dan and eve are back: each has all messages in order, none is unread", state)
    for device in [ann, bob, cleo, *again]:
        await device.close()


async def write(device: Device, to: list[str]) -> None:
    """Write numbered messages to several users."""
    for number in range(MESSAGES):
        for name in to:
            await device.send(name, str(number))


async def so(is_so: Callable[[], bool]) -> None:
    """Wait until something is so in the tables."""
    async with asyncio.timeout(30):
        while not is_so():
            await asyncio.sleep(0.02)


def say(line: str, state: State) -> None:
    """Print what came to pass, and the table beside it."""
    unread = ", ".join(f"{key!s} {row.unread}" for key, row in sorted(state.users.items(), key=str))
    print(f"{line}\n    unread: {unread}", flush=True)


def texts(device: Device, sender: str) -> list[str]:
    """Return what somebody wrote to a user, as the app has shown it."""
    return [message.text for message in device.messages if message.sender == sender]


def numbers(count: int) -> list[str]:
    """Return the texts of that many messages."""
    return [str(number) for number in range(count)]


def run() -> None:
    """Run the demo."""
    with TemporaryDirectory(prefix="push-") as folder, Service(Path(folder)) as service:
        asyncio.run(day(service))
