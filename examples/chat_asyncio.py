"""A chat server's inner half on asyncio: each room in order, rooms side by side, one slow room.

Messages come in on one task and are handled by ten others. A room's history is a plain list, for
two messages of one room are never handled at the same time, although each handler awaits in the
middle.
"""

import asyncio
from collections import defaultdict

from interlock import KeyedQueue

ROOMS = 12
MESSAGES = 600

history: defaultdict[int, list[str]] = defaultdict(list)


async def deliver(message: tuple[int, str]) -> None:
    room, text = message
    number = len(history[room])
    # Another handler of this room would now compute the same number.
    await asyncio.sleep(0.002 if room == 0 else 0)
    history[room].append(f"{number}: {text}")


async def chat() -> None:
    queue = KeyedQueue[tuple[int, str]](100, keys=lambda message: message[0])
    async with asyncio.TaskGroup() as group:
        group.create_task(queue.aio.consume(deliver, threads=10))
        for number in range(MESSAGES):
            # Waits for room: the queue is bounded.
            await queue.aio.put((number % ROOMS, f"message {number}"))
        queue.shutdown()


def main() -> None:
    asyncio.run(chat())
    for room, lines in history.items():
        expected = range(room, MESSAGES, ROOMS)
        assert lines == [f"{n}: message {number}" for n, number in enumerate(expected)]
    print(f"{MESSAGES} messages in {len(history)} rooms, each history in order")


if __name__ == "__main__":
    main()
