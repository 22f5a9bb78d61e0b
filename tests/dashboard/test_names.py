"""Names that look like something else: whatever a queue is called, it is found, and no other."""

from __future__ import annotations

import uuid
from typing import Any

import httpx
import pytest

from interlock.client.faces.client import Client
from interlock.dashboard.paths import decoded, encoded
from interlock.dashboard.refusal import Refusal
from tests.dashboard.conftest import Page

NAMES = (
    "a/b", "/", "//", "..", ".", "../..", "a%2Fb", "%", "%zz", "a b", "a+b", "ünï/ço∂é", "=a", "=",
    "a?b=c", "a#b", "a;b", "a\\b", "<script>", "\r\nX: y", "\x00", "\u202e", "a&b", "😀" * 128,
)  # fmt: skip


def test_a_name_survives_encoding_in_a_path() -> None:
    for name in NAMES:
        written = encoded(name)
        assert "/" not in written and written.isascii() and written not in (".", "..")
        assert decoded(written) == name


def test_hostile_names_survive_encoding(page: Page, client: Client) -> None:
    for name in NAMES:
        # In one test, for each takes a round trip or two only.
        if len(name.encode()) > 480:
            full = name
        else:
            full = name if name in (".", "..") else name + uuid.uuid4().hex[:6]
        queue = client.queue(full, bytes)
        id = queue.put(b"mine", keys="k")
        place = f"api/queues/{encoded(full)}"
        found = ask(page, place)
        assert found["name"] == full
        assert ask(page, f"{place}/messages/{id}")["payload"]["text"] == "mine"
        assert page.post(f"queues/{encoded(full)}/pause") == {"changed": True}
        assert page.post(f"queues/{encoded(full)}/resume") == {"changed": True}
        assert page.get(f"queues/{encoded(full)}/dead")["items"] == []
        queue.drop(force=True)


def ask(page: Page, path: str) -> Any:
    target = httpx.URL(page.service.url).copy_with(raw_path=b"/" + path.encode())
    answer = page.http.send(httpx.Request("GET", target))
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_an_invalid_name_is_refused(page: Page) -> None:
    for segment in ("", "%7B", "a%7Db", "x" * 513, "%FF", "=%", "=_w"):
        page.get(f"queues/{segment}/messages", 400)


def test_invalid_base64_is_refused() -> None:
    assert decoded("=Li4") == ".."
    for segment in ("=*", "=a", "=Li4=="):
        with pytest.raises(Refusal):
            decoded(segment)
