"""Habits of users of dict: CPython's own tests of a mapping, and what they leave out."""

from __future__ import annotations

import contextlib
import copy
import gc
import pickle
import threading
import unittest
import uuid
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from interlock import U32, Row, SharedTable, TableFull


class Count(Row):
    count: U32 = 0


class Counts(SharedTable[Count]):
    def total(self) -> int:
        return sum(row.count for row in self.values())


@pytest.fixture
def names() -> Iterator[list[str]]:
    made: list[str] = []
    yield made
    for name in made:
        SharedTable.remove(name)


@pytest.fixture
def table(names: list[str]) -> SharedTable[Count]:
    return opened(names)


def opened(names: list[str], capacity: int = 1000) -> SharedTable[Count]:
    names.append(f"mapping-{uuid.uuid4().hex}")
    return SharedTable.open(names[-1], Count, capacity=capacity)


def test_cpythons_tests_of_a_mapping_pass(names: list[str]) -> None:
    mapping_tests = pytest.importorskip("test.mapping_tests", reason="a Python without its tests")

    class Protocol(mapping_tests.BasicTestMappingProtocol):  # type: ignore[misc, name-defined]
        type2test = None
        rows = {f"key{number}": Count(count=number) for number in range(4)}  # noqa: RUF012

        def __init__(self, method: str) -> None:
            unittest.TestCase.__init__(self, method)
            self.reference = {key: self.rows[key] for key in ("key0", "key1", "key2")}
            self.inmapping = {"key2": self.rows["key2"]}
            self.other = {"key3": self.rows["key3"]}

        def _reference(self) -> dict[str, Count]:
            return dict(self.reference)

        def _empty_mapping(self) -> SharedTable[Count]:
            return opened(names, 10)

        def _full_mapping(self, rows: dict[str, Count]) -> SharedTable[Count]:
            table = self._empty_mapping()
            table.update(rows)
            return table

        def test_update(self) -> None:
            """Left out: it stores a value that is not a row, to see another exception."""

    suite = unittest.defaultTestLoader.loadTestsFromTestCase(Protocol)
    result = unittest.TestResult()
    suite.run(result)
    assert result.testsRun >= 10
    assert result.errors + result.failures == []


def test_update_accepts_what_dict_update_accepts(table: SharedTable[Count]) -> None:
    one, two, three = (Count(count=number) for number in (1, 2, 3))
    table.update({"a": one}, b=two)
    table.update([("b", three), (7, one)])
    table |= {b"c": two}
    table |= [("d", one)]
    table.update()
    other = {"keys": lambda: ["e"]}
    assert table == {"a": one, "b": three, 7: one, "c": two, "d": one}
    table.update(table)
    assert len(table) == 5
    given: Any
    for given in (5, {"a": 5}, [("a",)], [5], other):
        with pytest.raises((TypeError, ValueError)):
            table.update(given)
    assert table["a"] == one


def test_a_table_equals_a_mapping_with_the_same_rows(
    table: SharedTable[Count], names: list[str]
) -> None:
    assert table == {}
    table.update({7: Count(count=1), "a": Count()})
    same = {"7": Count(count=1), b"a": Count()}
    assert table == same and same == table and table == dict(table)
    assert table == SharedTable.attach(names[0], Count)
    for other in ({}, {7: Count()}, {7: Count(count=1)}, {**same, "b": Count()}, {1.5: 1, "a": 2}):
        assert table != other and other != table
    assert table != {7: Count(count=1), "7": Count(count=1), "a": Count()}

    class Longer(dict[Any, Count]):
        def items(self) -> Any:
            raise AssertionError("rows are compared though there are more of them")

    assert table != Longer({**same, "b": Count()})
    assert table != [] and table != None  # noqa: E711
    with pytest.raises(TypeError):
        hash(table)


def test_views_are_sets_as_those_of_dict(table: SharedTable[Count]) -> None:
    table.update({"a": Count(count=1), "b": Count(count=2)})
    assert table.keys() & {"a", "c"} == {"a"}
    assert table.keys() | {"c"} == {"a", "b", "c"}
    assert table.keys() == {"a", "b"} and {"a", "b", "c"} > table.keys()
    assert ("a", Count(count=1)) in table.items()
    assert ("a", Count(count=2)) not in table.items() and ("c", Count()) not in table.items()
    assert table.items() - {("a", Count(count=1))} == {("b", Count(count=2))}
    assert Count(count=2) in table.values() and Count() not in table.values()
    keys = table.keys()
    for key, told in ((None, False), (1.5, False), (True, False), ("", False), ("x" * 2000, False)):
        assert (key in keys) is told and ((key, Count()) in table.items()) is told
    others: list[Any] = ["\ud800", 10**5000, -1, (1, 2), b"", frozenset()]
    for other in others:
        assert other not in keys and (other, Count()) not in table.items()
    odd: list[Any] = [("a",), "a", "ab", 5, None, ["a", Count(count=1)], ("a", Count(count=1), 1)]
    for item in odd:
        assert item not in table.items()
    assert table.keys().isdisjoint([None, 1.5]) and table.items().isdisjoint(odd)
    assert table.keys() & [None, 1.5, "a"] == {"a"} and {"a", None} - table.keys() == {None}
    assert table.keys() | [None] == {"a", "b", None} and table.keys() < {"a", "b", None}
    assert table.keys() != {"a", None} and not table.keys() >= {"a", None}
    unhashable: Any = []
    for view, item in ((keys, unhashable), (table.items(), (unhashable, Count()))):
        with pytest.raises(TypeError, match="unhashable"):
            assert item in view
    assert ("a", unhashable) not in table.items() and unhashable not in table.values()
    table.pop("a")
    assert list(keys) == ["b"] and len(keys) == 1
    unordered: Any = table
    with pytest.raises(TypeError):
        reversed(unordered)


def test_rows_deleted_meanwhile_fail_no_comparison_or_copy(
    table: SharedTable[Count], names: list[str]
) -> None:
    stays = {f"stays:{number}": Count() for number in range(50)}
    table.update(stays)
    other, ended = opened(names), threading.Event()

    def come_and_go() -> None:
        while not ended.is_set():
            table.set_many({f"goes:{number}": Count() for number in range(50)})
            for number in range(50):
                table.pop(f"goes:{number}")

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        for _ in range(100):
            other.clear()
            other.update(table)
            assert stays.items() <= dict(other.items()).items()
            assert table != {"other": Count()}
    finally:
        ended.set()
        thread.join()
    assert table == stays


def test_popitem_returns_each_row_to_one_caller(table: SharedTable[Count]) -> None:
    table.set_many({number: Count(count=number) for number in range(1000)})
    taken: list[int] = []

    def take() -> None:
        handle = SharedTable.attach(table.path, Count)
        while True:
            try:
                taken.append(handle.popitem()[1].count)
            except KeyError:
                return

    threads = [threading.Thread(target=take) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list(range(1000))
    with pytest.raises(KeyError, match="the table is empty"):
        table.popitem()
    table["later"] = Count()
    assert table.popitem() == ("later", Count())
    # A row that was read before another process took it is not returned.
    table.update(a=Count(), b=Count(), c=Count())
    first, second, third = table
    other = SharedTable.attach(table.path, Count)
    assert other.popitem()[0] == first
    table.pop(second)
    assert other.popitem()[0] == third


def test_popitem_continues_where_it_stopped(names: list[str]) -> None:
    table = opened(names, 20_000)
    table.set_many({number: Count() for number in range(20_000)})
    first = table.popitem()
    scan = table._popping
    for _ in range(19_999):
        table.popitem()
    assert table._popping is scan and first[0] not in table


def test_rows_written_during_an_iteration_do_not_end_it(table: SharedTable[Count]) -> None:
    table.set_many({number: Count() for number in range(500)})
    seen = []
    for at, key in enumerate(table):
        seen.append(key)
        table.pop(str(at), None)
        table[f"new:{at}"] = Count()
    assert len(seen) == len(set(seen))
    assert {str(number) for number in range(500)} - set(seen) <= {str(n) for n in range(len(seen))}


def test_a_row_moved_during_an_iteration_is_yielded_once(names: list[str]) -> None:
    names.append(f"mapping-{uuid.uuid4().hex}")
    table = SharedTable.open(names[0], Count, capacity=20_000, on_full="raise")
    table.set_many({number: Count() for number in range(19_000)})
    scan = table.scan(batch=1)
    keys = [next(scan)[0] for _ in range(15_000)]
    # Rows move when all places of a new one are taken: beyond the capacity.
    for number in range(19_000, 23_000):
        with contextlib.suppress(TableFull):
            table[number] = Count()
    assert table.stats().moves > 5
    keys += [key for key, _ in scan]
    assert len(keys) == len(set(keys)) and set(keys) >= {str(number) for number in range(19_000)}


@pytest.mark.parametrize(
    ("batch", "error"), [(0, ValueError), (-1, ValueError), (2**70, ValueError), (True, TypeError)]
)
def test_a_batch_without_rows_is_refused_at_once(
    table: SharedTable[Count], batch: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match=r"scan\(\): batch is "):
        table.scan(batch=batch)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, SharedTable.copy])
def test_a_table_cannot_be_copied(table: SharedTable[Count], copied: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"`dict\(table.items\(\)\)` takes its rows"):
        copied(table)


def test_arguments_that_are_not_rows_or_keys_are_refused(table: SharedTable[Count]) -> None:
    rows: Any
    for rows in ([("a", Count())], 5, None):
        with pytest.raises(TypeError, match=r"set_many\(\): rows is .*; allowed: a mapping"):
            table.set_many(rows)
    keys: Any
    for keys in ("abc", b"abc", 5):
        with pytest.raises(TypeError, match=r"get_many\(\): keys is .*; allowed: an iterable"):
            table.get_many(keys)


def test_calling_a_table_class_is_refused_in_favour_of_open_and_attach(
    table: SharedTable[Count],
) -> None:
    for words in ((), ("presence",), ("presence", Count)):
        with pytest.raises(TypeError, match=r"Counts\(\) cannot be called; Counts.open\("):
            Counts(*words)


def test_an_infinite_ttl_means_no_expiry(table: SharedTable[Count], names: list[str]) -> None:
    for ttl in (float("inf"), 1e300, 10**400):
        table.set("a", Count(), ttl=ttl)
        assert table.ttl("a") is None
        table.expire("a", 100)
        assert table.expire("a", ttl) and table.ttl("a") is None
    names.append(f"mapping-{uuid.uuid4().hex}")
    assert SharedTable.open(names[-1], Count, capacity=1, ttl=float("inf")).default_ttl is None


USES: dict[str, Callable[[SharedTable[Count]], Any]] = {
    "len": len, "bool": bool, "iter": list, "items": lambda table: table.items(),
    "getitem": lambda table: table["a"], "in": lambda table: "a" in table,
    "setitem": lambda table: table.__setitem__("a", Count()),
    "delitem": lambda table: table.__delitem__("a"), "==": lambda table: table == {},
    "get": lambda table: table.get("a"), "incr": lambda table: table.incr("a", "count"),
    "patch": lambda table: table.patch("a", count=1), "ttl": lambda table: table.ttl("a"),
    "get_many": lambda table: table.get_many(["a"]), "reset": lambda table: table.reset(),
    "update": lambda table: table.update({}), "clear": lambda table: table.clear(),
    "stats": lambda table: table.stats(), "scan": lambda table: table.scan(),
    "export": lambda table: table.export(), "pickle": pickle.dumps,
    "arrow": lambda table: table.__arrow_c_stream__(), "enter": lambda table: table.__enter__(),
}  # fmt: skip


def test_every_call_on_a_closed_table_raises(names: list[str]) -> None:
    names.append(f"mapping-{uuid.uuid4().hex}")
    with Counts.open(names[0], Count, capacity=10) as table:
        assert isinstance(table, Counts) and not table.closed
        table["a"] = Count(count=5)
        begun, items = iter(table), table.items()
    assert table.closed and isinstance(table, Counts)
    assert repr(table).startswith("<closed Counts '/dev/shm/interlock.mapping-")
    for use in (*USES.values(), lambda _: list(items), lambda table: table.total()):
        with pytest.raises(ValueError, match="was closed"):
            use(table)
    with pytest.raises(ValueError, match="was closed"):
        next(begun)
    table.close()
    # Others continue, and so may this process.
    with SharedTable.attach(names[0], Count) as other:
        assert other["a"] == Count(count=5)
    closed = {name for name in vars(type(table)) if not name.startswith("_")}
    public = {name for name in dir(SharedTable) if not name.startswith("_")}
    assert closed >= public - {
        "attach", "capacity", "copy", "created", "default_ttl", "key_size", "mode", "on_full",
        "open", "path", "remove", "row", "schema",
    }  # fmt: skip


def test_a_table_is_freed_with_its_last_reference(names: list[str]) -> None:
    table = opened(names)
    table.set_many({number: Count() for number in range(500)})
    there = weakref.ref(table)
    begun = iter(table.items())
    next(begun)
    views = [table.keys(), table.export(), begun]
    table.popitem()
    del table, begun
    gc.collect()
    assert there() is not None
    del views
    gc.collect()
    assert there() is None
