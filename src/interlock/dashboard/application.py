"""The dashboard as an ASGI application: pages, login, the API, and live figures."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import cookie_parser
from starlette.responses import Response

from interlock import audit
from interlock.dashboard.api import inventory, messages, operations, queues, workers
from interlock.dashboard.api.call import Call, Route, queue_name
from interlock.dashboard.api.live import MOST, Stream
from interlock.dashboard.api.pages import Pages
from interlock.dashboard.login.guard import HEADERS, MARK, Guard
from interlock.dashboard.login.identity import Identities, Identity
from interlock.dashboard.paths import decoded, segments
from interlock.dashboard.refusal import Refusal, is_stranger, of
from interlock.dashboard.settings import Settings
from interlock.errors import InterlockError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_log = logging.getLogger("interlock.dashboard")

ROUTES = (
    *queues.ROUTES,
    *messages.ROUTES,
    *operations.ROUTES,
    *workers.ROUTES,
    *inventory.ROUTES,
)
PAGES = frozenset(
    ("", "login", "queues", "workers", "schedules", "server", "topics", "tables", "stores",
     "sources")
)  # fmt: skip
"""First segments of the addresses that the page itself handles."""
LARGEST = 4 << 20
"""Bytes of a body: a payload of 1 MiB as JSON with escapes."""
PATIENCE = 30.0
"""Seconds for a body."""
LARGEST_LOGIN = 16 << 10
"""Bytes of a login: a name and a password of 1 KiB each, as JSON with escapes."""
LOGIN_PATIENCE = 5.0


class Dashboard:
    """Serves one engine's dashboard. `stop` ends it; closed by the end of its lifespan."""

    def __init__(self, settings: Settings) -> None:
        settings.check()
        self._settings = settings
        self._guard = Guard(settings)
        self._pages = Pages(settings.static, settings.base_path)
        self._base = tuple(settings.base_path.split("/")[1:])
        self._cookie = f"interlock_{settings.port}"
        self._routes: dict[tuple[str, int], list[tuple[tuple[str, ...], Route]]] = {}
        for route in ROUTES:
            path = tuple(route.path.split("/"))
            self._routes.setdefault((route.method, len(path)), []).append((path, route))
        self._identities = Identities(settings)
        self._streams: set[Stream] = set()

    def stop(self) -> None:
        """End all streams, so that the server can end."""
        for stream in list(self._streams):
            stream.end()

    def close(self) -> None:
        """End all, and close the connections to the engine."""
        self.stop()
        self._identities.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; see ASGI."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        elif scope["type"] == "http":
            response = await self._answered(scope, receive, send)
            if response is not None:
                await response(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> Response | None:
        try:
            return await self._routed(scope, receive, send)
        except (Refusal, InterlockError, ValueError) as error:
            return self._refused(of(error), scope)
        except Exception:
            _log.exception("request %s %s failed", scope["method"], scope["path"])
            failed = Refusal(500, "the dashboard failed; its log says why")
            return self._refused(failed, scope)

    async def _routed(self, scope: Scope, receive: Receive, send: Send) -> Response | None:
        headers = {name.decode("latin-1"): value.decode("latin-1")
                   for name, value in scope["headers"]}  # fmt: skip
        own = scope["server"][0] if scope.get("server") else ""
        self._guard.check_host(headers.get("host", ""), str(own or ""))
        path = segments(scope.get("raw_path") or scope["path"].encode())
        if self._base and path[: len(self._base)] == self._base:
            path = path[len(self._base) :]
            if not path:
                return Response(status_code=308, headers={**HEADERS, "Location": self._root()})
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        if path[:1] == ("api",):
            return await self._api(method, path[1:], headers, scope, receive, send)
        if path in (("login",), ("logout",)) and method == "POST":
            return await self._session(path[0], headers, scope, receive)
        if method != "GET":
            raise Refusal(405, f"{scope['method'][:20]} is allowed for the API only")
        if path[0] == "static":
            return self._file("/".join(decoded(one) for one in path[1:]), headers)
        if path[0] in PAGES:
            return self._file("index.html", headers)
        if "text/html" in headers.get("accept", ""):
            # For people: the page reports the unknown address.
            return self._file("index.html", {}, status=404)
        raise Refusal(404, "there is no such page")

    def _root(self) -> str:
        return f"{self._settings.base_path}/"

    # -- Pages --------------------------------------------------------------------------------

    def _file(self, name: str, headers: dict[str, str], status: int = 200) -> Response:
        found = self._pages.file(name)
        if found is None:
            raise Refusal(404, "there is no such file")
        data, kind, tag = found
        said = {**HEADERS, "Cache-Control": "no-cache", "ETag": tag}
        if headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=said)
        return Response(data, status, headers=said | {"Content-Type": kind})

    # -- Sessions -----------------------------------------------------------------------------

    async def _session(
        self, what: str, headers: dict[str, str], scope: Scope, receive: Receive
    ) -> Response:
        self._guard.check_origin(headers, changes=True)
        cookie = self._given(headers)
        if what == "logout":
            if cookie and not self._is_marked(cookie, headers):
                raise Refusal(403, WRONG_MARK)
            self._identities.sessions.end(cookie)
            return self._said({}, cookie="")
        if not headers.get("content-type", "").startswith("application/json"):
            raise Refusal(400, "the body must be application/json")
        # Anyone may send one, so it must be small and quick, or it is refused.
        body = await _body(headers, receive, LARGEST_LOGIN, LOGIN_PATIENCE)
        call = Call(self._settings, _NOBODY, (), {}, body, cookie)
        given = call.json("token", "user", "password")
        id = await self._identities.log_in(given, _address(scope))
        # An older session of the same browser must not be found again.
        self._identities.sessions.end(cookie)
        secure = _is_secure(scope, headers)
        return self._said({"csrf": self._identities.sessions.mark(id)}, id, secure)

    def _given(self, headers: dict[str, str]) -> str:
        return cookie_parser(headers.get("cookie", "")).get(self._cookie, "")

    def _is_marked(self, cookie: str, headers: dict[str, str]) -> bool:
        return self._identities.sessions.marked(cookie, headers.get(MARK, ""))

    # -- The API ------------------------------------------------------------------------------

    async def _api(
        self,
        method: str,
        path: tuple[str, ...],
        headers: dict[str, str],
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> Response | None:
        self._guard.check_origin(headers, changes=method != "GET")
        route, names = self._found(method, path) if path != ("live",) else (None, ())
        identity = self._identities.of(self._given(headers), headers, _address(scope))
        if route is not None and method == "POST":
            if identity.id and not self._is_marked(identity.id, headers):
                raise Refusal(403, WRONG_MARK)
            if route.writes and not self._settings.write:
                audit.acting(self._who(identity), _address(scope))
                queue, *one = [decoded(name)[:MOST_NAMED] for name in names]
                kind = "worker" if path[0] == "workers" else "message"
                audit.refused(path[-1], queue, f"{kind} {one[0]}" if one else "", ONLY_READS)
                raise Refusal(403, ONLY_READS)
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        mark = self._identities.sessions.mark(identity.id) if identity.id else ""
        call = Call(self._settings, identity.access, names, query, b"", identity.id, mark)
        if route is None:
            await self._stream(call, identity, receive, send)
            return None
        if method == "POST":
            audit.acting(self._who(identity), _address(scope))
            call.body = await _body(headers, receive)
        try:
            answer = await route.answer(call)
        except InterlockError as error:
            if identity.session is None or not is_stranger(error):
                raise
            # The password was changed, or the user no longer exists.
            self._identities.sessions.end(identity.id)
            raise Refusal(401, "the engine no longer knows this user; log in again") from None
        # Always together with its mark: of several simultaneous first requests, the last one's
        # cookie would stay.
        cookie = identity.id if identity.is_new and path == ("server",) else None
        return self._said(answer, cookie, _is_secure(scope, headers))

    def _who(self, identity: Identity) -> str:
        """Return the user of the request, for the audit log."""
        if self._settings.login == "token":
            return "token"
        return identity.access.user or "default"

    def _found(self, method: str, path: tuple[str, ...]) -> tuple[Route, tuple[str, ...]]:
        for pattern, route in self._routes.get((method, len(path)), ()):
            if all(part in ("*", one) for part, one in zip(pattern, path, strict=True)):
                names = (one for part, one in zip(pattern, path, strict=True) if part == "*")
                return route, tuple(names)
        raise Refusal(404, "the API has no such path")

    async def _stream(self, call: Call, identity: Identity, receive: Receive, send: Send) -> None:
        if len(self._streams) >= MOST:
            raise Refusal(503, f"{MOST} pages are open already")
        queue = queue_name(call.text("queue")) if "queue" in call.query else None
        workers = call.text("workers") not in ("", "0")
        stream = Stream(call.access, queue, workers, identity.session)
        self._streams.add(stream)
        said = {**HEADERS, **STREAM}
        try:
            await stream.run([(name.encode(), value.encode()) for name, value in said.items()],
                             receive, send)  # fmt: skip
        finally:
            self._streams.discard(stream)

    # -- Answers ------------------------------------------------------------------------------

    def _said(
        self, answer: object, cookie: str | None = None, secure: bool = False, status: int = 200
    ) -> Response:
        said = {**HEADERS, "Cache-Control": "no-store", "Content-Type": "application/json"}
        response = Response(msgspec.json.encode(answer), status, headers=said)
        if cookie is not None:
            response.set_cookie(
                self._cookie, cookie, path=self._root(), secure=secure, httponly=True,
                samesite="strict", max_age=None if cookie else 0,
            )  # fmt: skip
        return response

    def _refused(self, refusal: Refusal, scope: Scope) -> Response:
        if not self._wants_json(scope):
            said = {**HEADERS, "Cache-Control": "no-store", "Content-Type": TEXT}
            return Response(f"{refusal}\n".encode(), refusal.status, headers=said)
        answer: dict[str, Any] = {"error": str(refusal)}
        if refusal.status == 401:
            answer["login"] = self._settings.login
        return self._said(answer, status=refusal.status)

    def _wants_json(self, scope: Scope) -> bool:
        """Return whether an error is for a program: one that asks for JSON, or calls the API."""
        if any(name == b"accept" and b"json" in value for name, value in scope["headers"]):
            return True
        path = str(scope["path"]).removeprefix(self._settings.base_path)
        return path.split("/")[1:2] in (["api"], ["login"], ["logout"])


def _address(scope: Scope) -> str:
    """Return the address of the client; a header about it may have been forged."""
    return str(scope["client"][0]) if scope.get("client") else ""


def _is_secure(scope: Scope, headers: dict[str, str]) -> bool:
    """Return whether the browser uses TLS; a false header harms only its sender's cookie."""
    return scope.get("scheme") == "https" or headers.get("x-forwarded-proto") == "https"


async def _body(
    headers: dict[str, str], receive: Receive, largest: int = LARGEST, patience: float = PATIENCE
) -> bytes:
    """Return the body of a request; raise Refusal if it is larger than any valid one."""
    with contextlib.suppress(ValueError):
        if int(headers.get("content-length", "0")) > largest:
            raise Refusal(413, f"the body is larger than {largest} bytes")
    body = bytearray()
    try:
        async with asyncio.timeout(patience):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Refusal(400, "the body is not complete")
                body += message.get("body", b"")
                if len(body) > largest:
                    raise Refusal(413, f"the body is larger than {largest} bytes")
                if not message.get("more_body"):
                    return bytes(body)
    except TimeoutError:
        raise Refusal(400, f"the body was not complete in {patience:g} s") from None


_NOBODY: Any = None
WRONG_MARK = "the request lacks the token of this page (X-Interlock-CSRF); reload the page"
MOST_NAMED = 512
"""Maximum characters of a name that the audit log keeps of a refused request."""
ONLY_READS = "this dashboard is read-only; start it with --write"
TEXT = "text/plain; charset=utf-8"
STREAM = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
}
