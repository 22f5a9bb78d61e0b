"""Users, their passwords and rights, as `[[user]]` tables declare them, beside those of Redis."""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import interlock
from interlock.hub import passwords
from interlock.hub.client import Client
from interlock.hub.config.configuration import ConfigError, Configuration, from_arguments, read
from interlock.hub.resp import ReplyError, command
from tests.hub.config.test_limits import opened, to_the_end
from tests.hub.protocol.wire import Exchange, differences, play, raw, say
from tests.hub.servers import needs_hub, redis_server

# Hashed once: it takes its time on purpose.
HASH, OTHER = passwords.hashed("secret"), passwords.hashed("other")
ROOT = {"name": "root", "passwords": [HASH], "commands": ["@all"], "topics": ["*"]}
APP = {"name": "app", "passwords": [HASH, OTHER], "topics": ["orders.*", "news"]}
# The same in Redis' words.
REDIS_ROOT = ("user", "root", "on", ">secret", "allchannels", "+@all")
REDIS_APP = (
    *("user", "app", "on", ">secret", ">other", "resetchannels", "&orders.*", "&news"),
    *("+@pubsub", "+@connection", "+acl|whoami", "-@admin", "-@dangerous"),
)


@pytest.fixture
def hub() -> Iterator[interlock.Hub]:
    needs_hub()
    with interlock.Hub(port=0, workers=2, user=[ROOT, APP]) as running:
        yield running


@pytest.fixture(scope="module")
def guarded_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("guarded")
    with redis_server(folder) as (_, port):
        with Client(f"127.0.0.1:{port}") as client:
            for _, name, *rules in (REDIS_ROOT, REDIS_APP):
                client.call("ACL", "SETUSER", name, *rules)
            client.call("ACL", "SETUSER", "default", "off", "resetpass", ">nobody knows it")
        yield port


def logged_in(hub: interlock.Hub, name: str = "app", password: str = "secret") -> Client:
    return Client(f"redis://{name}:{password}@{hub.addresses[0]}", timeout=20)


AS_APP = say("AUTH", "app", "secret")
EXCHANGES = (
    Exchange("before a login", (
        say("PING"), say("NONSENSE"), say("PUBLISH"), say("PUBLISH", "a", "b"), say("CLIENT", "ID"),
        say("HELLO"), say("HELLO", 3), say("HELLO", 4), say("SUBSCRIBE", "a"), say("RESET"),
        say("INFO"), say("COMMAND", "COUNT"), say("QUIT", ends=True))),
    Exchange("auth", (
        say("AUTH", "x"), say("AUTH", "app", "wrong"), say("AUTH", "nobody", "secret"),
        say("AUTH", "app", ""), say("AUTH", "", ""), AS_APP, say("PING"),
        say("ACL", "WHOAMI"), say("AUTH", "app", "wrong"), say("ACL", "WHOAMI"),
        say("AUTH", "root", "secret"), say("ACL", "WHOAMI"), say("AUTH", "app", "other"),
        say("ACL", "WHOAMI"))),
    Exchange("hello with auth", (
        say("HELLO", 3, "AUTH", "app", "wrong"), say("PING"),
        say("HELLO", 3, "AUTH", "app", "secret", "SETNAME", "me"), say("CLIENT", "GETNAME"),
        say("HELLO", 2)), ("version", "id")),
    Exchange("a pipeline continues after a login", (
        raw(command("AUTH", "app", "secret") + command("PING") + command("ACL", "WHOAMI")),
        raw(command("AUTH", "root", "no") + command("ACL", "WHOAMI")))),
    Exchange("a login whose answer is not wanted", (
        AS_APP, raw(command("CLIENT", "REPLY", "SKIP") + command("AUTH", "root", "secret")
                    + command("PING") + command("ACL", "WHOAMI")))),
    Exchange("reset ends it", (AS_APP, say("RESET"), say("PING"), say("ACL", "WHOAMI"))),
    Exchange("commands", (
        AS_APP, say("CLIENT", "LIST"), say("CLIENT", "KILL", "ID", "1"), say("CONFIG", "GET", "x"),
        say("CONFIG", "SET", "maxclients", "1"), say("MONITOR"), say("SLOWLOG", "GET"),
        say("SHUTDOWN"), say("INFO"), say("ACL", "HELP"), say("CLIENT", "GETNAME"),
        say("PUBSUB", "NUMPAT"), say("ECHO", "x"), say("SELECT", "0"), say("NONSENSE"))),
    Exchange("topics", (
        AS_APP, say("PUBLISH", "orders.new", "x"), say("PUBLISH", "news", "x"),
        say("PUBLISH", "newsx", "x"), say("PUBLISH", "orders", "x"), say("PUBLISH", "", "x"),
        say("SPUBLISH", "orders.new", "x"), say("SPUBLISH", "b", "x"), say("SUBSCRIBE", "b"),
        say("SUBSCRIBE", "orders.a", "b"), say("SSUBSCRIBE", "b"), say("PSUBSCRIBE", "*"),
        say("PSUBSCRIBE", "new*"), say("PSUBSCRIBE", "orders.*", "*"),
        say("PSUBSCRIBE", "orders.*"), say("PUNSUBSCRIBE", "b"))),
    Exchange("without a login only little is taken", (
        raw(b"*11\r\n", ends=True),)),
    Exchange("nor anything long", (
        raw(b"*1\r\n$16385\r\n", ends=True),)),
    Exchange("but behind it", (
        raw(command("AUTH", "app", "secret") + command("ECHO", b"x" * 100_000)),)),
)  # fmt: skip


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange.name)
def test_the_same_bytes_as_redis(
    hub: interlock.Hub, guarded_redis: int, exchange: Exchange
) -> None:
    redis, ours = (play(port, exchange, stranger=True) for port in (guarded_redis, hub.port))
    # A hub names the key of its configuration too.
    plain = [(name, re.sub(rb"; on this hub [^\r]*", b"", said)) for name, said in ours]
    assert list(differences(exchange, redis, plain)) == []


@pytest.mark.parametrize(
    ("words", "needs"),
    [
        (("PUBLISH", "salaries", "x"), 'a pattern for "salaries" in topics or publish'),
        (("SUBSCRIBE", "news", "b\n\x1b"), 'a pattern for "b\\n\\u{1b}" in topics or subscribe'),
        (("PSUBSCRIBE", "*"), 'a pattern for "*" in topics or subscribe'),
        (("FCALL", "il1_put", 1, "il:{mail}"), 'a pattern for "mail" in queues'),
        (("HGET", "cars:7", "a"), 'a pattern for "cars" in tables'),
        (("CONFIG", "GET", "x"), '"config|get" or "@admin" in commands'),
        (
            ("FCALL", "il1_purge", 1, "il:{own}", "dead"),
            '"fcall|il1_purge" or "@operate" in commands',
        ),
        (("FCALL", "il1_configure", 1, "il:{own}", "CHANGE"), '"@operate" in commands'),
    ],
)
def test_a_refusal_names_what_the_configuration_lacks(
    words: tuple[str | int, ...], needs: str
) -> None:
    needs_hub()
    with (
        interlock.Hub(port=0, user=[{**APP, "queues": ["own"]}]) as hub,
        logged_in(hub) as client,
        pytest.raises(ReplyError) as refused,
    ):
        client.call(*words)
    said = str(refused.value)
    assert said.startswith("NOPERM this user has no permissions to ")
    assert said.endswith(f'; on this hub [[user]] "app" needs {needs}')


def test_a_user_is_told_of_its_own_topics_alone(hub: interlock.Hub) -> None:
    with logged_in(hub, "root") as root, logged_in(hub) as app:
        root.call("HELLO", 2)
        for kind in ("SUBSCRIBE", "SSUBSCRIBE"):
            for topic in ("orders.new", "news", "salaries"):
                root.call(kind, topic)
        for pattern in ("orders.a*", "*"):
            root.call("PSUBSCRIBE", pattern)
        for channels, numbers in (("CHANNELS", "NUMSUB"), ("SHARDCHANNELS", "SHARDNUMSUB")):
            found = app.call("PUBSUB", channels)
            assert isinstance(found, list) and sorted(found) == [b"news", b"orders.new"]
            assert app.call("PUBSUB", channels, "sal*") == []
            told = app.call("PUBSUB", numbers, "news", "salaries")
            assert told == [b"news", 1, b"salaries", 0]
        assert app.call("PUBSUB", "NUMPAT") == 1
        with logged_in(hub, "root") as other:
            assert other.call("PUBSUB", "NUMPAT") == 2
            assert other.call("PUBSUB", "NUMSUB", "salaries") == [b"salaries", 1]


def test_a_narrower_pattern_is_allowed_which_redis_refuses(hub: interlock.Hub) -> None:
    with logged_in(hub) as client:
        client.psubscribe("orders.eu.*")
        with logged_in(hub) as publisher:
            assert publisher.publish("orders.eu.new", "x") == 1


def test_a_password_that_was_right_is_right_again_and_a_wrong_one_stays_wrong(
    hub: interlock.Hub,
) -> None:
    for _ in range(3):
        logged_in(hub).close()
        with pytest.raises(ReplyError, match="WRONGPASS"):
            logged_in(hub, password="wrong")
    assert hub.info()["login_failures"] == 3


def test_known_and_unknown_names_cost_the_same_checks(
    hub: interlock.Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[bytes] = []

    def counted(password: bytes, _known: str) -> bool:
        looked.append(password)
        return False

    monkeypatch.setattr(passwords, "matches", counted)
    for number, name in enumerate(("root", "app", "nobody"), 1):
        with pytest.raises(ReplyError, match="WRONGPASS"):
            logged_in(hub, name, name).close()
        assert len(looked) == 2 * number


def test_a_reload_forgets_passwords_only_if_users_change(
    hub: interlock.Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = 0
    matches = passwords.matches

    def counted(password: bytes, known: str) -> bool:
        nonlocal looked
        looked += 1
        return matches(password, known)

    monkeypatch.setattr(passwords, "matches", counted)
    logged_in(hub).close()
    first = looked
    hub.set({"maxclients": 500})
    logged_in(hub).close()
    assert looked == first > 0
    hub.set({"user": [{**APP, "topics": ["news"]}, ROOT]})
    logged_in(hub).close()
    assert looked > first


def test_many_log_in_at_once_and_each_is_answered(hub: interlock.Hub) -> None:
    clients = [socket.create_connection(("127.0.0.1", hub.port), 30) for _ in range(60)]
    for number, client in enumerate(clients):
        password = "secret" if number % 10 else f"wrong {number}"
        client.sendall(command("AUTH", "app", password) + command("PING"))
    for number, client in enumerate(clients):
        expected = b"+OK\r\n+PONG\r\n"
        if number % 10 == 0:
            expected = (
                b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"
                b"-NOAUTH Authentication required.\r\n"
            )
        found = b""
        while len(found) < len(expected):
            found += client.recv(1000)
        assert found == expected
        client.close()


def test_who_never_says_who_it_is_is_closed(tmp_path: Path) -> None:
    needs_hub()
    with (
        interlock.Hub(port=0, login_timeout=1, user=[ROOT]) as hub,
        opened(hub) as silent,
        logged_in(hub, "root") as known,
    ):
        assert to_the_end(silent) == b""
        assert hub.info()["login_timeouts"] == 1
        assert known.call("PING") == "PONG"


@pytest.mark.share(2)
def test_who_goes_while_its_password_is_looked_at_leaves_nothing(hub: interlock.Hub) -> None:
    with logged_in(hub) as witness:
        for number in range(30):
            with opened(hub) as hasty:
                hasty.sendall(command("AUTH", "app", f"wrong {number}"))
        while hub.info()["connected_clients"] > 1:
            assert witness.call("PING") == "PONG"


def test_the_default_user_needs_no_login_and_has_only_its_rights() -> None:
    needs_hub()
    reader = {"name": "default", "subscribe": ["*"]}
    with (
        interlock.Hub(port=0, user=[reader, ROOT]) as hub,
        Client(hub.url) as anybody,
        logged_in(hub, "root") as root,
    ):
        anybody.subscribe("a")
        with Client(hub.url) as other:
            with pytest.raises(ReplyError, match=r"NOPERM .* channels"):
                other.publish("a", "x")
            with pytest.raises(ReplyError, match="called without any password configured"):
                other.call("AUTH", "x")
            assert other.call("AUTH", "default", "whatever") == "OK"
        assert root.publish("a", "x") == 1


def test_a_user_that_goes_takes_its_connections_along(hub: interlock.Hub) -> None:
    with logged_in(hub) as app, logged_in(hub, "root") as root:
        hub.set({"user": [ROOT]})
        with pytest.raises(ConnectionError):
            app.call("PING")
        assert root.call("PING") == "PONG"
        assert hub.info()["permission_disconnections"] == 1


def test_rights_that_shrink_end_what_they_no_longer_cover(hub: interlock.Hub) -> None:
    with logged_in(hub) as subscribed, logged_in(hub) as free, logged_in(hub, "root") as root:
        subscribed.subscribe("orders.new")
        assert root.publish("orders.new", "x") == 1
        assert subscribed.message(20) is not None
        hub.set({"user": [ROOT, {**APP, "topics": ["news"]}]})
        with pytest.raises(ConnectionError):
            subscribed.message(20)
        # It was subscribed to nothing: it stays, with the rights of now.
        with pytest.raises(ReplyError, match="NOPERM"):
            free.publish("orders.new", "x")
        assert free.publish("news", "x") == 0
        assert root.publish("orders.new", "x") == 0


def test_who_may_no_longer_monitor_or_subscribe_is_closed(hub: interlock.Hub) -> None:
    calls = (("MONITOR",), ("SUBSCRIBE", "a"), ("PSUBSCRIBE", "a"), ("SSUBSCRIBE", "a"))
    with ExitStack() as stack:
        clients = [stack.enter_context(opened(hub)) for _ in calls]
        for client, call in zip(clients, calls, strict=True):
            client.sendall(command("AUTH", "root", "secret"))
            assert to_the_line(client) == b"+OK\r\n"
            client.sendall(command(*call))
            assert to_the_line(client) in {b"+OK\r\n", b"*3\r\n"}
        remaining = clients.pop(1)
        hub.set({"user": [{**ROOT, "commands": ["@connection", "subscribe"]}, APP]})
        for client in clients:
            to_the_end(client)
        assert hub.info()["permission_disconnections"] == len(clients)
        remaining.sendall(command("RESET"))
        while to_the_line(remaining) != b"+RESET\r\n":
            pass


def test_a_password_that_is_no_longer_one_when_it_has_been_looked_at_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needs_hub()
    looks, go_on, matches = threading.Event(), threading.Event(), passwords.matches

    def held(password: bytes, known: str) -> bool:
        looks.set()
        assert go_on.wait(20)
        return matches(password, known)

    monkeypatch.setattr(passwords, "matches", held)
    user = {**APP, "passwords": [HASH]}
    with interlock.Hub(port=0, user=[user]) as hub, opened(hub) as client:
        client.sendall(command("AUTH", "app", "secret") + command("AUTH", "app", "other"))
        assert looks.wait(20)
        hub.set({"user": [{**user, "passwords": [OTHER]}]})
        go_on.set()
        assert to_the_line(client).startswith(b"-WRONGPASS")
        assert to_the_line(client) == b"+OK\r\n"
        client.sendall(command("AUTH", "app", "secret"))
        assert to_the_line(client).startswith(b"-WRONGPASS")


def test_passwords_of_who_has_gone_are_not_looked_at_and_too_many_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needs_hub()
    looked: list[bytes] = []
    looks, go_on = threading.Event(), threading.Event()

    def held(password: bytes, _known: str) -> bool:
        looked.append(password)
        looks.set()
        assert go_on.wait(20)
        return False

    monkeypatch.setattr(passwords, "matches", held)
    with interlock.Hub(port=0, user=[ROOT], logins={"waiting": 1}) as hub, opened(hub) as first:
        first.sendall(command("AUTH", "root", "first"))
        assert looks.wait(20)
        for number in range(3):
            with opened(hub) as gone:
                gone.sendall(command("AUTH", "root", "gone"))
                while hub.info()["total_commands_processed"] < 2 + number:
                    pass
                # A cut, which is noticed though nothing is read from it.
                gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        while hub.info()["connected_clients"] > 1:
            pass
        with opened(hub) as last, opened(hub) as too_many:
            last.sendall(command("AUTH", "root", "last"))
            while hub.info()["total_commands_processed"] < 5:
                pass
            too_many.sendall(command("AUTH", "root", "too many"))
            assert to_the_line(too_many).startswith(b"-TRYAGAIN")
            go_on.set()
            assert to_the_line(last).startswith(b"-WRONGPASS")
        assert to_the_line(first).startswith(b"-WRONGPASS")
    assert looked == [b"first", b"last"]


def test_an_unreferenced_hub_ends_even_during_a_password_check() -> None:
    needs_hub()
    held: list[interlock.Hub] = []

    class Left(interlock.Hub):
        @property
        def config(self) -> Configuration:
            held.clear()
            return super().config

    held.append(Left(port=0, user=[ROOT]))
    others = threading.enumerate()
    held[0].start()
    mine = [one for one in threading.enumerate() if one not in others]
    (thread,) = (one for one in mine if one.name == "hub-control")
    with socket.create_connection(("127.0.0.1", held[0].port), 20) as client:
        client.sendall(command("AUTH", "root", "secret"))
        to_the_end(client)
    thread.join(20)
    assert not thread.is_alive()


def to_the_line(connection: socket.socket) -> bytes:
    found = b""
    while not found.endswith(b"\n"):
        byte = connection.recv(1)
        assert byte, found
        found += byte
    return found


def test_client_list_and_kill_know_the_user(hub: interlock.Hub) -> None:
    with logged_in(hub) as app, logged_in(hub, "root") as root:
        listed = root.call("CLIENT", "LIST")
        assert isinstance(listed, bytes)
        assert sorted(
            field for line in listed.decode().splitlines() for field in line.split()
            if field.startswith("user=")
        ) == ["user=app", "user=root"]  # fmt: skip
        assert root.call("CLIENT", "KILL", "USER", "app") == 1
        with pytest.raises(ConnectionError):
            app.call("PING")
        with pytest.raises(ReplyError, match="No such user 'nobody'"):
            root.call("CLIENT", "KILL", "USER", "nobody")


WRONG = [
    ({"name": "a b", "passwords": [HASH], "topics": []}, r"user\[0\]\.name is 'a b'"),
    ({"passwords": [HASH], "topics": []}, r"user\[0\]\.name is 'missing'"),
    ({"name": "a", "topics": []}, r"user\[0\]\.passwords is 'missing'.*--hash-password"),
    ({"name": "a", "passwords": ["secret"], "topics": []}, r"passwords\[0\] is 'no hash'"),
    ({"name": "a", "passwords": [HASH]}, r"user\[0\]\.topics is 'missing'"),
    ({"name": "a", "passwords": [HASH], "topics": "*"}, r"user\[0\]\.topics is '\*'"),
    ({"name": "a", "passwords": [HASH], "topics": [], "commands": ["@nonsense"]},
     r"commands is '@nonsense'.*@pubsub"),
    ({"name": "a", "passwords": [HASH], "topics": [], "commands": ["get"]}, r"commands is 'get'"),
    ({"name": "a", "password": "x"}, r"user\[0\]\.password is"),
    ("a", r"user is \['a'\]"),
]  # fmt: skip


@pytest.mark.parametrize(("table", "expected"), WRONG, ids=[expected for _, expected in WRONG])
def test_a_wrong_user_is_told_with_its_place(table: object, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected) as refused:
        read(given=from_arguments({"user": [table]}))
    assert "secret" not in str(refused.value), "what may be a password is not shown"


def test_two_users_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"user\[1\]\.name is 'root'"):
        read(given=from_arguments({"user": [ROOT, ROOT]}))


@pytest.mark.parametrize(
    "damaged",
    [
        *("", "secret", "scrypt", "scrypt$16384$8$1$$", HASH[:-1], HASH + "$", HASH.upper()),
        HASH.replace("16384", "16385"),
        HASH.replace("16384", str(2**40)),
        HASH.replace("$8$1$", "$8$-1$"),
    ],
    # The hash is another each time, and so would be the tests' names.
    ids=range(10),
)
def test_a_damaged_hash_is_refused(damaged: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        passwords.parsed(damaged)


def test_a_hash_is_of_its_password_and_never_the_same() -> None:
    assert passwords.matches(b"secret", HASH)
    assert not passwords.matches(b"Secret", HASH)
    assert passwords.hashed("secret") != HASH


def test_the_configuration_s_text_gives_the_same_users(tmp_path: Path) -> None:
    found = read(given=from_arguments({"user": [ROOT, APP]}))
    path = tmp_path / "hub.toml"
    path.write_text(found.text())
    assert read(path) == found
