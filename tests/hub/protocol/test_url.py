"""Addresses and URLs: read into their parts, and shown without a password."""

from __future__ import annotations

import pytest

from interlock.hub.url import Address, parse, without_password


@pytest.mark.parametrize(
    ("address", "parsed"),
    [
        ("127.0.0.1:7", Address(host="127.0.0.1", port=7)),
        ("localhost", Address(host="localhost", port=6399)),
        ("redis://h:7/0", Address(host="h", port=7)),
        ("interlock://h:7", Address(host="h", port=7)),
        ("redis://[::1]:7", Address(host="::1", port=7)),
        ("redis://ann:p%40ss@h", Address(host="h", port=6399, user="ann", password="p@ss")),
        ("redis://:pass@h", Address(host="h", port=6399, password="pass")),
        ("redis://ann@h", Address(host="h", port=6399, user="ann")),
        ("rediss://h:7", Address(host="h", port=7, tls=True)),
        ("rediss://h?ca=/a%20b.crt", Address(host="h", port=6399, tls=True, ca="/a b.crt")),
        ("unix:/a/b", Address(path="/a/b")),
        ("unix:///a%20b", Address(path="/a b")),
        ("unix:///a@b", Address(path="/a@b")),
        ("unix:b", Address(path="b")),
        ("unix:@b", Address(path="@b")),
        ("unix://ann:pass@/a%20b", Address(path="/a b", user="ann", password="pass")),
    ],
)
def test_an_address_is_read(address: str, parsed: Address) -> None:
    assert parse(address) == parsed


@pytest.mark.parametrize(
    "address",
    ["", "h:x", "h:70000", "http://h", "redis://h/1", "unix:", "unix://", "unix://a:b@",
     "redis://h?ca=x", "rediss://h?cert=x", "rediss://h?ca", "redis://h#x"],
)  # fmt: skip
def test_a_wrong_address_is_told(address: str) -> None:
    with pytest.raises(ValueError, match=r"allowed: HOST:PORT"):
        parse(address)


@pytest.mark.parametrize(
    "address",
    ["redis://ann:secret@h:x", "ann:secret@h:x", ":secret@h:x", "unix://ann:secret@",
     "redis://ann:sec/secret@h", "redis://ann:x@secret@h:x"],
)  # fmt: skip
def test_no_password_is_shown(address: str) -> None:
    assert "secret" not in without_password(address)
    with pytest.raises(ValueError, match=r"\*\*\*@") as told:
        parse(address)
    assert "secret" not in str(told.value)


@pytest.mark.parametrize(
    ("address", "credentials", "shown"),
    [
        ("h:7", None, "h:7"),
        ("redis://:pass@[::1]:7", ("default", "pass"), "[::1]:7"),
        ("rediss://ann:pass@h:7", ("ann", "pass"), "rediss://h:7"),
        ("redis://ann@h:7", ("ann", ""), "h:7"),
        ("unix:/a", None, "unix:/a"),
    ],
)
def test_what_auth_takes_and_what_people_see(
    address: str, credentials: tuple[str, str] | None, shown: str
) -> None:
    assert parse(address).credentials == credentials
    assert str(parse(address)) == shown


def test_only_the_password_of_a_url_is_hidden() -> None:
    assert without_password("redis://h:7") == "redis://h:7"
    assert without_password("redis://ann:x@h:7") == "redis://***@h:7"
