"""Certificates for the tests, made by openssl: an authority, and what it has signed."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.hub.servers import program


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM files."""

    cert: Path
    key: Path


class Authority:
    """Signs certificates."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._name = name
        self.cert = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        openssl("req", "-x509", *NEW_KEY, "-keyout", self._key, "-out", self.cert, "-days", "2",
                "-subj", f"/CN={name}")  # fmt: skip

    def sign(
        self, name: str, *, names: str = "IP:127.0.0.1,DNS:localhost", days_ago: int = 0
    ) -> Pair:
        """A certificate for 127.0.0.1 and localhost, or other names, made some days ago for two."""
        stem = self._folder / f"{self._name}-{name}"
        cert, key, request, ext = (
            stem.with_suffix(ending) for ending in (".pem", ".key", ".csr", ".ext")
        )
        ext.write_text(f"subjectAltName={names}\n")
        openssl("req", *NEW_KEY, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        openssl("x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self._key,
                "-CAcreateserial", "-out", cert, "-days", "2", "-extfile", ext,
                days_ago=days_ago)  # fmt: skip
        return Pair(cert, key)


def openssl(*words: str | Path, days_ago: int = 0) -> None:
    then = [program("faketime"), f"{days_ago} days ago"] if days_ago else []
    done = subprocess.run(
        [*then, program("openssl"), *words], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr


NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
