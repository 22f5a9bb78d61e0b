"""A chat room over topics: what anyone says in a room, everyone there hears, in one order.

The room is a topic of a hub; here the hub runs in this program, on a free port. Anything that
speaks the Redis protocol could join: `redis-cli -p PORT SUBSCRIBE room:tea`, or a program in any
language.
"""

import threading

from interlock import Hub
from interlock.hub.client import Client

ROOM = "room:tea"
LINES = ["the kettle is on", "milk first", "never", "who took the biscuits?"]


class Guest(threading.Thread):
    """Listens with one connection and talks with another."""

    def __init__(self, name: str, address: str) -> None:
        super().__init__(name=name)
        self.heard: list[str] = []
        self._listening = Client(address, name=f"{name}-ears")
        self._talking = Client(address, name=f"{name}-mouth")
        self._listening.subscribe(ROOM)

    def talk(self) -> None:
        """Say all the lines."""
        for line in LINES:
            self._talking.publish(ROOM, f"{self.name}: {line}")

    def run(self) -> None:
        for message in self._listening.messages():
            line = message.payload.decode()
            if line == "host: good night":
                break
            self.heard.append(line)
        self._listening.close()
        self._talking.close()


def main() -> None:
    with Hub(port=0, workers=2) as hub:
        guests = [Guest(name, hub.url) for name in ("ada", "bob", "cleo")]
        for guest in guests:
            guest.start()

        # Everybody talks at once: whose line comes first is chance, but it is the same for all.
        talkers = [threading.Thread(target=guest.talk) for guest in guests]
        for talker in talkers:
            talker.start()
        for talker in talkers:
            talker.join()

        with Client(hub.url) as host:
            reached = host.publish(ROOM, "host: good night")
        for guest in guests:
            guest.join()

    assert reached == len(guests)
    first = guests[0].heard
    assert all(guest.heard == first for guest in guests)
    assert [line for line in first if line.startswith("ada:")] == [f"ada: {line}" for line in LINES]
    print(*first, sep="\n")


if __name__ == "__main__":
    main()
