"""A gateway: the WebSockets of some of the users, and a share of all deliveries.

python gateway.py --name a-1 --hub 127.0.0.1:6399 --service push --inbox inbox.db --port 8701
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import cast

import msgspec
from websockets.asyncio.server import ServerConnection, broadcast, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

import frames
from connection import Connection
from delivery import QUEUE, Back, Delivery, Event, Looked, Routed, Written, encode, routed
from inbox import Inbox
from interlock import AsyncRemoteQueue, connect
from state import SESSION, Gateway, Presence, State
from topics import Topics

PAGE = Path(__file__).with_name("page.html")
HEARTBEAT = 1
"""Seconds between two heartbeats."""
LEASE = 3
"""Seconds after which others do what a gateway that was killed had begun."""
PATIENCE = 10
"""Seconds in which an app has to log in."""
SHOWN = 200
"""Number of online users in one notice to an app."""


class Server:
    """One gateway."""

    def __init__(
        self,
        name: str,
        service: str,
        state: State,
        topics: Topics,
        events: AsyncRemoteQueue[Event],
    ) -> None:
        self._name = name
        self._service = service
        self._state = state
        self._topics = topics
        self._events = events
        self._connections: dict[str, Connection] = {}
        self._sockets = set[ServerConnection]()
        self._url = ""

    async def run(self, port: int, delivery: Delivery) -> None:
        """Serve until TERM or Ctrl-C comes, or the hub is gone."""
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await self._topics.subscribe(self._name)
        async with serve(self._serve, "127.0.0.1", port, process_request=_page) as server:
            self._url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws"
            async with asyncio.TaskGroup() as tasks:
                # Only who is subscribed announces itself: to a gateway that lives nothing is lost.
                running = [
                    tasks.create_task(self._heartbeat()),
                    tasks.create_task(self._receive()),
                    tasks.create_task(self._events.consume(delivery.handle, threads=16)),
                ]
                await stop.wait()
                self._state.gateways.pop(self._name, None)
                for task in running:
                    task.cancel()

    async def _heartbeat(self) -> None:
        while True:
            row = Gateway(url=self._url, pid=os.getpid(), users=len(self._connections))
            self._state.gateways[self._name] = row
            online = self._state.online().items()
            users = [(name, row.gateway, row.background) for name, row in online]
            broadcast(self._sockets, encode(frames.Online(sorted(users)[:SHOWN])).decode())
            await asyncio.sleep(HEARTBEAT)

    async def _receive(self) -> None:
        async for message in self._topics.messages():
            one = routed.decode(message)
            connection = self._connections.get(one.user)
            if connection is None:
                continue
            if one.frame is None:
                connection.close("logged in elsewhere")
            elif one.connection in (None, connection.id):
                connection.show(one.frame)

    async def _serve(self, socket: ServerConnection) -> None:
        """Serve one connection, from its login on."""
        try:
            async with asyncio.timeout(PATIENCE):
                login = frames.from_app.decode(await socket.recv())
            if isinstance(login, frames.Login):
                await self._logged_in(login, socket)
            else:
                await socket.close(1008, "log in first")
        except msgspec.MsgspecError as error:
            await socket.close(1007, str(error).encode()[:100].decode(errors="ignore"))
        except TimeoutError:
            await socket.close(1008, "log in")
        except ConnectionClosed:
            pass

    async def _logged_in(self, login: frames.Login, socket: ServerConnection) -> None:
        connection = await self._enter(login, socket)
        writing = asyncio.create_task(connection.write())
        try:
            if login.background:
                await self._events.put(Looked(login.user, login.after), keys=login.user)
            else:
                await self._back(connection, login.after)
            async for frame in socket:
                await self._do(connection, frames.from_app.decode(frame))
        finally:
            writing.cancel()
            self._sockets.discard(socket)
            if self._connections.get(login.user) is connection:
                del self._connections[login.user]
                # Unless the user has logged out, or is at another gateway by now.
                with suppress(KeyError):
                    self._state.users.compare_and_set(login.user, "gateway", self._name, "")

    async def _enter(self, login: frames.Login, socket: ServerConnection) -> Connection:
        users, name = self._state.users, login.user
        before = users.get(name)
        if not users.patch(
            name,
            app_id=login.app_id,
            token=login.token,
            gateway=self._name,
            background=login.background,
        ):
            users[name] = Presence(
                app_id=login.app_id,
                token=login.token,
                gateway=self._name,
                background=login.background,
            )
        users.expire(name, SESSION)
        if before is not None and before.gateway not in ("", self._name):
            await self._topics.publish(before.gateway, encode(Routed(name, None)))
        if name in self._connections:
            self._connections[name].close("logged in elsewhere")
        connection = self._connections[name] = Connection(name, socket)
        self._sockets.add(socket)
        urls = [row.url for row in self._state.gateways.values()]
        connection.show(frames.Welcome(self._name, urls, self._service))
        return connection

    async def _back(self, connection: Connection, after: int) -> None:
        event = Back(connection.user, after, self._name, connection.id)
        await self._events.put(event, keys=connection.user)

    async def _do(self, connection: Connection, frame: frames.FromApp) -> None:
        users, name = self._state.users, connection.user
        match frame:
            case frames.Send(to, text, ref):
                # Known by its ref: an app sends again what it has no answer for.
                await self._events.put(Written(to, name, text), keys=to, dedup=f"{name}/{ref}")
                connection.show(frames.Sent(ref))
            case frames.Seen(number):
                await self._events.put(Looked(name, number), keys=name)
            case frames.Background():
                users.patch(name, background=True)
                connection.is_live = False
            case frames.Foreground(after):
                users.patch(name, background=False)
                await self._back(connection, after)
            case frames.Logout():
                users.pop(name, None)
                connection.close("logged out")
            case frames.Login():
                connection.close("logged in already")


def _page(socket: ServerConnection, request: Request) -> Response | None:
    """Answer requests that are not for a WebSocket with the page."""
    if request.path == "/ws":
        return None
    if request.path != "/":
        return socket.respond(HTTPStatus.NOT_FOUND, "only / and /ws are here\n")
    body = PAGE.read_bytes()
    headers = Headers(
        {"Content-Type": "text/html; charset=utf-8", "Content-Length": str(len(body))}
    )
    return Response(200, "OK", headers, body)


async def main() -> None:
    """Run the gateway that the arguments describe."""
    parser = argparse.ArgumentParser(description="A gateway of the push service.")
    parser.add_argument("--name", required=True, help="of no gateway before it")
    parser.add_argument("--hub", required=True, metavar="HOST:PORT")
    parser.add_argument("--service", required=True, help="the beginning of the tables' names")
    parser.add_argument("--inbox", required=True, type=Path)
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    state, inbox = State.open(given.service), Inbox(given.inbox)
    async with (
        Topics(given.hub) as topics,
        connect(f"interlock://{given.hub}") as client,
    ):
        events = client.queue(QUEUE, cast("type[Event]", Event), lease=LEASE)
        delivery = Delivery(state, inbox, topics)
        await Server(given.name, given.service, state, topics, events).run(given.port, delivery)


if __name__ == "__main__":
    asyncio.run(main())
