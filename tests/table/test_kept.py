"""Tables that a node of a cluster keeps: who else has one open reads it, and cannot write to it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import interlock
from interlock import U32, InterlockError, Row, SharedTable
from interlock.errors import TableKept
from tests.hub.servers import needs_hub
from tests.hub.tables.tables import new_name


class Kept(Row):
    a: U32
    b: U32 = 0


@pytest.fixture
def name() -> Iterator[str]:
    chosen = new_name()
    yield chosen
    SharedTable.remove(chosen)


WRITES: tuple[Callable[[SharedTable[Kept]], object], ...] = (
    lambda table: table.set("k", Kept(a=1)),
    lambda table: table.__setitem__("k", Kept(a=1)),
    lambda table: table.__delitem__("k"),
    lambda table: table.pop("k"),
    lambda table: table.popitem(),
    lambda table: table.set_many({"k": Kept(a=1)}),
    lambda table: table.patch("k", a=1),
    lambda table: table.incr("k", "a"),
    lambda table: table.set_column("k", "a", 1),
    lambda table: table.compare_and_set("k", "a", 5, 1),
    lambda table: table.expire("k", 1),
    lambda table: table.persist("k"),
    lambda table: table.setdefault("new", Kept(a=1)),
    lambda table: table.clear(),
)


def test_a_table_kept_by_a_node_is_read_only_for_other_handles(name: str) -> None:
    other = SharedTable.open(name, Kept, capacity=100)
    other["k"] = Kept(a=5)
    node = SharedTable.open(name, Kept, capacity=100, keeper=True)
    for table in (other, SharedTable.attach(name, Kept)):
        for write in WRITES:
            with pytest.raises(TableKept, match=f"^the table {name} is kept by a node of a clus"):
                write(table)
        assert table["k"] == Kept(a=5)
        assert (table.get_column("k", "a"), len(table), "k" in table) == (5, 1, True)
        assert table.ttl("k") is None
        assert table.touch("k")
        assert dict(table.items()) == {"k": Kept(a=5)}
    assert issubclass(TableKept, InterlockError)
    node["k"] = Kept(a=6)
    node.set_many({"l": Kept(a=7)})
    assert (other["k"], other["l"], node.pop("l")) == (Kept(a=6), Kept(a=7), Kept(a=7))
    node._keep_no_more()
    other["k"] = Kept(a=8)
    assert node["k"] == Kept(a=8)


def test_a_kept_table_stays_read_only_after_a_resize_and_after_its_node_ends(
    name: str, tmp_path: Path
) -> None:
    script = textwrap.dedent(f"""
        from interlock import SharedTable
        from tests.table.test_kept import Kept
        node = SharedTable.open({name!r}, Kept, capacity=100, keeper=True)
        node["k"] = Kept(a=1)
        print("kept", flush=True)
        input()
    """)
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "kept\n"
        with pytest.raises(TableKept, match=f"by a node, process {process.pid}:"):
            SharedTable.open(name, Kept, capacity=100, keeper=True)
        other = SharedTable.attach(name, Kept)
        other.resize(500)
        for table in (other, SharedTable.attach(name, Kept)):
            with pytest.raises(TableKept, match="here it can be read"):
                table["k"] = Kept(a=2)
        with pytest.raises(TableKept, match="each node has a table of its own"):
            SharedTable.open(name, Kept, capacity=100, keeper=True)
        process.kill()
    with pytest.raises(TableKept):
        other["k"] = Kept(a=2)
    node = SharedTable.open(name, Kept, capacity=100, keeper=True)
    node["k"] = Kept(a=3)
    other.resize(100)
    node["k"] = Kept(a=4)
    assert other["k"] == Kept(a=4)
    in_file = SharedTable.open(tmp_path / "table", Kept, capacity=100)
    SharedTable.open(tmp_path / "table", Kept, capacity=100, keeper=True)
    with pytest.raises(TableKept, match=f"the table {tmp_path / 'table'} is kept"):
        in_file["k"] = Kept(a=1)


def test_a_hub_reads_a_kept_table_and_refuses_writes_with_the_reason(name: str) -> None:
    needs_hub()
    SharedTable.open(name, Kept, capacity=100, keeper=True)["k"] = Kept(a=1)
    table = {"name": name, "columns": Kept, "capacity": 100}
    with interlock.Hub(port=0, table=[table]) as hub, interlock.connect(hub.url) as client:
        served = client.table(name, Kept)
        assert served["k"] == Kept(a=1)
        with pytest.raises(TableKept, match="write through a client of a node's hub"):
            served["k"] = Kept(a=2)
