"""The client where a server wants to know who it is, or speaks TLS: with Redis, which does both."""

from __future__ import annotations

import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.hub.client import Client, Published
from interlock.hub.resp import ReplyError
from tests.hub.servers import free_port, missing, program, redis_server


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a Redis with a password, and with a user of her own."""
    flags = ["--requirepass", "pa ss@", "--user", "ann", "on", ">secret", "~*", "&*", "+@all"]
    with redis_server(tmp_path_factory.mktemp("guarded"), *flags) as (_, port):
        yield port


def test_the_credentials_of_the_url_say_who_it_is(guarded: int) -> None:
    for login, user in ((":pa%20ss%40", "default"), ("ann:secret", "ann")):
        with Client(f"redis://{login}@127.0.0.1:{guarded}", name="me") as client:
            assert client.call("ACL", "WHOAMI") == user.encode()
            assert client.call("CLIENT", "GETNAME") == b"me"


@pytest.mark.parametrize(
    ("login", "code"), [("", "NOAUTH"), ("ann:wrong@", "WRONGPASS"), ("nobody@", "WRONGPASS")]
)
def test_wrong_credentials_are_the_servers_error(guarded: int, login: str, code: str) -> None:
    with pytest.raises(ReplyError) as refused:
        Client(f"redis://{login}127.0.0.1:{guarded}")
    assert refused.value.code == code


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost that nobody trusts unasked, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    found, key = folder / "hub.crt", folder / "hub.key"
    command = [program("openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes"]
    command += ["-keyout", str(key), "-out", str(found), "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(command, check=True, capture_output=True, timeout=50)
    return found, key


@pytest.fixture(scope="module")
def encrypted(
    tmp_path_factory: pytest.TempPathFactory, certificate: tuple[Path, Path]
) -> Iterator[int]:
    """The TLS port of a Redis."""
    port = free_port()
    found, key = map(str, certificate)
    flags = ["--tls-port", str(port), "--tls-cert-file", found, "--tls-key-file", key]
    flags += ["--tls-ca-cert-file", found, "--tls-auth-clients", "no"]
    try:
        with redis_server(tmp_path_factory.mktemp("encrypted"), *flags):
            yield port
    except AssertionError as error:
        missing(f"this Redis has no TLS: {error}")


def test_rediss_speaks_tls_and_trusts_the_authority_that_is_named(
    encrypted: int, certificate: tuple[Path, Path]
) -> None:
    url = f"rediss://localhost:{encrypted}?ca={certificate[0]}"
    with Client(url) as subscriber, Client(url) as publisher:
        subscriber.subscribe("a")
        assert subscriber.message(0) is None
        large = b"x" * 3_000_000
        assert publisher.publish("a", large) == 1
        assert subscriber.message(20) == Published(b"a", large)
        assert subscriber.message(0) is None


def test_a_certificate_that_nobody_vouches_for_or_of_another_host_is_refused(
    encrypted: int, certificate: tuple[Path, Path]
) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        Client(f"rediss://localhost:{encrypted}")
    with pytest.raises(ssl.SSLCertVerificationError):
        Client(f"rediss://127.0.0.1:{encrypted}?ca={certificate[0]}")


def test_a_name_without_a_file_is_connected_to() -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("")  # the kernel chooses a name
        listener.listen()
        name = listener.getsockname()[1:].decode()
        with pytest.raises(TimeoutError):
            Client(f"unix:@{name}", timeout=0.01)
        listener.accept()[0].close()
