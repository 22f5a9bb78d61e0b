"""Settings of Kafka: those of a client, by its URL, and those of the topic of a log."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from interlock.client.url import without_password
from interlock.cluster.streams.looped import trusting

LOG = {
    "message.timestamp.type": ("LogAppendTime", "the times of entries are Kafka's"),
    "cleanup.policy": ("delete", "no entry may be dropped because another has its key"),
    "retention.ms": ("-1", "a node may need an entry of any age"),
    "retention.bytes": ("-1", "a node may need any entry"),
    "unclean.leader.election.enable": ("false", "acknowledged entries must not be lost"),
}
"""Settings of the topic of a log, and why."""
READING = {
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "fetch.message.max.bytes": 8_000_000,
    "fetch.wait.max.ms": 100,
}


def client_settings(call: str, url: str) -> dict[str, Any]:
    """Return the settings of librdkafka that a URL says.

    Raises:
        ValueError: it says none, or its file `ca` has no certificate.
        OSError: that file cannot be read.
    """
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    ca = query.pop("ca", "")
    if not parts.netloc or parts.path.strip("/"):
        raise ValueError(
            f"{call}: url is {without_password(url)!r}; allowed: "
            f"kafka://USER:PASSWORD@HOST:PORT, several with commas between, ?ca=FILE for TLS "
            f"with the authority of the certificates, and settings of librdkafka behind ?"
        )
    credentials, _, hosts = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    settings: dict[str, Any] = {"bootstrap.servers": hosts}
    if user:
        settings |= {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": unquote(user),
            "sasl.password": unquote(password),
        }
    if ca:
        trusting(ca)
        protocol = "SASL_SSL" if user else "SSL"
        settings |= {"security.protocol": protocol, "ssl.ca.location": ca}
    return settings | query
