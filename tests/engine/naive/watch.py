"""The naive model of a queue: who watches it, and the workers that announced themselves."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.engine.naive.model import MOST
from tests.engine.naive.roots import RootsModel


@dataclass
class Worker:
    said: int
    until: int
    text: str
    requests: list[tuple[str, str]] = field(default_factory=list)


class WatchedModel(RootsModel):
    """None of what it adds applies what is due."""

    last_request = 0

    def __init__(self, now: int) -> None:
        super().__init__(now)
        self.announced: dict[str, Worker] = {}

    def watch(self, after: str, count: int, duration: int) -> list[str]:
        if self.now >= self.watched:
            self.events = []
            self.last_event = max(self.last_event, self.now)
        self.watched = max(self.watched, self.now + duration)
        reply = [str(self.last_event), "0"]
        if after:
            first = self.last_event + 1 - len(self.events)
            reply[1] = str(max(first - 1 - int(after), 0))
            bytes = 0
            for number, event in enumerate(self.events, first):
                if number > int(after) and count and bytes < MOST["MAX_EVENT_BYTES"]:
                    reply += [str(number), *event]
                    bytes += sum(map(len, [*event[5:7], *event[9:]]))
                    count -= 1
        return reply

    def living(self) -> dict[str, Worker]:
        return {name: one for name, one in self.announced.items() if one.until > self.now}

    def announce(self, worker: str, ttl: str, text: str) -> list[str]:
        self.announced = self.living()
        before = self.announced.pop(worker, None)
        if int(ttl):
            self.announced[worker] = Worker(self.now, self.now + int(ttl), text)
        return [part for request in (before.requests if before else ()) for part in request]

    def workers(self, after: str, count: str) -> list[str]:
        reply: list[str] = []
        bytes = 0
        for name, one in sorted(self.living().items()):
            if name > after and len(reply) < 4 * int(count) and bytes < MOST["MAX_TOLD"]:
                past = max(self.now - one.said, 0)
                reply += [name, str(past), str(one.until - self.now), one.text]
                bytes += len(name) + len(one.text)
        return reply

    def ask(self, worker: str, text: str) -> list[str]:
        found = self.living().get(worker)
        if found is None:
            return []
        self.last_request = max(self.last_request + 1, self.now)
        found.requests.append((str(self.last_request), text))
        del found.requests[: -MOST["MAX_REQUESTS"]]
        return [str(self.last_request)]

    def drop(self, *force: str) -> list[str]:
        reply = super().drop(*force)
        if reply[0] == "1":
            self.watched = self.last_event = self.last_request = 0
            self.events, self.announced = [], {}
        return reply
