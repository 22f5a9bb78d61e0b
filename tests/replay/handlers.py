"""Handlers that the tests name by module:function."""

import asyncio
import os
import sys
import threading

from interlock.replay.trace import Message


def fail_on_2_and_exit_on_3(message: Message) -> None:
    if message.id == "2":
        raise ValueError("not this one")
    if message.id == "3":
        sys.exit(3)


async def pause(message: Message) -> None:
    await asyncio.sleep(0)


def hang(message: Message) -> None:
    """Say so on standard error and never return."""
    os.write(2, b"hanging\n")  # at once, for other threads say it too
    threading.Event().wait()


async def hang_on_loop(message: Message) -> None:
    os.write(2, b"hanging\n")  # at once, for other threads say it too
    await asyncio.Event().wait()


def die(message: Message) -> None:
    """End this process without a word."""
    os._exit(1)


def fail_on_3(message: Message) -> None:
    if message.id == "3":
        raise ValueError("not this one")
