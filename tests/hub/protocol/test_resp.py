"""The reader of replies: any cut of the stream gives the same, and nothing is taken unbounded."""

from __future__ import annotations

import math
import random

import pytest

from interlock.hub.resp import INCOMPLETE, ProtocolError, Push, Reader, ReplyError, command
from tests import seeds

REPLIES: list[tuple[bytes, object]] = [
    (b"+OK\r\n", "OK"),
    (b":-7\r\n", -7),
    (b"$5\r\na\r\nbc\r\n", b"a\r\nbc"),
    (b"$0\r\n\r\n", b""),
    (b"$-1\r\n", None),
    (b"*-1\r\n", None),
    (b"_\r\n", None),
    (b"*0\r\n", []),
    (b"*2\r\n*1\r\n:1\r\n$1\r\nx\r\n", [[1], b"x"]),
    (b"%2\r\n+a\r\n:1\r\n$1\r\nb\r\n*0\r\n", {"a": 1, b"b": []}),
    (b"~2\r\n:1\r\n:1\r\n", [1, 1]),
    (b"#t\r\n", True),
    (b"#f\r\n", False),
    (b",1.5\r\n", 1.5),
    (b",inf\r\n", math.inf),
    (b"(" + b"9" * 40 + b"\r\n", int("9" * 40)),
    (b"=7\r\ntxt:abc\r\n", b"abc"),
    (b">2\r\n+message\r\n:1\r\n", Push(["message", 1])),
    (b"|1\r\n+ttl\r\n:1\r\n:5\r\n", 5),
]


def read_all(reader: Reader) -> list[object]:
    found = []
    while (reply := reader.next()) is not INCOMPLETE:
        found.append(reply)
    return found


@pytest.mark.parametrize(("data", "reply"), REPLIES, ids=[repr(data) for data, _ in REPLIES])
def test_a_reply_is_complete_at_its_last_byte_and_not_before(data: bytes, reply: object) -> None:
    reader = Reader()
    for at in range(len(data)):
        assert reader.next() is INCOMPLETE
        reader.feed(data[at : at + 1])
    found = reader.next()
    assert (found, type(found)) == (reply, type(reply))
    assert reader.next() is INCOMPLETE


def test_any_cut_of_the_stream_gives_the_same() -> None:
    seed = seeds.seed()
    chance = random.Random(seed)
    for _ in range(200):
        chosen = chance.choices(REPLIES, k=chance.randrange(1, 9))
        data = b"".join(part for part, _ in chosen)
        reader = Reader()
        found = []
        while data:
            size = chance.randrange(1, 20)
            reader.feed(data[:size])
            data = data[size:]
            found += read_all(reader)
        assert found == [reply for _, reply in chosen]


def test_a_long_reply_is_looked_through_once() -> None:
    count, packets = 2_000, 500
    data = b"*2\r\n%%1\r\n+a\r\n:1\r\n*%d\r\n" % count + b"*1\r\n:7\r\n" * count
    looked = 0

    class Counting(Reader):
        def _line(self) -> bytes:
            nonlocal looked
            looked += 1
            return super()._line()

    reader, size = Counting(), -(-len(data) // packets)
    for at in range(0, len(data), size):
        assert reader.next() is INCOMPLETE
        reader.feed(data[at : at + size])
    assert reader.next() == [{"a": 1}, [[7]] * count]
    # Each line once, and the one that a packet ends in once more.
    assert looked < 2 * count + 2 * packets


def test_an_error_is_given_and_knows_its_code() -> None:
    reader = Reader()
    reader.feed(b"-NOAUTH no\r\n!7\r\nERR bad\r\n")
    first, second = read_all(reader)
    assert isinstance(first, ReplyError)
    assert isinstance(second, ReplyError)
    assert (first.code, str(second)) == ("NOAUTH", "ERR bad")


@pytest.mark.parametrize(
    "data",
    [
        b"what\r\n",
        b"\r\n",
        b":1x\r\n",
        b":\r\n",
        b"$-2\r\n",
        b"$+1\r\n",
        b"*-2\r\n",
        b"%-1\r\n",
        b"#x\r\n",
        b",abc\r\n",
        b"_x\r\n",
        b"$1\r\nab\r\n",
        b"$101\r\n",
        b"*101\r\n",
        b":" + b"1" * 500 + b"\r\n",
        b"*1\r\n" * 40,
        b"|1\r\n+a\r\n+b\r\n" * 40,
        b"+" + b"x" * 70000,
    ],
    ids=lambda data: repr(data[:12]),
)
def test_what_is_not_the_protocol_is_an_error_and_never_a_wait(data: bytes) -> None:
    reader = Reader(longest=100)
    reader.feed(data)
    with pytest.raises(ProtocolError):
        read_all(reader)


def test_a_command_is_an_array_of_strings() -> None:
    assert (
        command("SET", b"\xff", 1, 2.5)
        == b"*4\r\n$3\r\nSET\r\n$1\r\n\xff\r\n$1\r\n1\r\n$3\r\n2.5\r\n"
    )
    assert command("SET", "ä") == b"*2\r\n$3\r\nSET\r\n$2\r\n\xc3\xa4\r\n"
    for wrong in (True, None, ["x"]):
        with pytest.raises(TypeError, match=r"allowed: str, bytes, int, float"):
            command("SET", wrong)  # type: ignore[arg-type]
