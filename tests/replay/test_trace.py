"""Reading traces: what is understood, what is refused, and how it is named."""

import gzip
import io
import json
import sys
from pathlib import Path

import pytest

from interlock.replay.trace import Message, TraceError, parse, read
from tests.replay.traces import KEPT, written

REDIS = Path(__file__).resolve().parents[2] / "examples" / "data" / "redis-commits.jsonl.gz"


def test_a_line_becomes_a_message_with_its_keys_as_text(tmp_path: Path) -> None:
    trace = read(written(tmp_path / "small.jsonl", list(KEPT)))
    assert trace.name == "small.jsonl"
    assert trace.messages == [
        Message("one", ("a", "b")),
        Message("two", ("a",)),
        Message("3", ("7",), ("b", "c"), 1.5, {"sum": 10}),
        Message("four"),
    ]
    assert trace.keys() == {"a", "b", "c", "7"}


def test_gzip_is_recognised_by_content_and_not_by_name(tmp_path: Path) -> None:
    plain = written(tmp_path / "plain.gz", list(KEPT))
    packed = tmp_path / "packed.jsonl"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read(packed).messages == read(plain).messages


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_dash_reads_standard_input(pack: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(pack)
    given = io.BytesIO(pack(b'{"id": 1, "keys": "a"}\n'))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(given)))
    trace = read("-")
    assert trace.name == "standard input"
    assert trace.messages == [Message("1", ("a",))]


def test_the_redis_trace_is_as_its_readme_says() -> None:
    trace = read(REDIS)
    assert len(trace.messages) == 10_839
    assert len(trace.keys()) == 2_566
    assert sum(len(message.keys) > 1 for message in trace.messages) == 3_857
    assert sum(not message.keys for message in trace.messages) == 3
    assert max(len(message.keys) for message in trace.messages) == 403
    assert sum("src/server.c" in message.keys for message in trace.messages) == 899


def test_a_key_named_twice_or_in_both_counts_once_and_exclusively() -> None:
    message = parse(b'{"id": 1, "keys": ["a", 7, "a", "7"], "shared": ["b", "a", "b"]}')
    assert (message.keys, message.shared) == (("a", "7"), ("b",))


def test_a_line_without_its_end_and_empty_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(b'\n{"id": 1, "keys": []}\r\n  \n{"id": 2, "keys": []}')
    assert [message.id for message in read(path).messages] == ["1", "2"]


def test_an_empty_file_is_a_trace_of_no_messages(tmp_path: Path) -> None:
    assert read(written(tmp_path / "t", [])).messages == []


def test_unknown_fields_of_a_line_are_ignored() -> None:
    assert parse(b'{"id": 1, "keys": [], "author": {"x": 1}}') == Message("1")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"{", "not JSON: .* at column 2"),
        (b'{"id": "\xff", "keys": []}', "not UTF-8 at byte 9 of the line"),
        (b"[" * 100_000, "not JSON that can be read: nested too deeply"),
        (b'{"id": 1, "keys": [], "payload": NaN}', "NaN is not a JSON number"),
        (b"[1]", "the line is a list; allowed: one object"),
        (b"3", r"the line is a number \(3\); allowed: one object"),
        (b'{"keys": []}', "id is missing; allowed: str or int"),
        (b'{"id": null, "keys": []}', "id is null; allowed: str or int"),
        (b'{"id": 1.5, "keys": []}', r"id is a number \(1.5\); allowed: str or int"),
        (b'{"id": true, "keys": []}', "id is true or false; allowed: str or int"),
        (b'{"id": "\\ud800", "keys": []}', "id holds a lone surrogate"),
        (b'{"id": 1}', r"keys is missing; allowed: a key, a list of keys, or \[\] for none"),
        (b'{"id": 1, "keys": null}', "keys is null; allowed: str, int, or a list of them"),
        (b'{"id": 1, "keys": {"a": 1}}', "keys is an object; allowed: str, int, or a list"),
        (b'{"id": 1, "keys": false}', "keys is true or false; allowed"),
        (b'{"id": 1, "keys": ["a", 1.5]}', r"keys\[1\] is a number \(1.5\); allowed: str, int"),
        (b'{"id": 1, "keys": [["a"]]}', r"keys\[0\] is a list; allowed: str, int"),
        (b'{"id": 1, "keys": [true]}', r"keys\[0\] is true or false; allowed: str, int"),
        (b'{"id": 1, "keys": ""}', "keys is empty; allowed: 1 to 1,024 bytes"),
        (b'{"id": 1, "keys": [], "shared": [""]}', r"shared\[0\] is empty"),
        (b'{"id": 1, "keys": "\\udfff"}', "keys holds a lone surrogate; allowed: text of UTF-8"),
        (json.dumps({"id": 1, "keys": "k" * 1025}).encode(), "keys is 1,025 bytes; allowed: 1 to"),
        (
            json.dumps(
                {"id": 1, "keys": list(range(4000)), "shared": list(range(9000, 9097))}
            ).encode(),
            "4,097 keys; allowed: at most 4,096 in a message",
        ),
        (b'{"id": 1, "keys": [], "time": "now"}', "time is a string; allowed: a number of seconds"),
        (b'{"id": 1, "keys": [], "time": 1e999}', "time is too large"),
        (b'{"id": 1, "keys": [' + b"9" * 5000 + b"]}", "not JSON: |too many digits"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_a_bad_line_is_refused_with_what_is_wrong_and_what_is_allowed(
    line: bytes, complaint: str
) -> None:
    with pytest.raises(TraceError, match=complaint):
        parse(line)


def test_keys_at_the_limits_are_accepted() -> None:
    assert len(parse(json.dumps({"id": 1, "keys": "ä" * 512}).encode()).keys) == 1
    assert len(parse(json.dumps({"id": 1, "keys": list(range(4096))}).encode()).keys) == 4096


def test_a_bad_line_is_named_by_file_and_number(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"id": 1, "keys": []}\n\n{"id": 2}\n')
    with pytest.raises(TraceError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}, line 3: keys is missing")


def test_skipping_records_each_bad_line_and_keeps_the_others(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"id": 1, "keys": []}\nnothing\n{"id": 2, "keys": "a"}\n{"id": 1, "keys": []}')
    trace = read(path, skip_bad=True)
    assert [message.id for message in trace.messages] == ["1", "2"]
    assert len(trace.skipped) == 2
    assert trace.skipped[0].startswith(f"{path}, line 2: not JSON")
    assert trace.skipped[1] == f"{path}, line 4: id '1' is already on line 1"


def test_an_integer_id_and_its_text_are_the_same_id(tmp_path: Path) -> None:
    path = written(tmp_path / "t", [{"id": 1, "keys": []}, {"id": "1", "keys": []}])
    with pytest.raises(TraceError, match="line 2: id '1' is already on line 1"):
        read(path)


def test_a_line_over_the_size_limit_is_refused_and_can_be_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.replay.trace.LONGEST_LINE", 100)
    path = written(
        tmp_path / "t",
        [{"id": 1, "keys": []}, {"id": 2, "keys": [], "payload": "x" * 950}, {"id": 3, "keys": []}],
    )
    with pytest.raises(TraceError, match="line 2: longer than 100 bytes"):
        read(path)
    assert [message.id for message in read(path, skip_bad=True).messages] == ["1", "3"]


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_gzip_is_an_error_even_when_bad_lines_are_skipped(
    tmp_path: Path, damage: str
) -> None:
    packed = bytearray(REDIS.read_bytes())
    if damage == "cut":
        del packed[len(packed) // 2 :]
    else:
        packed[len(packed) // 2] ^= 0xFF
    path = tmp_path / "damaged.gz"
    path.write_bytes(packed)
    with pytest.raises(TraceError, match=r"damaged\.gz, after line \d+: damaged gzip"):
        read(path, skip_bad=damage == "cut")


def test_a_limit_reads_no_further_than_it_needs(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text('{"id": 1, "keys": []}\n{"id": 2, "keys": []}\nnothing\n')
    assert len(read(path, limit=2).messages) == 2


def test_a_recording_has_sequences_and_attempts(tmp_path: Path) -> None:
    file = tmp_path / "recorded.jsonl"
    lines = [
        {"id": "q/3", "keys": "a", "place": 3, "attempt": 1, "took": 0.5},
        {"id": "q/1", "keys": "a", "place": 1, "attempt": 1},
        {"id": "q/2", "keys": "a", "place": 2, "attempt": 1},
        {"id": "q/1", "keys": "a", "place": 1, "attempt": 2},
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [one.id for one in read(file).messages] == ["q/1", "q/2", "q/3"]
    assert [one.id for one in read(file, limit=2).messages] == ["q/1", "q/2"]
    assert read(file).messages[2].took == 0.5
    for wrong, error in (
        ({**lines[0], "place": 3}, "id 'q/3' is already on line 1"),
        ({"id": 9, "keys": [], "place": "x"}, "place is a string; allowed: a number"),
        ({"id": 9, "keys": [], "took": True}, "took is true or false; allowed: a number of sec"),
        ({"id": 9, "keys": [], "attempt": 1.5}, "attempt is a number .*; allowed: a whole number"),
    ):
        file.write_text("".join(json.dumps(line) + "\n" for line in [*lines[:1], wrong]))
        with pytest.raises(TraceError, match=error):
            read(file)
