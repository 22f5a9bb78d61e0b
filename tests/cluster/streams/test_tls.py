"""Logs over TLS on Kafka and RabbitMQ: with the file of the authority, and with a wrong one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.cluster.streams import StreamDenied, StreamUnavailable, open_log
from interlock.cluster.streams.kafka_settings import client_settings
from tests.cluster.streams.engines.kafka import Kafka
from tests.cluster.streams.engines.rabbitmq import Rabbitmq
from tests.cluster.streams.test_logs import read_all
from tests.hub.protocol.certificates import Authority, Pair
from tests.hub.servers import free_port

SLOW = pytest.mark.skipif(
    os.environ.get("INTERLOCK_STREAMS") != "all",
    reason="kafka and rabbitmq take their time: with INTERLOCK_STREAMS=all",
)


class RabbitmqOverTls(Rabbitmq):
    """One with a second listener, with TLS."""

    def __init__(self, folder: Path, pair: Pair) -> None:
        super().__init__(folder)
        self.secure = free_port()
        self._pair = pair

    def command(self) -> list[str]:
        settings = self._own / "tls.conf"
        # Its user may not go into pytest's folder.
        cert, key = (self._own / name for name in ("cert.pem", "key.pem"))
        cert.write_text(self._pair.cert.read_text())
        key.write_text(self._pair.key.read_text())
        settings.write_text(
            f"listeners.ssl.1 = 127.0.0.1:{self.secure}\n"
            f"ssl_options.certfile = {cert}\nssl_options.keyfile = {key}\n"
            "ssl_options.verify = verify_none\n"
        )
        setting = "RABBITMQ_CONFIG_FILE="
        return [
            f"{setting}{settings}" if word.startswith(setting) else word
            for word in super().command()
        ]

    def secure_url(self, ca: Path | None, password: str = "guest") -> str:
        """Return the URL with TLS, with the file of an authority."""
        query = f"?ca={ca}" if ca else ""
        return f"rabbitmqs+stream://guest:{password}@127.0.0.1:{self.secure}/{query}"


class KafkaOverTls(Kafka):
    """One with a second listener, with TLS and a user."""

    def __init__(self, folder: Path, pair: Pair) -> None:
        super().__init__(folder)
        self.secure = free_port()
        self.listener = f"SASL_SSL://127.0.0.1:{self.secure}"
        both = folder / "both.pem"
        both.write_text(pair.key.read_text() + pair.cert.read_text())
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        self.more = (
            f"ssl.keystore.type=PEM\nssl.keystore.location={both}\n"
            "sasl.enabled.mechanisms=PLAIN\nlistener.name.sasl_ssl.plain.sasl.jaas.config="
            f'{module} required user_node="node";\n'
        )

    def secure_url(self, ca: Path | None, password: str = "node") -> str:
        """Return the URL with TLS, with the file of an authority."""
        query = "sasl.mechanism=PLAIN" + (f"&ca={ca}" if ca else "&security.protocol=SASL_SSL")
        return f"kafka://node:{password}@127.0.0.1:{self.secure}?{query}"


Secure = RabbitmqOverTls | KafkaOverTls


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("right"), "right")


@pytest.fixture(params=[RabbitmqOverTls, KafkaOverTls])
def engine(request: pytest.FixtureRequest, tmp_path: Path, right: Authority) -> Iterator[Secure]:
    made: Secure = request.param(tmp_path, right.sign("engine"))
    made.start()
    yield made
    made.close()


@SLOW
@pytest.mark.watchdog(180)
def test_a_log_over_tls_works_or_its_error_says_what_to_do(
    engine: Secure, right: Authority, tmp_path: Path
) -> None:
    log = open_log(engine.secure_url(right.cert), "t", "dc", role="append")
    log.begin(b"0")
    log.append([b"1", b"2"])
    assert [one.data for one in read_all(log, "", 3)] == [b"0", b"1", b"2"]
    log.close()
    wrong = Authority(tmp_path, "wrong")
    for ca in (wrong.cert, None):
        log = open_log(engine.secure_url(ca), "t", "dc")
        with pytest.raises(StreamUnavailable, match=r"name the file of its authority with \?ca="):
            log.ends()
        log.close()
    log = open_log(engine.secure_url(right.cert, "wrong"), "t", "dc")
    with pytest.raises(StreamDenied, match="check the user and the password in the URL"):
        log.ends()
    log.close()


def test_the_file_of_an_authority_turns_tls_on_for_kafka(right: Authority) -> None:
    ca = str(right.cert)
    without_user = client_settings("f()", f"kafka://h:1?ca={ca}")
    assert without_user["security.protocol"] == "SSL"
    assert without_user["ssl.ca.location"] == ca
    with_user = client_settings("f()", f"kafka://u:p@h:1?ca={ca}&sasl.mechanism=PLAIN")
    assert with_user["security.protocol"] == "SASL_SSL"
    assert with_user["sasl.mechanism"] == "PLAIN"


@pytest.mark.parametrize("scheme", ["kafka://", "rabbitmqs+stream://", "tls://"])
def test_a_file_without_a_certificate_is_refused(
    scheme: str, right: Authority, tmp_path: Path
) -> None:
    (tmp_path / "empty.pem").write_text("")
    with pytest.raises(ValueError, match="which has no certificate"):
        open_log(f"{scheme}h:1?ca={tmp_path}/empty.pem", "t", "dc")
    with pytest.raises(FileNotFoundError):
        open_log(f"{scheme}h:1?ca={tmp_path}/none.pem", "t", "dc")


def test_a_file_of_an_authority_without_tls_is_refused_for_rabbitmq(right: Authority) -> None:
    with pytest.raises(ValueError, match=r"with TLS \?ca=FILE"):
        open_log(f"rabbitmq+stream://h:1/?ca={right.cert}", "t", "dc")
