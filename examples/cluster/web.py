"""The part of a web server that the two services need: calls by POST, answers in JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from interlock import EngineUnavailable, InterlockError

Words = Mapping[str, str]
Call = Callable[[Words], HTTPStatus]
Page = Callable[[BaseHTTPRequestHandler], None]
NAME = re.compile(r"[a-z0-9-]{1,16}")


def serve(port: int, calls: Mapping[str, Call], pages: Mapping[str, Page] | None = None) -> None:
    """Serve on 127.0.0.1 until the process ends; print ``ready on HOST:PORT`` before."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            parts = urlsplit(self.path)
            call = calls.get(parts.path)
            words = {name: values[-1] for name, values in parse_qs(parts.query).items()}
            if call is None:
                answer(self, HTTPStatus.NOT_FOUND)
            elif not NAME.fullmatch(words.get("user", "")):
                answer(self, HTTPStatus.BAD_REQUEST, error="user: 1 to 16 of a-z, 0-9, -")
            else:
                self._call(call, words)

        def _call(self, call: Call, words: Words) -> None:
            try:
                answer(self, call(words))
            except EngineUnavailable as error:
                # It may have been done: only who asks knows whether to ask again.
                unknown, text = error.unknown, str(error)
                answer(self, HTTPStatus.SERVICE_UNAVAILABLE, error=text, unknown=unknown)
            except (InterlockError, ValueError) as error:
                answer(self, HTTPStatus.BAD_REQUEST, error=str(error))

        def do_GET(self) -> None:
            page = (pages or {}).get(urlsplit(self.path).path)
            if page is None:
                answer(self, HTTPStatus.NOT_FOUND)
            else:
                page(self)

        def log_message(self, format: str, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    print(f"ready on 127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


def answer(handler: BaseHTTPRequestHandler, status: HTTPStatus, **told: object) -> None:
    """Answer a call."""
    body = json.dumps(told).encode()
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(body)))
    # The page comes from one service, and calls the other.
    handler.send_header("Access-Control-Allow-Origin", "*")
    handler.end_headers()
    handler.wfile.write(body)
