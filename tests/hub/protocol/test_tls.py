"""TLS: at the one port or beside the plain one, with client certificates, and what breaks in it."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

import interlock
from interlock.hub import passwords
from interlock.hub.client import Client
from interlock.hub.config.configuration import ConfigError, from_arguments, read
from interlock.hub.resp import command
from tests import seeds
from tests.hub.config.test_limits import opened, to_the_end
from tests.hub.faults.measures import processor_seconds
from tests.hub.operating.test_process import refused
from tests.hub.protocol.certificates import Authority, Pair
from tests.hub.servers import needs_hub
from tests.support import until


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    return authority.sign("server")


@pytest.fixture
def hub(pair: Pair) -> Iterator[interlock.Hub]:
    """Both: a plain port, and one for TLS."""
    needs_hub()
    with interlock.Hub(port=0, workers=2, tls=settings(pair, port=0)) as running:
        yield running


def settings(pair: Pair, **more: object) -> dict[str, object]:
    return {"cert": str(pair.cert), "key": str(pair.key), **more}


@contextmanager
def shaken(
    port: int, authority: Authority, pair: Pair | None = None, **versions: ssl.TLSVersion
) -> Iterator[ssl.SSLSocket]:
    """A connection that has come through the handshake."""
    context = ssl.create_default_context(cafile=str(authority.cert))
    for name, version in versions.items():
        setattr(context, name, version)
    if pair is not None:
        context.load_cert_chain(pair.cert, pair.key)
    with (
        socket.create_connection(("127.0.0.1", port), 20) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        yield connection


def received(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        data = connection.recv(count - len(found))
        assert data, f"closed after {found!r}"
        found += data
    return found


def ask(port: int, authority: Authority, pair: Pair | None) -> None:
    """A command and its answer: in TLS 1.3 a client learns from its first read only that it is
    refused."""
    with shaken(port, authority, pair) as connection:
        connection.sendall(b"PING\r\n")
        assert received(connection, 7) == b"+PONG\r\n"


def last(connection: socket.socket, data: bytes) -> None:
    """Send only this, and wait for the server to close; it may do so before all is sent."""
    with contextlib.suppress(OSError):
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
    to_the_end(connection)


# The alert of TLS before the end, if it can still be sent.
ALERT = (b"\x15", b"")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_command_and_its_answer(
    hub: interlock.Hub, authority: Authority, version: ssl.TLSVersion
) -> None:
    with shaken(hub.tls_port, authority, maximum_version=version) as connection:
        assert connection.version() == version.name.replace("_", ".")
        connection.sendall(b"PING\r\n")
        assert received(connection, 7) == b"+PONG\r\n"
        connection.sendall(b"QUIT\r\n")
        assert received(connection, 5) == b"+OK\r\n"
        assert connection.recv(1) == b"", "an end that was said, not a cut"


def test_redis_py_publishes_and_subscribes_over_it(
    hub: interlock.Hub, authority: Authority
) -> None:
    with (
        redis.Redis(port=hub.tls_port, ssl=True, ssl_ca_certs=str(authority.cert)) as client,
        redis.Redis(port=hub.port) as plain,
        client.pubsub() as subscriber,
    ):
        subscriber.subscribe("a")
        assert subscriber.get_message(timeout=20)["type"] == "subscribe"
        sent = [b"%d" % number + b"x" * random.randrange(20_000) for number in range(200)]
        for number, message in enumerate(sent):
            assert (client if number % 2 else plain).publish("a", message) == 1
        found = [subscriber.get_message(timeout=20) for _ in sent]
        assert [message["data"] for message in found if message] == sent
        big = os.urandom(5_000_000)
        assert client.echo(big) == big


def test_a_subscriber_that_does_not_read_is_owed_and_gets_all_later(
    hub: interlock.Hub, authority: Authority
) -> None:
    with (
        shaken(hub.tls_port, authority) as slow,
        Client(hub.url, timeout=20) as publisher,
    ):
        slow.sendall(command("SUBSCRIBE", "a"))
        received(slow, len(b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"))
        message = os.urandom(100_000)
        assert publisher.pipeline([("PUBLISH", "a", message)] * 100) == [1] * 100
        # Other connections are served meanwhile.
        with shaken(hub.tls_port, authority) as other:
            other.sendall(b"PING\r\n")
            assert received(other, 7) == b"+PONG\r\n"
        frame = b"*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$100000\r\n%s\r\n" % message
        for _ in range(100):
            assert received(slow, len(frame)) == frame


def test_a_worker_rests_while_a_socket_is_full(authority: Authority, pair: Pair) -> None:
    needs_hub()
    tls = settings(pair, port=0)
    with (
        interlock.Hub(port=0, workers=1, idle_timeout=1, tls=tls) as hub,
        shaken(hub.tls_port, authority) as slow,
        Client(hub.url, timeout=20) as publisher,
        opened(hub) as idle,
    ):
        slow.sendall(command("SUBSCRIBE", "a"))
        received(slow, len(b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"))
        assert publisher.pipeline([("PUBLISH", "a", b"x" * 100_000)] * 150) == [1] * 150
        used, begin = processor_seconds(os.getpid(), "hub-worker-0"), time.monotonic()
        # The idle one is closed after a second or two, in which the worker has nothing to do.
        assert to_the_end(idle) == b""
        share = (processor_seconds(os.getpid(), "hub-worker-0") - used) / (time.monotonic() - begin)
        assert share < 0.3


def test_a_command_of_one_byte_tls_records_is_understood(
    hub: interlock.Hub, authority: Authority
) -> None:
    with shaken(hub.tls_port, authority) as connection:
        for byte in command("ECHO", "word"):
            connection.sendall(bytes([byte]))
        assert received(connection, 10) == b"$4\r\nword\r\n"


def test_what_was_asked_before_the_end_is_done_though_a_password_is_looked_at(
    pair: Pair, authority: Authority
) -> None:
    needs_hub()
    user = {"name": "a", "passwords": [passwords.hashed("x")], "topics": ["*"]}
    with (
        interlock.Hub(port=0, tls=settings(pair, port=0), user=[user]) as hub,
        Client(f"redis://a:x@{hub.addresses[0]}", timeout=20) as subscriber,
        socket.create_connection(("127.0.0.1", hub.tls_port), 20) as plain,
    ):
        # Another password than the one that is remembered by now.
        hub.set({"user": [{**user, "name": "b"}, user]})
        subscriber.subscribe("t")
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cafile=str(authority.cert))
        tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                plain.sendall(outgoing.read())
                incoming.write(plain.recv(1 << 16))
        tls.write(command("AUTH", "b", "x") + command("PUBLISH", "t", "said"))
        with contextlib.suppress(ssl.SSLError):
            tls.unwrap()
        # In one piece with the word that this is all.
        plain.sendall(outgoing.read())
        found = subscriber.message(20)
        assert found is not None
        assert found.payload == b"said"


def test_with_an_authority_a_client_must_show_a_certificate_of_it(
    authority: Authority, pair: Pair, tmp_path: Path
) -> None:
    needs_hub()
    tls = settings(pair, client_ca=str(authority.cert))
    with interlock.Hub(port=0, tls=tls) as hub:
        assert hub.url.startswith("rediss://")
        ask(hub.port, authority, authority.sign("client"))
        for shown in (None, Authority(tmp_path, "other").sign("client")):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                ask(hub.port, authority, shown)
        # The client may know before the hub has counted.
        until(lambda: hub.info()["tls_errors"] == 2)
        assert hub.info()["total_commands_processed"] == 1


def test_who_speaks_tls_to_the_plain_port_is_told_and_closed(
    hub: interlock.Hub, authority: Authority
) -> None:
    with pytest.raises(ssl.SSLError), shaken(hub.port, authority):
        pass
    assert hub.info()["protocol_errors"] == 1


def test_who_speaks_plainly_to_the_tls_port_is_closed(hub: interlock.Hub) -> None:
    with socket.create_connection(("127.0.0.1", hub.tls_port), 20) as plain:
        plain.sendall(b"PING\r\n")
        assert to_the_end(plain)[:1] in ALERT
    assert hub.info()["tls_errors"] == 1


def test_noise_within_and_before_tls_ends_its_own_connection(
    hub: interlock.Hub, authority: Authority
) -> None:
    seed = seeds.seed()
    chance = random.Random(seed)
    with shaken(hub.tls_port, authority) as witness:
        for _ in range(60):
            with socket.create_connection(("127.0.0.1", hub.tls_port), 20) as noisy:
                head = b"\x16\x03\x01" if chance.random() < 0.5 else b""
                last(noisy, head + chance.randbytes(chance.randrange(1, 3000)))
            with shaken(hub.tls_port, authority) as noisy_inside:
                noisy_inside.sendall(b"\x80" + chance.randbytes(chance.randrange(3000)) + b"\r\n")
                with socket.socket(fileno=noisy_inside.detach()) as raw:
                    raw.settimeout(20)
                    last(raw, chance.randbytes(chance.randrange(1, 3000)))
        witness.sendall(b"PING\r\n")
        assert received(witness, 7) == b"+PONG\r\n"
    with Client(hub.url, timeout=20) as client:
        while hub.info()["connected_clients"] > 1:
            assert client.call("PING") == "PONG"


def test_a_handshake_that_never_ends_is_ended(pair: Pair) -> None:
    needs_hub()
    with (
        interlock.Hub(port=0, login_timeout=1, tls=settings(pair)) as hub,
        opened(hub) as silent,
    ):
        silent.sendall(b"\x16\x03\x01")
        assert to_the_end(silent)[:1] in ALERT
        assert hub.info()["login_timeouts"] == 1


def test_a_new_certificate_is_taken_without_a_restart(
    authority: Authority, pair: Pair, tmp_path: Path
) -> None:
    needs_hub()
    cert, key, config = (tmp_path / name for name in ("cert.pem", "key.pem", "hub.toml"))
    shutil.copy(pair.cert, cert)
    shutil.copy(pair.key, key)
    config.write_text(f'[tls]\ncert = "{cert}"\nkey = "{key}"\n')
    with interlock.Hub(config, port=0) as hub, shaken(hub.port, authority) as before:
        first = before.getpeercert(binary_form=True)
        other = authority.sign("next")
        shutil.copy(other.cert, cert)
        # The old key does not fit the new certificate: nothing changes.
        with pytest.raises(ConfigError, match="tls: key"):
            hub.reload()
        shutil.copy(other.key, key)
        hub.reload()
        with shaken(hub.port, authority) as after:
            assert after.getpeercert(binary_form=True) != first
        before.sendall(b"PING\r\n")
        assert received(before, 7) == b"+PONG\r\n", "who was there stays"


@pytest.mark.parametrize(
    ("tls", "expected"),
    [
        ({"key": "x"}, r'tls\.key is \'x\' .*allowed: "" without tls\.cert'),
        ({"cert": "x"}, r"tls\.key is '' .*together with tls\.cert"),
        ({"client_ca": "x"}, r'tls\.client_ca is \'x\' .*"" without tls\.cert'),
        ({"port": 7000}, r"tls\.port is 7000 .*-1 without tls\.cert"),
        ({"cert": "x", "key": "y", "port": 6399}, r"tls\.port is 6399 .*another port"),
    ],
)
def test_settings_that_do_not_go_together(tls: dict[str, object], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        read(given=from_arguments({"tls": tls}))


def test_files_that_are_not_there_or_are_no_certificates_are_named(
    pair: Pair,
) -> None:
    needs_hub()
    missing = {"cert": "/nowhere/none.pem", "key": str(pair.key)}
    with pytest.raises(ConfigError, match=r"tls\.cert is .*none\.pem.*No such file"):
        interlock.Hub(port=0, tls=missing).start()
    swapped = {"cert": str(pair.key), "key": str(pair.cert)}
    with pytest.raises(ConfigError, match="tls: cert: there is no certificate in it"):
        interlock.Hub(port=0, tls=swapped).start()


def test_a_bad_certificate_is_2_with_one_line(pair: Pair, tmp_path: Path) -> None:
    config = tmp_path / "hub.toml"
    config.write_text(f'[tls]\ncert = "/nowhere/none.pem"\nkey = "{pair.key}"\n')
    code, err = refused("--config", str(config), "--port", "0")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "none.pem" in err


def test_a_certificate_of_clients_guards_an_address_and_tls_alone_does_not(pair: Pair) -> None:
    host = {"host": "192.0.2.1"}
    with pytest.raises(ConfigError, match=r"host is '192\.0\.2\.1'.*tls\.client_ca"):
        read(given=from_arguments({**host, "tls": settings(pair)}))
    guarded = settings(pair, client_ca="ca.pem")
    assert read(given=from_arguments({**host, "tls": guarded}))["host"] == "192.0.2.1"
    # The plain port beside it would be open.
    with pytest.raises(ConfigError, match="host is"):
        read(given=from_arguments({**host, "tls": {**guarded, "port": 7000}}))
