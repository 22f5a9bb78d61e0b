"""The picture: what is written is what was run, whatever ids and keys contain."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from interlock import timeline
from interlock.explanation import printable
from interlock.replay.picture import STATIC, columns, write
from interlock.replay.run import Record, Run
from tests.hub.servers import missing
from tests.replay.browser import CHROMIUM, NAMES, opened

HOSTILE = [
    "</script><script>document.title = 'taken'</script>",
    "<!--<script>",
    "<img src=x onerror=\"document.title = 'taken'\">",
    "]]>&amp;\"'",
    "{{script}} \\1 \\g<0>",
    "line\nbreak\u2028\x00\x1b",
    "\ud800 alone",
    "日本 🔑",
]


def a_run(records: list[Record], workers: int = 2, title: str = "a run") -> Run:
    seconds = max((record.end for record in records), default=0.0)
    return Run(title, workers, seconds, seconds / 2, records)


def random_run(seed: int, messages: int, workers: int, keys: int) -> Run:
    chance = random.Random(seed)
    clock = [0.0] * workers
    records = []
    for index in range(messages):
        held = [f"key {n}" for n in chance.sample(range(keys), chance.choice([0, 1, 1, 2, 5]))]
        split = chance.randint(0, len(held))
        worker = chance.randrange(workers)
        start = clock[worker] + chance.random() * 1e-3
        clock[worker] = end = start + chance.expovariate(1000)
        records.append(
            Record(
                index=index,
                id=f"m{index}",
                keys=tuple(held[:split]),
                shared=tuple(held[split:]),
                worker=worker,
                put_time=chance.random() * start,
                start=start,
                end=end,
                waited_for=chance.choice([None, chance.randrange(index)]) if index else None,
            )
        )
    return a_run(records, workers)


def three_in_a_row(keys: list[str] | None = None) -> Run:
    """Worker 0 handles one, two and three behind one another; worker 1 handles another key."""
    first, *more = keys or ["a"]
    return a_run(
        [
            Record(0, "one", (first,), (), 0, 0.0, 0.0, 4.0, None),
            Record(1, "other", ("b", *more), (), 1, 0.0, 0.0, 9.0, None),
            Record(2, "two", (first,), (), 0, 0.0, 4.0, 8.0, 0),
            Record(3, "three", (first,), (), 0, 1.0, 8.0, 12.0, 2),
        ]
    )


def unpacked(text: str) -> list[int]:
    """The numbers that `pack` packed, read by the format's description alone."""
    values, value, shift = [], 0, 0
    for byte in base64.b64decode(text):
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            values.append(value)
            value, shift = 0, 0
    assert shift == 0
    return values


def signed_back(value: int) -> int:
    return -(value + 1) // 2 if value % 2 else value // 2


def records_back(data: dict[str, Any]) -> list[Record]:
    names = ["worker", "put", "wait", "handled", "width", "holds", "behind"]
    column = {name: unpacked(data[name]) for name in names}
    assert len(column["holds"]) == data["holdCount"]
    records, put, at = [], 0, 0
    for index, message in enumerate(data["ids"]):
        put += signed_back(column["put"][index])
        start = put + signed_back(column["wait"][index])
        end = start + column["handled"][index]
        holds = column["holds"][at : at + column["width"][index]]
        at += len(holds)
        behind = column["behind"][index]
        records.append(
            Record(
                index=index,
                id=message,
                keys=tuple(data["keys"][hold // 2] for hold in holds if hold % 2 == 0),
                shared=tuple(data["keys"][hold // 2] for hold in holds if hold % 2),
                worker=column["worker"][index],
                put_time=put * data["unit"],
                start=start * data["unit"],
                end=end * data["unit"],
                waited_for=index - behind if behind else None,
            )
        )
    return records


def chain(records: list[Record], index: int) -> list[int]:
    found = [index]
    while (before := records[found[-1]].waited_for) is not None:
        found.append(before)
    return found


class Elements(HTMLParser):
    """A page's elements by name, with what stands inside them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), []))

    def handle_data(self, data: str) -> None:
        if self.found:
            self.found[-1][2].append(data)

    def text(self, tag: str, **attributes: str) -> str:
        [inside] = [
            inside
            for name, given, inside in self.found
            if name == tag and attributes.items() <= given.items()
        ]
        return "".join(inside)


@pytest.mark.parametrize("seed", range(5))
def test_the_columns_give_back_every_record(seed: int) -> None:
    run = random_run(seed, messages=700, workers=9, keys=40)
    back = records_back(json.loads(json.dumps(columns(run))))
    for was, now in zip(run.records, back, strict=True):
        assert (was.index, was.id, was.keys, was.shared, was.worker, was.waited_for) == (
            now.index,
            now.id,
            now.keys,
            now.shared,
            now.worker,
            now.waited_for,
        )
        times = (now.put_time, now.start, now.end)
        assert times == pytest.approx((was.put_time, was.start, was.end), abs=2e-7)


def test_times_stay_exact_to_a_step_over_a_long_run() -> None:
    week = 604_800.0
    far = Record(1, "far", (), (), 0, week, week + 1.25e-6, week + 3.5e-6, None)
    near = Record(0, "near", (), (), 0, 0.0, 0.0, 1e-7, None)
    [_, back] = records_back(columns(a_run([near, far])))
    assert back.put_time == pytest.approx(week, abs=2e-7)
    assert back.end == pytest.approx(week + 3.5e-6, abs=2e-7)


def test_what_a_message_waited_for_leads_back_to_the_root() -> None:
    run = random_run(3, messages=400, workers=4, keys=9)
    back = records_back(columns(run))
    for index in range(len(back)):
        assert chain(back, index) == chain(list(run.records), index)
    assert chain(records_back(columns(three_in_a_row())), 3) == [3, 2, 0]


@pytest.mark.parametrize("waited_for", [1, 2, -1])
def test_a_message_that_waited_for_no_earlier_one_is_refused(waited_for: int) -> None:
    first = Record(0, "one", ("a",), (), 0, 0, 0, 1, None)
    second = Record(1, "two", ("a",), (), 0, 0, 1, 2, waited_for)
    with pytest.raises(ValueError, match=rf"records\[1\]\.waited_for is {waited_for}; allowed"):
        columns(a_run([first, second]))


def test_the_page_holds_hostile_ids_and_keys_as_data_alone(tmp_path: Path) -> None:
    records = [
        Record(n, text, (text,), (), 0, 0.0, n, n + 1.0, None) for n, text in enumerate(HOSTILE)
    ]
    path = tmp_path / "run.html"
    write(path, a_run(records, title="".join(HOSTILE)))
    page = Elements(path.read_text(encoding="utf-8"))
    data = json.loads(page.text("script", id="run"))
    assert data["ids"] == HOSTILE
    assert data["keys"] == HOSTILE
    assert [tag for tag, _, _ in page.found].count("script") == 2
    assert not [tag for tag, _, _ in page.found if tag == "img"]


def test_the_page_fetches_nothing_and_allows_only_its_own_parts(tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    write(path, three_in_a_row())
    text = path.read_text(encoding="utf-8")
    page = Elements(text)
    policy = next(str(given["content"]) for _, given, _ in page.found if "http-equiv" in given)
    for part in ("style", "script"):
        [inside] = re.findall(rf"<{part}>(.*?)</{part}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{part}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';")
    assert "://" not in text
    assert not [given for _, given, _ in page.found if given.keys() & {"src", "href"}]


def test_every_name_that_a_script_imports_is_exported_by_the_other() -> None:
    imports = re.compile(r'^import \{([^}]*)\} from "\./([^"]+)";$', re.MULTILINE)
    scripts = {one.name: one.read_text() for one in STATIC.glob("*.js")}
    scripts |= {f"timeline/{one.name}": one.read_text() for one in timeline.STATIC.glob("*.js")}
    seen = 0
    for name, text in scripts.items():
        for names, other in imports.findall(text):
            there = scripts[other if other in scripts else f"timeline/{other}"]
            for one in filter(None, re.split(r"[,\s]+", names)):
                seen += 1
                assert re.search(rf"^export (const|let|function|class) {one}\b", there, re.M), (
                    f"{name} imports {one} from {other}"
                )
    assert seen > 100


def test_a_script_is_joined_with_its_imports_each_once_before_their_users(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text(
        'import { b } from "./b.js";\nimport { percent } from "./timeline/text.js";\nb(percent);\n'
    )
    (tmp_path / "b.js").write_text(
        'import {\n  c,\n} from "./c.js";\nexport function b() { c(); }\n'
    )
    (tmp_path / "c.js").write_text('import { b } from "./b.js";\nexport const c = () => b;\n')
    text = timeline.joined(tmp_path / "a.js")
    assert "import" not in text and "\nexport" not in text
    order = ["const c = () => b;", "function b() { c(); }", "const percent =", "b(percent);"]
    assert sorted(order, key=text.index) == order
    assert all(text.count(line) == 1 for line in order)


def test_both_drawings_have_the_colours_of_the_timeline(tmp_path: Path) -> None:
    for name in ("run.svg", "run.html"):
        write(tmp_path / name, three_in_a_row())
    drawing, page = ((tmp_path / name).read_text() for name in ("run.svg", "run.html"))
    for colours in timeline.theme():
        wanted = {"back", "band", "line", "ink", "soft", *(f"colour-{n}" for n in range(10))}
        assert wanted <= colours.keys()
        assert all(colours[name] in drawing and colours[name] in page for name in wanted)


@pytest.mark.parametrize("name", ["run.png", "run", "run.html.gz"])
def test_another_suffix_is_refused_by_name_and_nothing_is_written(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(
        ValueError, match=rf"'{re.escape(name)}' ends in .*; allowed: \.html, \.svg"
    ):
        write(tmp_path / name, three_in_a_row())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["run.SVG", "run.HTML"])
def test_a_suffix_may_be_in_capitals_and_the_file_be_there_already(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text("before")
    write(tmp_path / name, three_in_a_row())
    assert "before" not in (tmp_path / name).read_text(encoding="utf-8")[:200]


@pytest.mark.parametrize("name", ["run.svg", "run.html"])
def test_a_run_without_messages_gives_a_picture(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, a_run([]))
    assert "a run" in (tmp_path / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("messages", "workers", "keys"),
    [(40, 1, 8), (5_000, 16, 50), (40_000, 300, 9_000), (40_000, 32, 12)],
)
def test_the_still_drawing_does_not_grow_with_the_run(
    tmp_path: Path, messages: int, workers: int, keys: int
) -> None:
    path = tmp_path / "run.svg"
    write(path, random_run(1, messages, workers, keys))
    shapes = list(ElementTree.parse(path).iter())
    assert len(shapes) <= 2_000
    assert path.stat().st_size <= 500_000


def test_the_still_drawing_shows_a_block_for_each_message_that_is_wide_enough(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.svg"
    write(path, three_in_a_row())
    paths = [shape for shape in ElementTree.parse(path).iter() if shape.tag.endswith("path")]
    blocks = [shape for shape in paths if shape.get("class", "").startswith("c")]
    # Each of the four messages once on its worker's track and once on its key's.
    assert sum(shape.get("d", "").count("z") for shape in blocks) == 8
    texts = [shape.text for shape in ElementTree.parse(path).iter() if shape.tag.endswith("text")]
    assert {"worker 0", "worker 1", "a", "b"} <= set(texts)


def test_the_still_drawing_holds_hostile_keys_as_text(tmp_path: Path) -> None:
    records = [
        Record(n, text, (text,), (), 0, 0.0, n, n + 1.0, None) for n, text in enumerate(HOSTILE)
    ]
    path = tmp_path / "run.svg"
    write(path, a_run(records, title="".join(HOSTILE)))
    shapes = list(ElementTree.parse(path).iter())
    kinds = {shape.tag.rpartition("}")[2] for shape in shapes}
    assert kinds == {"svg", "title", "desc", "style", "rect", "text", "path"}
    assert "日本 🔑" in [shape.text for shape in shapes]


@pytest.fixture
def browser() -> None:
    if CHROMIUM is None:
        missing(f"no browser: none of {', '.join(NAMES)} is on PATH")


needs_chromium = pytest.mark.usefixtures("browser")


@needs_chromium
@pytest.mark.watchdog(180)
def test_a_click_on_a_message_shows_what_it_waited_for(tmp_path: Path) -> None:
    write(tmp_path / "run.html", three_in_a_row())
    with opened(tmp_path / "run.html", tmp_path / "profile") as page:
        assert "Click a message" in page.value("panel.innerText")
        page.click("#tracks", across=0.95, down=0.2)  # worker 0 is above, three comes last
        assert page.value("panel.querySelector('h1').innerText") == "three"
        shown = page.value("[...document.querySelectorAll('.chain li b')].map((b) => b.innerText)")
        assert shown == ["two", "one"]
        figures = (
            "[...document.querySelectorAll('.pairs dt')]"
            ".map((term) => [term.innerText, term.nextSibling.innerText])"
        )
        assert dict(page.value(figures)) == {
            "worker": "0",
            "put at": "1 s",
            "started at": "8 s",
            "waited": "7 s",
            "handled": "4 s",
        }
        page.press("w")
        assert page.value("panel.querySelector('h1').innerText") == "two"
        page.press("p")
        assert page.value("panel.querySelector('h1').innerText") == "one"
        assert "no message" in page.value("said.textContent")
        page.press("Escape")
        assert "Click a message" in page.value("panel.innerText")


@needs_chromium
@pytest.mark.watchdog(180)
def test_by_key_the_busiest_is_on_top_and_a_search_finds_keys_and_ids(tmp_path: Path) -> None:
    write(tmp_path / "run.html", three_in_a_row())
    with opened(tmp_path / "run.html", tmp_path / "profile") as page:
        page.click("[data-view=key]")
        assert page.value("document.querySelector('[aria-checked=true]').innerText") == "By key"
        page.click("#tracks", across=0.05, down=0.06)  # the name of the first track
        assert page.value("panel.querySelector('h1').innerText") == "a"
        for sought, found in [("oth", "other"), ("b", "b"), ("three", "three")]:
            page.value(f"search.focus(), search.value = {sought!r}, search.oninput()")
            page.value("search.onkeydown(new KeyboardEvent('keydown', {key: 'Enter'}))")
            assert page.value("panel.querySelector('h1').innerText") == found


@needs_chromium
@pytest.mark.watchdog(180)
def test_in_a_browser_hostile_keys_stay_text(tmp_path: Path) -> None:
    # A lone surrogate is not text to a browser: it shows U+FFFD for it, so it is left out here.
    keys = [text for text in HOSTILE if "\ud800" not in text]
    write(tmp_path / "run.html", three_in_a_row(keys))
    with opened(tmp_path / "run.html", tmp_path / "profile") as page:
        page.click("#tracks", across=0.4, down=0.33)  # worker 1
        assert page.value("panel.querySelector('h1').innerText") == "other"
        shown = page.value("[...document.querySelectorAll('.chip b')].map((b) => b.textContent)")
        assert shown == ["b", *(printable(key, keep="\n") for key in keys[1:])]
        page.value("search.focus(), search.value = 'script', search.oninput()")
        assert page.value("document.title") == "a run"
        assert page.value("document.images.length") == 0


@needs_chromium
@pytest.mark.watchdog(240)
def test_a_hundred_thousand_messages_open_and_are_gathered_until_zoomed_in(tmp_path: Path) -> None:
    write(tmp_path / "run.html", random_run(7, messages=100_000, workers=16, keys=3_000))
    with opened(tmp_path / "run.html", tmp_path / "profile") as page:
        assert page.value("document.documentElement.dataset.openedMs") is not None
        assert "100,000" in page.value("figures.innerText")
        page.click("#tracks", across=0.5, down=0.3)
        assert "under the pointer" in page.value("panel.innerText")
        page.press("z")
        for _ in range(2):
            page.value("new Promise(requestAnimationFrame)")
        span = page.value("document.getElementById('span').innerText")
        assert re.fullmatch(r"[\d.]+ (ms|µs) from [\d.]+ (s|ms)", span)
