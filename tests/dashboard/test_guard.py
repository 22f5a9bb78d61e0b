"""Guarding the door: hosts, headers, tokens, users of the engine with their rights."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import interlock
from interlock import audit
from interlock.dashboard.login.guard import POLICY, Guard
from interlock.dashboard.login.sessions import (
    FAILURES,
    IDLE,
    INTERVAL,
    LONGEST,
    MOST,
    MOST_ADDRESSES,
    Brake,
    Sessions,
    network,
)
from interlock.dashboard.refusal import Refusal
from interlock.dashboard.settings import Settings, is_loopback
from interlock.hub import passwords
from interlock.hub.client import Client as HubClient
from tests.dashboard.conftest import Page, Serve
from tests.hub.servers import needs_hub, redis_server, refusing

TOKEN = "a token of some length"


# -- Hosts and headers ----------------------------------------------------------------------------


def test_every_response_has_the_security_headers(redis_url: str, serve: Serve) -> None:
    page = serve(redis_url)
    for path in ("", "static/x.js", "api/server", "api/nothing", "queues/q"):
        answer = page.http.get(f"/{path}")
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-frame-options"] == "DENY"
        assert "access-control-allow-origin" not in answer.headers
        if path.startswith("api"):
            assert answer.headers["cache-control"] == "no-store"


def test_a_request_for_an_unknown_host_is_refused(redis_url: str, serve: Serve) -> None:
    page = serve(redis_url)
    for name in ("evil.example", "evil.example:8787", "127.0.0.1.evil.example", "", "[", "a."):
        host = {"Host": name}
        for path in ("", "static/start.js", "api/queues", "api/live"):
            assert page.http.get(f"/{path}", headers=host).status_code in (400, 403), name
        assert page.http.post("/login", json={}, headers=host).status_code in (400, 403)


def test_a_request_for_an_allowed_host_is_answered(redis_url: str, serve: Serve) -> None:
    page = serve(redis_url, allowed_hosts=("box.lan",))
    for host in ("localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:99", "box.lan"):
        assert page.http.get("/api/server", headers={"Host": host}).status_code == 200


def test_a_dashboard_for_all_addresses_answers_for_the_one_that_was_asked() -> None:
    guard = Guard(Settings(url="redis://a", host="0.0.0.0", login="token", token=TOKEN))
    guard.check_host("10.1.2.3:8787", "10.1.2.3")
    for host, own in (("evil.example", "10.1.2.3"), ("10.1.2.4", "10.1.2.3"), ("", "")):
        with pytest.raises(Refusal):
            guard.check_host(host, own)


def test_a_cross_site_request_cannot_read(redis_url: str, serve: Serve) -> None:
    page = serve(redis_url)
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200)):
        headers = {"Sec-Fetch-Site": site}
        assert page.http.get("/api/queues", headers=headers).status_code == status
    # A link to a page may come from anywhere.
    headers = {"Sec-Fetch-Site": "cross-site"}
    assert page.http.get("/queues/q", headers=headers).status_code != 403


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"host": "0.0.0.0"}, "login"),
        ({"host": "10.0.0.1"}, "login"),
        ({"login": "token", "token": "short"}, "characters"),
        ({"base_path": "ops"}, "base path"),
        ({"base_path": "/ops/../x"}, "base path"),
        ({"base_path": '/"onload='}, "base path"),
        ({"allowed_hosts": ("http://x/",)}, "allowed host"),
    ],
)
def test_settings_that_would_allow_anyone_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Settings(url="redis://a", **given).check()


def test_loopback_addresses_are_recognised() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "localhost.evil.example", "")))


# -- A token --------------------------------------------------------------------------------------


@pytest.fixture
def guarded(redis_url: str, serve: Serve) -> Page:
    return serve(redis_url, write=True, login="token", token=TOKEN)


def test_no_data_is_returned_without_the_token(guarded: Page) -> None:
    for path in ("server", "queues", "live", "workers", "queues/q/messages"):
        answer = guarded.get(path, 401)
        assert answer == {"error": "log in first", "login": "token"}
    assert guarded.http.post("/api/queues/q/pause", json={}).status_code == 401
    # The page itself holds nothing.
    assert guarded.http.get("/login").status_code in (200, 404)


def log_in(page: Page, status: int = 200, **given: str) -> httpx.Response:
    answer = page.http.post("/login", json=given)
    assert answer.status_code == status, answer.text
    return answer


def test_a_login_with_the_token_lasts_until_logout(guarded: Page) -> None:
    answer = log_in(guarded, token=TOKEN)
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and "path=/" in cookie
    assert "secure" not in cookie
    found = guarded.get("server")
    assert found["login"] == "token" and found["csrf"] == answer.json()["csrf"]
    guarded.post("queues/q/resume")
    kept = dict(guarded.http.cookies)
    assert guarded.http.post("/logout").status_code == 403
    guarded.get("server")
    mark = {"X-Interlock-CSRF": found["csrf"]}
    assert guarded.http.post("/logout", headers=mark).status_code == 200
    guarded.http.cookies.update(kept)
    guarded.get("server", 401)


def test_a_program_can_send_the_token_in_a_header(guarded: Page) -> None:
    right = {"Authorization": f"Bearer {TOKEN}"}
    assert guarded.http.get("/api/queues", headers=right).status_code == 200
    assert guarded.http.post("/api/queues/q/resume", json={}, headers=right).status_code == 200
    for wrong in (f"Bearer {TOKEN}x", "Bearer", f"Basic {TOKEN}", TOKEN):
        answer = guarded.http.get("/api/queues", headers={"Authorization": wrong})
        assert answer.status_code == 401


def test_a_wrong_token_is_refused(redis_url: str, serve: Serve) -> None:
    page = serve(redis_url, login="token", token=f"one more {TOKEN}")
    for token in ("y", TOKEN, f"one more {TOKEN} ", f"one more {TOKEN}"[:-1], "ü" * 20):
        assert page.http.post("/login", json={"token": token}).status_code == 401
    assert not page.http.cookies


def test_a_cross_site_login_is_refused(guarded: Page) -> None:
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        answer = guarded.http.post("/login", json={"token": TOKEN}, headers=headers)
        assert answer.status_code == 403 and not guarded.http.cookies
    # A form of another site cannot send JSON.
    answer = guarded.http.post("/login", data={"token": TOKEN})
    assert answer.status_code == 400


def test_too_many_wrong_tokens_are_delayed_and_the_right_one_is_not(
    redis_url: str, serve: Serve
) -> None:
    token = f"another {TOKEN}"
    page = serve(redis_url, login="token", token=token)

    def wrong(n: int) -> httpx.Response:
        # Neither another header's address nor the way in which the token comes makes a difference.
        headers = {"X-Forwarded-For": f"10.0.0.{n}"}
        if n % 2:
            return page.http.post("/login", json={"token": "no"}, headers=headers)
        return page.http.get("/api/queues", headers={**headers, "Authorization": "Bearer no"})

    assert [wrong(n).status_code for n in range(FAILURES)] == [401] * FAILURES
    assert [wrong(n).status_code for n in range(4)] == [429] * 4
    assert "try again in" in log_in(page, 429, token="no").json()["error"]
    right = {"Authorization": f"Bearer {token}"}
    assert page.http.get("/api/queues", headers=right).status_code == 200
    log_in(page, token=token)


@pytest.mark.parametrize("says_so", [True, False], ids=["content-length", "chunked"])
def test_an_oversized_login_is_refused_before_it_is_read(guarded: Page, says_so: bool) -> None:
    host, port = guarded.service.url.removeprefix("http://").strip("/").split(":")
    length = f"Content-Length: {4 << 20}" if says_so else "Transfer-Encoding: chunked"
    with socket.create_connection((host, int(port)), 20) as connection:
        head = f"POST /login HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}{length}\r\n\r\n".encode())
        if not says_so:
            # More than a login has, and far less than 4 MiB; the end of it never comes.
            connection.sendall(b"%x\r\n%b\r\n" % (17 << 10, b" " * (17 << 10)))
        assert b" 413 " in connection.recv(4096)


def test_behind_a_tls_proxy_the_cookie_is_secure(guarded: Page) -> None:
    headers = {"X-Forwarded-Proto": "https"}
    answer = guarded.http.post("/login", json={"token": TOKEN}, headers=headers)
    assert "secure" in answer.headers["set-cookie"].lower()


# -- Users of the engine --------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["redis", "hub"])
def users_url(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """An engine with an operator, one who may only read, one with no rights, and one open."""
    with contextlib.ExitStack() as stack:
        if request.param == "redis":
            folder = tmp_path_factory.mktemp("users")
            host, port = stack.enter_context(redis_server(folder))
            with HubClient(f"{host}:{port}") as client:
                for name, *rules in (
                    ("boss", "on", ">secret", "~*", "&*", "+@all"),
                    ("eyes", "on", ">secret", "~*", "+@read", "+@hash", "+@list", "+@set",
                     "+@sortedset", "+@string", "+time", "+fcall", "+ping", "-info"),
                    ("mute", "on", ">secret", "resetkeys", "-@all", "+ping"),
                    ("open", "on", "nopass", "~*", "+@all"),
                    ("default", "off", "resetpass", ">nobody knows it"),
                ):  # fmt: skip
                    client.call("ACL", "SETUSER", name, *rules)
            yield f"redis://{host}:{port}"
        else:
            needs_hub()
            word = [passwords.hashed("secret")]
            users: list[dict[str, Any]] = [
                {"name": "boss", "passwords": word, "commands": ["@all"], "queues": ["*"]},
                {"name": "eyes", "passwords": word, "queues": ["*"],
                 "commands": ["@read", "@connection", "info"]},
                {"name": "mute", "passwords": word, "topics": ["none"]},
            ]  # fmt: skip
            hub = stack.enter_context(interlock.Hub(port=0, workers=2, user=users))
            yield f"interlock://{hub.addresses[0]}"


@pytest.fixture
def with_users(users_url: str, serve: Serve) -> Page:
    return serve(users_url, write=True, login="user")


def test_a_user_of_the_engine_acts_with_their_rights(with_users: Page, users_url: str) -> None:
    page = with_users
    assert page.get("queues", 401)["login"] == "user"
    log_in(page, user="boss", password="secret")
    assert page.get("server")["user"] == "boss"
    with interlock.connect(users_url.replace("://", "://boss:secret@")) as client:
        client.queue("of-users").put(1, keys="a")
        assert page.post("queues/of-users/pause", {"keys": ["a"]}) == {"changed": True}
        assert page.post("queues/of-users/resume", {"keys": ["a"]}) == {"changed": True}


def test_a_user_with_read_rights_cannot_change_anything(with_users: Page, users_url: str) -> None:
    with interlock.connect(users_url.replace("://", "://boss:secret@")) as client:
        client.queue("of-users").put(1, keys="a")
    log_in(with_users, user="eyes", password="secret")
    assert with_users.get("queues/of-users")["stats"]["unsettled"] >= 1
    if users_url.startswith("interlock"):
        # Redis has one right for all functions; a hub one for each kind.
        answer = with_users.post("queues/of-users/pause", {}, 403)
        assert "NOPERM" in answer["error"]
        told = with_users.get("server")
        assert told["rights"] == ["read"] and "NOPERM" in told["refused"]["of-users"]
        record = audit.recent()[0]
        assert (record["who"], record["action"]) == ("eyes", "pause")
        assert str(record["result"]).startswith("refused: ")


def test_the_rights_of_a_user_are_reported_as_the_engine_has_them(
    with_users: Page, users_url: str
) -> None:
    with interlock.connect(users_url.replace("://", "://boss:secret@")) as client:
        client.queue("of-users").put(1, keys="a")
    log_in(with_users, user="boss", password="secret")
    told = with_users.get("server")
    assert (told["rights"], told["refused"]) == (["read", "operate"], {})
    assert with_users.get("queues/of-users")["stats"]["unsettled"] >= 1
    log_in(with_users, user="mute", password="secret")
    assert with_users.get("server")["rights"] == ["read"]


def test_a_user_with_no_rights_sees_nothing(with_users: Page) -> None:
    log_in(with_users, user="mute", password="secret")
    assert "NOPERM" in with_users.get("queues/of-users", 403)["error"]
    assert "NOPERM" in with_users.get("queues/of-users/messages", 403)["error"]


@pytest.mark.parametrize(
    "given",
    [
        {"user": "boss", "password": "wrong"},
        {"user": "nobody", "password": "secret"},
        {"user": "boss", "password": "secret\r\nPING"},
    ],
)
def test_a_wrong_password_is_refused(users_url: str, serve: Serve, given: dict[str, str]) -> None:
    page = serve(users_url, login="user")
    assert "does not know" in log_in(page, 401, **given).json()["error"]
    page.get("queues", 401)
    for missing in ({}, {"user": "boss"}, {"user": "", "password": ""}, {"token": "x"}):
        log_in(page, 400, **missing)


def test_a_login_during_an_engine_outage_is_not_reported_as_a_wrong_password(serve: Serve) -> None:
    with refusing() as port:
        page = serve(f"redis://127.0.0.1:{port}?timeout=1", login="user")
        for _ in range(FAILURES + 1):
            log_in(page, 503, user="boss", password="secret")


def test_a_user_without_a_password_is_refused(users_url: str, serve: Serve) -> None:
    if users_url.startswith("interlock"):
        pytest.skip("on a hub only default may have none, and then there is no login")
    page = serve(users_url, login="user", write=True)
    answer = log_in(page, 403, user="open", password="anything")
    assert "needs no password" in answer.json()["error"]


def test_a_session_that_ends_closes_its_connections(with_users: Page) -> None:
    log_in(with_users, user="boss", password="secret")
    mark = with_users.get("server")["csrf"]
    sessions = with_users.service.dashboard._identities.sessions
    found = sessions.find(next(iter(with_users.http.cookies.values())))
    assert found is not None
    access = found.access
    with_users.http.post("/logout", headers={"X-Interlock-CSRF": mark})
    assert not access.client._sessions.alive


def test_a_session_ends_when_the_password_changes(tmp_path: Path, serve: Serve) -> None:
    with redis_server(tmp_path) as (host, port), HubClient(f"{host}:{port}") as client:
        rules = ("on", "resetpass", "~*", "+@all")
        client.call("ACL", "SETUSER", "me", *rules, ">before")
        page = serve(f"redis://{host}:{port}", login="user")
        log_in(page, user="me", password="before")
        page.get("queues")
        client.call("ACL", "SETUSER", "me", *rules, ">after")
        client.call("CLIENT", "KILL", "USER", "me")
        page.get("server", 401)
        assert len(page.service.dashboard._identities.sessions) == 0
        log_in(page, user="me", password="after")
        page.get("queues")


# -- Sessions by themselves -----------------------------------------------------------------------


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Held:
    """An access that notes whether it was closed."""

    closed = False

    def close(self) -> None:
        self.closed = True


def test_sessions_end_by_age_and_by_number() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    held: Any = Held()
    first = sessions.begin(held, "a", own=True)
    clock.now += IDLE - 1
    assert sessions.find(first) is not None
    clock.now += IDLE + 1
    assert sessions.find(first) is None and held.closed
    second = sessions.begin(held, "a", own=True)
    for _ in range(3):
        clock.now += LONGEST / 3.5
        found = sessions.find(second)
        assert found is not None
        found.pages = 1
    clock.now += LONGEST / 2
    assert sessions.find(second) is None
    for _ in range(MOST + 5):
        sessions.begin(held, "a", own=False)
    assert len(sessions) == MOST


def test_a_csrf_mark_belongs_to_one_cookie_and_one_server() -> None:
    one, two = Sessions(), Sessions()
    assert one.marked("a", one.mark("a"))
    assert not one.marked("a", one.mark("b"))
    assert not one.marked("a", two.mark("a"))
    assert not one.marked("a", "") and not one.marked("a", "ü")


def test_failed_logins_delay_only_their_address() -> None:
    clock = Clock()
    brake = Brake(clock)
    for _ in range(FAILURES):
        assert not brake.holds("a")
        assert not brake.failed("a")
    assert brake.failed("a")
    assert brake.holds("a") == INTERVAL and not brake.holds("b")
    for n in range(1_000):
        brake.failed(f"other {n}")
    assert not brake.holds("c")
    clock.now += INTERVAL
    assert not brake.holds("a"), "one try a second"
    assert brake.holds("a") == INTERVAL
    clock.now += 61
    assert not brake.holds("a") and not brake.failed("c")
    assert [*brake._failed] == ["c"] and not brake._tried


def test_the_login_delay_stores_a_bounded_number_of_addresses_and_groups_ipv6_by_64_bits() -> None:
    brake = Brake(Clock())
    for n in range(MOST_ADDRESSES + 5):
        brake.failed(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}")
    assert len(brake._failed) == MOST_ADDRESSES
    for n in range(FAILURES):
        brake.failed(f"2001:db8::{n}")
    assert brake.holds("2001:db8::ffff") and not brake.holds("2001:db8:0:1::1")
    assert network("::ffff:10.0.0.1") == "10.0.0.1" and network("") == ""


# -- Files ----------------------------------------------------------------------------------------


@pytest.fixture
def shown(redis_url: str, serve: Serve, tmp_path: Path) -> Page:
    folder = tmp_path / "static"
    (folder / "parts").mkdir(parents=True)
    (folder / "index.html").write_text('<html data-base="{{base}}">')
    (folder / "parts" / "a.js").write_text("1")
    (folder / "secret.py").write_text("no")
    (tmp_path / "outside.js").write_text("no")
    (folder / "link.js").symlink_to(tmp_path / "outside.js")
    page = serve(redis_url, static=folder, base_path="/ops/queues")
    page.http.base_url = page.service.url.removesuffix("ops/queues/")
    return page


def test_deep_links_return_the_page(shown: Page) -> None:
    for path in ("", "queues/a%2Fb/messages/17", "workers", "login", "tables"):
        for base in ("/", "/ops/queues/"):
            answer = shown.http.get(f"{base}{path}")
            assert answer.status_code == 200
            assert answer.text == '<html data-base="/ops/queues">'
    for accept in ("*/*", "image/png", ""):
        lost = shown.http.get("/other", headers={"Accept": accept})
        assert (lost.status_code, lost.text) == (404, "there is no such page\n")
        assert lost.headers["content-type"] == "text/plain; charset=utf-8"
    for accept in ("application/json", "application/problem+json, */*"):
        lost = shown.http.get("/other", headers={"Accept": accept})
        assert (lost.status_code, lost.json()["error"]) == (404, "there is no such page")
    missing = shown.http.get("/ops/queues/static/none.js")
    assert (missing.status_code, missing.text) == (404, "there is no such file\n")
    for place in ("/api/other", "/ops/queues/api/other"):
        assert "no such path" in shown.http.get(place).json()["error"]
    lost = shown.http.get("/other", headers={"Accept": "text/html"})
    assert (lost.status_code, lost.text) == (404, '<html data-base="/ops/queues">')
    moved = shown.http.get("/ops/queues")
    assert moved.status_code == 308 and moved.headers["location"] == "/ops/queues/"
    cookie = shown.http.get("/ops/queues/api/server").headers["set-cookie"]
    assert "Path=/ops/queues/;" in cookie


def test_only_packaged_files_are_served(shown: Page) -> None:
    answer = shown.http.get("/static/parts/a.js")
    assert answer.text == "1" and answer.headers["content-type"].startswith("text/javascript")
    assert "class Painter" in shown.http.get("/static/timeline/painter.js").text
    again = {"If-None-Match": answer.headers["etag"]}
    assert shown.http.get("/static/parts/a.js", headers=again).status_code == 304
    for path in (
        *("../outside.js", "..%2Foutside.js", "%2e%2e/outside.js", "link.js", "secret.py", "parts"),
        *("", "..%5Coutside.js", "%00", "a.js%00.js", "/etc/passwd.js", "=Li4"),
        *("timeline", "timeline/..%2F..%2Fdashboard%2Fstatic%2Fstart.js", "painter.js"),
    ):
        answer = shown.http.send(
            httpx.Request("GET", shown.http.base_url.copy_with(
                raw_path=b"/static/" + path.encode()
            ))
        )  # fmt: skip
        assert answer.status_code in (400, 404), path
    assert shown.http.post("/static/parts/a.js").status_code == 405
    assert shown.http.request("HEAD", "/static/parts/a.js").status_code == 200
