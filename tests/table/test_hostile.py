"""Odd classes, numbers and moments: nothing of them crashes, hangs, or is done twice."""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest

from interlock import F32, F64, I64, U8, U32, U64, Row, RowBusy, SchemaMismatch, SharedTable, Size


class Wide(Row):
    byte: U8 = 0
    count: U32 = 0
    large: U64 = 0
    signed: I64 = 0
    narrow: F32 = 0.0
    score: F64 = 0.0
    name: Annotated[str, Size(8)] = ""


def with_column(column: str, value: Any) -> Wide:
    made: Any = Wide
    row: Wide = made(**{column: value})
    return row


@pytest.fixture
def name() -> Iterator[str]:
    chosen = f"hostile-{uuid.uuid4().hex}"
    yield chosen
    SharedTable.remove(chosen)


@pytest.fixture
def table(name: str) -> SharedTable[Wide]:
    return SharedTable.open(name, Wide, capacity=1000)


@contextlib.contextmanager
def held(table: SharedTable[Wide]) -> Iterator[None]:
    """The row "held" is held by a live writer that does not continue: this thread."""
    table["held"] = Wide(count=1)
    with table.path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        # The first to write has number 1. The key is the fifth word of its slot, the state is the
        # first: bits 5 to 16 are the owner, 1 to 4 why it holds the slot (1: one word is changed).
        at = memory.find(b"held\0\0\0\0") - 4 * 8
        state = int.from_bytes(memory[at : at + 8], "little")
        assert state & 0x1FFFF == 1
        memory[at : at + 8] = (state | 1 << 5 | 1 << 1).to_bytes(8, "little")
        try:
            yield
        finally:
            memory[at : at + 8] = (state + (1 << 17)).to_bytes(8, "little")


@pytest.mark.parametrize("option", ["gc", "weakref", "dict", "cache_hash", "array_like"])
def test_a_row_class_may_use_any_struct_option(name: str, option: str) -> None:
    class Odd(Row, **{option: option != "gc"}):
        count: U32 = 0
        name: Annotated[str, Size(4)] = ""

    table = SharedTable.open(name, Odd, capacity=10)
    table["k"] = Odd(count=7, name="four")
    rows = [table["k"] for _ in range(1000)]
    gc.collect()
    assert rows == [Odd(count=7, name="four")] * 1000
    del rows
    gc.collect()
    assert table.get_many(["k"]) == [Odd(count=7, name="four")]


@pytest.mark.parametrize(
    ("column", "before", "by", "after"),
    [
        ("large", 0, 2**63, 2**63),
        ("large", 0, 2**64 - 1, 2**64 - 1),
        ("large", 2**64 - 1, -(2**64 - 1), 0),
        ("signed", -(2**63), 2**64 - 1, 2**63 - 1),
        ("signed", 2**63 - 1, -(2**64 - 1), -(2**63)),
    ],
)
def test_an_increment_larger_than_its_column_works_if_the_sum_fits(
    table: SharedTable[Wide], column: str, before: int, by: int, after: int
) -> None:
    table["k"] = with_column(column, before)
    assert table.incr("k", column, by) == after == table.get_column("k", column)


@pytest.mark.parametrize("by", [2**64 + 5, 2**100 + 5, 2**200 + 5, -(2**200) + 5, -(2**127) + 5])
@pytest.mark.parametrize("column", ["byte", "count", "large", "signed"])
def test_a_wrapping_sum_wraps_at_the_width_of_its_column(
    table: SharedTable[Wide], column: str, by: int
) -> None:
    table["k"] = with_column(column, 2)
    with pytest.raises(OverflowError):
        table.incr("k", column, by)
    assert table.incr("k", column, by, overflow="wrap") == 7
    limit = table.incr("k", column, by, overflow="saturate")
    lowest = -(2**63) if column == "signed" else 0
    highest = {"byte": 2**8, "count": 2**32, "large": 2**64, "signed": 2**63}[column] - 1
    assert limit == (highest if by > 0 else lowest)


def test_an_int_too_large_for_a_float_is_refused_with_a_clear_error(
    table: SharedTable[Wide],
) -> None:
    table["k"] = Wide(score=1.5)
    for column in ("score", "narrow"):
        with pytest.raises(ValueError, match=f"column {column} is an int beyond any float"):
            table.set_column("k", column, 10**400)
        with pytest.raises(ValueError, match="beyond any float"):
            table["k"] = with_column(column, -(10**5000))
        with pytest.raises(OverflowError, match="beyond any float"):
            table.incr("k", column, 10**400)
    assert table["k"] == Wide(score=1.5)


def test_several_threads_may_pop_items_of_one_handle(table: SharedTable[Wide]) -> None:
    rows = {f"key{number}": Wide(count=number) for number in range(1000)}
    table.update(rows)
    popped: list[dict[str, Wide]] = [{} for _ in range(4)]
    failed: list[BaseException] = []
    started = threading.Barrier(4)

    def pop(into: dict[Any, Wide]) -> None:
        started.wait()
        try:
            while True:
                key, row = table.popitem()
                into[key] = row
        except KeyError:
            pass
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=pop, args=(into,)) for into in popped]
    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switching)
    assert failed == []
    assert sum(map(len, popped)) == 1000
    assert {key: row for some in popped for key, row in some.items()} == rows
    assert len(table) == 0


def test_popitem_finds_an_item_an_iteration_has_passed(
    table: SharedTable[Wide],
) -> None:
    for _ in range(3):
        table.update({f"key{number}": Wide(count=number) for number in range(50)})
        for number in range(25):
            table.popitem()
            table[f"new{number}"] = Wide()
        popped = {table.popitem()[0] for _ in range(50)}
        assert len(popped) == 50
        with pytest.raises(KeyError):
            table.popitem()


def test_a_batch_that_had_to_wait_sets_no_row_twice(table: SharedTable[Wide], name: str) -> None:
    waiting = SharedTable.attach(name, Wide, patience=60)
    rows = {"first": Wide(count=10), "held": Wide(count=99)}
    batch = threading.Thread(target=waiting.set_many, args=(rows,))
    with held(table):
        batch.start()
        while "first" not in table or table.get_column("first", "count") != 10:
            time.sleep(0.001)
        assert table.incr("first", "count") == 11
        # Until it has waited in vain a few times, and begun anew.
        batch.join(0.3)
        assert batch.is_alive()
    batch.join()
    assert table.get_column("held", "count") == 99
    assert table.get_column("first", "count") == 11


def test_a_signal_ends_a_resize_that_waits(table: SharedTable[Wide], name: str) -> None:
    patient = SharedTable.attach(name, Wide, patience=10)
    table["rest"] = Wide(count=5)
    # A process that a shell has started in the background ignores the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with held(table):
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            patient.resize(5000)
        timer.join()
        # It resumes the processes that it had frozen.
        assert table.incr("rest", "count") == 6
        table["new"] = Wide()
        assert table.capacity == 1000
        with pytest.raises(RowBusy):
            SharedTable.attach(name, Wide, patience=0).resize(5000)
    signal.signal(signal.SIGINT, before)
    assert patient.resize(5000).moved == 3
    assert table.capacity == 5000 and table["rest"].count == 6


def test_a_table_says_whether_opening_it_made_it(name: str) -> None:
    made = SharedTable.open(name, Wide, capacity=10)
    assert made.created
    assert not SharedTable.open(name, Wide, capacity=10).created
    assert not SharedTable.attach(name).created
    made.resize(100)
    assert made.created
    made.close()
    assert made.created
    SharedTable.remove(name)
    assert SharedTable.open(name, Wide, capacity=10).created


def test_opening_a_table_with_another_key_size_is_refused(name: str) -> None:
    SharedTable.open(name, Wide, capacity=10)
    with pytest.raises(SchemaMismatch, match=r"key\[64\]"):
        SharedTable.open(name, Wide, capacity=10, key_size=64)


def test_the_memory_of_a_slot_is_reported(name: str) -> None:
    table = SharedTable.open(name, Wide, capacity=100_000)
    stats = table.stats()
    assert 0 <= stats.bytes - stats.slots * stats.slot_bytes < 1024 * 1024
    # At least the row, the key and what belongs to both.
    assert stats.slot_bytes > 32 + len(table.get_bytes("k", b"") or b"") + 40


def test_an_invalid_default_is_refused_when_the_table_is_opened(name: str) -> None:
    class Surrogate(Row):
        text: Annotated[str, Size(8)] = "\ud800"

    class Narrow(Row):
        score: F32 = 1e300

    class Beyond(Row):
        score: F64 = 10**400

    for row, words in ((Surrogate, "surrogate"), (Narrow, "beyond F32"), (Beyond, "beyond F64")):
        with pytest.raises(ValueError, match=words):
            SharedTable.open(name, row, capacity=10)
    with pytest.raises(FileNotFoundError):
        SharedTable.attach(name)


def test_the_truth_value_of_a_table_does_not_count_its_rows(
    table: SharedTable[Wide], monkeypatch: pytest.MonkeyPatch
) -> None:
    def count(_: object) -> int:
        raise AssertionError("counted")

    monkeypatch.setattr(SharedTable, "__len__", count)
    assert not table
    table["k"] = Wide()
    assert table
    table.expire("k", 0)
    assert not table


def test_open_creates_or_finds_a_table_that_others_resize_and_remove(name: str) -> None:
    """Each step of one may come between two of another."""
    failed: list[BaseException] = []

    def go_on(number: int) -> None:
        try:
            for _ in range(100):
                table = SharedTable.open(name, Wide, capacity=50)
                # A table that was resized and removed before this handle followed is gone.
                with contextlib.suppress(FileNotFoundError):
                    table["k"] = Wide()
                    if number == 1:
                        table.resize(60)
                if number == 0:
                    SharedTable.remove(name)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=go_on, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    SharedTable.remove(name)
    assert not list(Path("/dev/shm").glob(f".interlock.{name}.*"))


@pytest.mark.parametrize("word", [0xE703_7ED1_A0B4_28DB, 0xA076_1D64_78BD_642F, 0, 2**64 - 1])
def test_chosen_keys_do_not_all_hash_into_one_bucket(name: str, word: int) -> None:
    table = SharedTable.open(name, Wide, capacity=6_000, key_size=32, on_full="raise")
    fixed = word.to_bytes(8, "little")
    for n in range(1, 1_001):
        number = n.to_bytes(8, "big")
        table[fixed + number] = table[number + fixed] = table[number * 2 + fixed + b"tail"] = Wide()
    assert len(table) == 3_000
