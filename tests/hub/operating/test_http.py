"""HTTP for watching: /metrics, /health, /ready of a running hub; slow and bad clients."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import interlock
from interlock.cli import main
from interlock.hub.client import Client
from interlock.hub.config.configuration import ConfigError
from interlock.hub.serve.http_server import MOST_CONNECTIONS, Handler, HttpServer, Page
from interlock.hub.serve.pages import HubPages
from interlock.hub.serve.state import State
from interlock.hub.url import shown
from tests.hub.servers import hub_process, needs_hub


@pytest.fixture
def watched() -> Iterator[interlock.Hub]:
    needs_hub()
    with interlock.Hub(port=0, workers=2, http={"port": 0}) as running:
        yield running


def connection(address: str) -> http.client.HTTPConnection:
    host, _, port = address.rpartition(":")
    return http.client.HTTPConnection(host.strip("[]"), int(port), timeout=20)


def get(address: str, path: str, method: str = "GET") -> tuple[int, dict[str, str], str]:
    """Status, headers and body."""
    client = connection(address)
    try:
        client.request(method, path)
        answer = client.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        client.close()


def raw(watched: interlock.Hub, request_text: bytes) -> bytes:
    """All that is answered until the connection ends."""
    host, _, port = watched.http_address.rpartition(":")
    answer = b""
    with socket.create_connection((host, int(port)), 20) as client:
        client.sendall(request_text)
        with suppress(ConnectionResetError):  # it did not read all
            while data := client.recv(1 << 16):
                answer += data
    return answer


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection is closed for its slowness alone."""
    monkeypatch.setattr(Handler, "timeout", 1000.0)


def test_the_metrics_are_those_of_the_hub(watched: interlock.Hub) -> None:
    with Client(watched.url) as client:
        client.publish("a", "x")
        status, headers, body = get(watched.http_address, "/metrics?x=y")
    assert status == 200
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    shown = {
        sample.name: sample.value
        for family in text_string_to_metric_families(body)
        for sample in family.samples
    }
    assert shown["interlock_hub_messages_published_total"] == 1
    assert shown["interlock_hub_connected_clients"] == 1
    assert shown["interlock_hub_draining"] == 0


def test_health_and_readiness_of_a_hub_that_serves(watched: interlock.Hub) -> None:
    status, headers, body = get(watched.http_address, "/health")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    told = json.loads(body)
    assert told["status"] == "serving"
    assert told["version"] == interlock.__version__
    assert get(watched.http_address, "/ready")[::2] == (200, "serving\n")


def test_a_connection_is_kept_and_head_has_no_body(watched: interlock.Hub) -> None:
    client = connection(watched.http_address)
    lengths = []
    for method in ("GET", "HEAD", "GET"):
        client.request(method, "/ready")
        own = client.sock
        answer = client.getresponse()
        lengths.append((answer.headers["Content-Length"], len(answer.read())))
        assert client.sock is own
    client.close()
    assert lengths == [("8", 8), ("8", 0), ("8", 8)]
    # That client expects no body here.
    assert raw(watched, b"HEAD /ready HTTP/1.0\r\n\r\n").endswith(b"\r\n\r\n")


def test_unknown_paths_are_404_and_other_methods_405(watched: interlock.Hub) -> None:
    status, _, body = get(watched.http_address, "/nothing")
    assert (status, body) == (404, "there is no '/nothing'\n")
    assert get(watched.http_address, "/")[2].split() == ["/metrics", "/health", "/ready"]
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        status, headers, _ = get(watched.http_address, "/metrics", method)
        assert (status, headers["Allow"]) == (405, "GET, HEAD")
    assert get(watched.http_address, "/metrics", "BREW")[0] == 501


def test_who_trickles_a_request_is_closed_in_the_end(
    watched: interlock.Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "timeout", 0.01)
    assert raw(watched, b"GET /metrics HTTP/1.1\r\nHost:") == b""


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/9.9\r\n\r\n", b"505"),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", b"431"),
        # A second request in what would be the first one's body is not answered.
        (b"GET / HTTP/1.1\r\nContent-Length: 30\r\n\r\nGET /nothing HTTP/1.1\r\n\r\n", b"200"),
    ],
)
def test_a_bad_request_has_one_answer_and_the_connection_ends(
    watched: interlock.Hub, request_text: bytes, status: bytes
) -> None:
    answer = raw(watched, request_text)
    assert answer.split()[1] == status
    assert answer.count(b"HTTP/1.1 ") + answer.count(b"HTTP/1.0 ") == 1


@pytest.mark.usefixtures("patient")
def test_clients_that_send_half_a_request_hold_nobody_up(watched: interlock.Hub) -> None:
    host, _, port = watched.http_address.rpartition(":")
    slow = []
    try:
        for _ in range(MOST_CONNECTIONS * 2):
            slow.append(socket.create_connection((host, int(port)), 20))
            slow[-1].sendall(b"GET /metrics HTTP/1.1\r\nHost:")
        assert get(watched.http_address, "/ready")[0] == 200
        # The oldest had to go.
        assert slow[0].recv(1) == b""
    finally:
        for client in slow:
            client.close()


def test_no_more_threads_than_connections_that_may_be_open(watched: interlock.Hub) -> None:
    before = threading.active_count()
    host, _, port = watched.http_address.rpartition(":")
    clients = [socket.create_connection((host, int(port)), 20) for _ in range(60)]
    assert get(watched.http_address, "/ready")[0] == 200
    assert threading.active_count() <= before + MOST_CONNECTIONS
    for client in clients:
        client.close()


def serving() -> list[threading.Thread]:
    """Return the threads that serve pages."""
    return [thread for thread in threading.enumerate() if thread.name == "hub-http"]


@pytest.mark.usefixtures("patient")
def test_the_end_of_a_hub_ends_its_http(watched: interlock.Hub) -> None:
    address = watched.http_address
    client = connection(address)
    client.request("GET", "/ready")
    client.getresponse().read()
    before = serving()
    watched.stop()
    assert client.sock is not None and client.sock.recv(1) == b""
    client.close()
    with pytest.raises(ConnectionRefusedError):
        get(address, "/ready")
    # Others in this process may serve pages too.
    assert len(serving()) == len(before) - 1
    with pytest.raises(RuntimeError, match="not running"):
        watched.http_address  # noqa: B018


def test_a_hub_without_the_setting_has_no_http(hub: interlock.Hub) -> None:
    assert hub.http_address == ""


@pytest.mark.parametrize(
    ("state", "status"), [(State.STARTING, 503), (State.SERVING, 200), (State.DRAINING, 503)]
)
def test_only_a_hub_that_serves_is_healthy_and_ready(state: State, status: int) -> None:
    pages = HubPages(lambda: state, dict)
    for path in ("/ready", "/health"):
        page = pages(path)
        assert page is not None
        assert page.status == status
        assert state.value in page.body
    assert pages("/none") is None


def test_a_drain_can_be_watched(tmp_path: Path) -> None:
    config = tmp_path / "hub.toml"
    config.write_text("drain = 1000\n[http]\nport = 0\n")
    flags = ("--port", "0", "--config", str(config))
    with hub_process(*flags) as hub, Client(f"127.0.0.1:{hub.port}") as subscriber:
        assert hub.process.stdout is not None
        line = hub.process.stdout.readline()
        assert line.startswith("interlock hub: http on 127.0.0.1:")
        address = line.split()[-1]
        subscriber.subscribe("a")
        with Client(f"127.0.0.1:{hub.port}") as publisher:
            # More than the kernel takes: nobody reads it.
            publisher.pipeline([("PUBLISH", "a", b"x" * 100_000)] * 200)
        hub.process.send_signal(signal.SIGTERM)
        assert hub.process.stderr is not None
        assert hub.process.stderr.readline() == "interlock hub: stopping\n"
        # The line is written before the drain begins.
        while get(address, "/ready")[0] == 200:
            pass
        status, _, body = get(address, "/health")
        assert (status, json.loads(body)["status"]) == (503, "draining")
        assert "interlock_hub_draining 1" in get(address, "/metrics")[2]
        # The publisher has left, which the hub hears of a moment later.
        while "interlock_hub_connected_clients 1\n" not in get(address, "/metrics")[2]:
            pass


def test_a_port_that_is_taken_is_named_and_nothing_else_stays_open() -> None:
    needs_hub()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        hub = interlock.Hub(port=0, http={"port": port})
        with pytest.raises(OSError, match=f"cannot listen on http 127.0.0.1:{port}: "):
            hub.start()
    with interlock.Hub(port=0) as other:
        hub = interlock.Hub(port=other.port, http={"port": port})
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{other.port}"):
            hub.start()
        # Its HTTP was given up again.
        socket.create_server(("127.0.0.1", port)).close()


def test_http_on_a_public_address_must_be_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    needs_hub()
    with pytest.raises(ConfigError, match=r"http.host is '0.0.0.0' .*unprotected = true"):
        interlock.Hub(http={"host": "0.0.0.0", "port": 0})
    interlock.Hub(http={"host": "0.0.0.0", "port": 0}, unprotected=True)
    interlock.Hub(http={"host": "0.0.0.0"})


def test_check_says_to_whom_it_is_open(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERLOCK_HUB_HTTP_PORT", "9100")
    assert main(["hub", "--check"]) == 0
    assert "http 127.0.0.1:9100 is open to this machine" in capsys.readouterr().out


def test_a_server_of_pages_listens_on_ipv6_too_and_closes_without_a_start() -> None:
    server = HttpServer("::1", 0, lambda path, _query: Page(path))
    server.start()
    try:
        assert server.address.startswith("[::1]:")
        assert get(server.address, "/x")[2] == "/x"
    finally:
        server.close()
    HttpServer("127.0.0.1", 0, lambda _path, _query: None).close()
    assert shown("::1", 7) == "[::1]:7"
