"""A run as a static drawing, of a size that does not grow with the run.

Tracks by worker are above tracks of the busiest keys. A message wide enough to be seen is a block;
narrower ones are gathered into columns whose height is the fraction of that time in which the track
was busy, so that 10,000 messages and 10 million give a file of much the same size.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from xml.sax.saxutils import escape

from interlock import timeline
from interlock.explanation import printable
from interlock.replay.run import Record, Run

WIDTH = 1200
GUTTER = 190
RIGHT = 24
PLOT = WIDTH - GUTTER - RIGHT
MOST_WORKER_TRACKS = 32
MOST_KEY_TRACKS = 12
MOST_COLUMNS = 7_000
"""Columns of all tracks together; with `MOST_STACKED` it bounds the file."""
MOST_STACKED = 4
"""Colours shown separately within one column; the smallest beyond them count as other."""

COLOURS = 8
OTHER, NO_KEY = 8, 9

Span = tuple[float, float, int]
"""The start and the end of a message, in units of the drawing, and the number of its colour."""


@dataclass(frozen=True)
class Track:
    """One row of the drawing."""

    name: str
    figure: str
    spans: Sequence[Span]
    lanes: int = 1
    """Number of workers in this track, so that a column is full when all of them are busy."""
    overlaps: bool = False
    """True if messages may overlap, so that a block could hide another."""


def drawing(run: Run) -> str:
    """Return the whole SVG file as text: at most 2,000 elements, whatever the run's size."""
    busiest = _busiest(run.records)
    span = max(run.seconds, max((record.end for record in run.records), default=0.0), 1e-6)
    scale = PLOT / span
    by_worker = _worker_tracks(run, scale, busiest)
    by_key = _key_tracks(run, scale, busiest)
    tracks = len(by_worker) + len(by_key)
    sheet = _Sheet(scale, column=max(2, -(-PLOT * tracks // MOST_COLUMNS)))
    sheet.section("By worker", by_worker, 26 if len(by_worker) <= 16 else 18)
    sheet.legend("by busiest key", _key_names(run.records, busiest))
    if by_key:
        sheet.y += 30
        sheet.section("Busiest keys", by_key, 20)
        workers = [(number, f"worker {number}") for number in range(min(COLOURS, run.workers))]
        sheet.legend("by worker" if run.workers <= COLOURS else "by worker, in turn", workers)
    height = sheet.y + 16
    words = f"{len(run.records):,} messages on {run.workers} workers in {_lasting(run.seconds)}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" role="img" aria-labelledby="title words">',
            f'<title id="title">{escape(printable(run.title))}</title>',
            f'<desc id="words">{words}</desc>',
            f"<style>{_style(sheet.column)}</style>",
            f'<rect class="back" width="{WIDTH}" height="{height}"/>',
            f'<text class="head" x="24" y="36">{escape(_fitted(run.title, 110))}</text>',
            *_figures(run, len(busiest)),
            *sheet.shapes,
            "</svg>\n",
        ]
    )


def _held(record: Record) -> tuple[str, ...]:
    return record.keys + record.shared


def _busiest(records: Iterable[Record]) -> dict[str, tuple[float, int]]:
    """Return each key's handled seconds and messages, the busiest key first."""
    seconds: dict[str, float] = defaultdict(float)
    messages: dict[str, int] = defaultdict(int)
    for record in records:
        for key in _held(record):
            seconds[key] += record.end - record.start
            messages[key] += 1
    order = sorted(seconds, key=lambda key: (-seconds[key], -messages[key], key))
    return {key: (seconds[key], messages[key]) for key in order}


def _worker_tracks(run: Run, scale: float, busiest: Iterable[str]) -> list[Track]:
    rank = {key: min(place, OTHER) for place, key in enumerate(busiest)}
    # More workers than tracks: neighbours share one, and it is full when all of them are busy.
    together = -(-run.workers // MOST_WORKER_TRACKS)
    spans: dict[int, list[Span]] = defaultdict(list)
    for record in run.records:
        colour = min((rank[key] for key in _held(record)), default=NO_KEY)
        span = (record.start * scale, record.end * scale, colour)
        spans[record.worker // together].append(span)
    tracks = []
    for number in range(-(-run.workers // together)):
        first = number * together
        last = min(first + together, run.workers) - 1
        lanes = last - first + 1
        busy = sum(end - start for start, end, _ in spans[number]) / PLOT / lanes
        name = f"worker {first}" if first == last else f"workers {first} to {last}"
        tracks.append(Track(name, f"{busy:.0%}", spans[number], lanes, lanes > 1))
    return tracks


def _key_tracks(run: Run, scale: float, busiest: dict[str, tuple[float, int]]) -> list[Track]:
    shown = list(busiest)[:MOST_KEY_TRACKS]
    spans: dict[str, list[Span]] = {key: [] for key in shown}
    read: set[str] = set()
    for record in run.records:
        span = (record.start * scale, record.end * scale, record.worker % COLOURS)
        for key in _held(record):
            if key in spans:
                spans[key].append(span)
        read.update(record.shared)
    return [Track(key, f"{busiest[key][1]:,}", spans[key], overlaps=key in read) for key in shown]


class _Sheet:
    """The shapes drawn so far, from the top down."""

    def __init__(self, scale: float, column: int) -> None:
        self.scale = scale
        self.column = column
        self.y = 112
        self.shapes: list[str] = []

    def section(self, title: str, tracks: Sequence[Track], tall: int) -> None:
        """Draw one group of tracks with its time axis."""
        add = self.shapes.append
        add(f'<text class="strong" x="24" y="{self.y + 10}">{escape(title)}</text>')
        top = self.y + 20
        bottom = top + tall * len(tracks)
        for y in range(top, bottom, 2 * tall):
            add(f'<rect class="band" x="{GUTTER}" y="{y}" width="{PLOT}" height="{tall}"/>')
        for at in _marks(PLOT / self.scale):
            x = round(GUTTER + at * self.scale) + 0.5
            add(f'<path class="line" d="M{x} {top - 5}V{bottom}"/>')
            add(f'<text class="soft middle" x="{x}" y="{top - 10}">{_lasting(at)}</text>')
        for row, track in enumerate(tracks, 1):
            foot = top + tall * row
            y = foot - tall // 2 + 4
            add(f'<text x="24" y="{y}">{escape(_fitted(track.name, 19))}</text>')
            add(f'<text class="soft end" x="{GUTTER - 10}" y="{y}">{track.figure}</text>')
            self.shapes += _track(track, foot - 2, tall - 4, self.column)
        self.y = bottom + 12

    def legend(self, title: str, entries: Sequence[tuple[int, str]]) -> None:
        """Draw the legend of the colours in one line."""
        add = self.shapes.append
        add(f'<text class="soft" x="24" y="{self.y + 9}">{escape(title)}</text>')
        wide = (PLOT + RIGHT - 4) / max(COLOURS, len(entries))
        for place, (colour, name) in enumerate(entries):
            x = GUTTER + place * wide
            add(f'<rect class="c{colour}" x="{x:.1f}" y="{self.y}" width="9" height="9"/>')
            add(f'<text class="soft" x="{x + 13:.1f}" y="{self.y + 9}">{escape(name)}</text>')
        self.y += 12


def _track(track: Track, foot: int, tall: int, column: int) -> Iterator[str]:
    """Yield the elements of one track.

    For each colour these are at most a path of columns and a path of blocks.
    """
    blocks: dict[int, list[str]] = defaultdict(list)
    columns: dict[int, list[str]] = defaultdict(list)
    busy: list[dict[int, float]] = [{} for _ in range(PLOT // column + 1)]
    for start, end, colour in track.spans:
        if not track.overlaps and end - start >= column + 1:
            wide = end - start - (0.6 if end - start > 4 else 0)
            box = f"M{GUTTER + start:.1f} {foot}h{wide:.1f}v-{tall}h-{wide:.1f}z"
            blocks[colour].append(box)
            continue
        first, last = start / column, end / column
        for place in range(int(first), min(len(busy) - 1, int(last)) + 1):
            part = max(0.005, min(last, place + 1) - max(first, place)) / track.lanes
            busy[place][colour] = busy[place].get(colour, 0.0) + part
    for place, parts in enumerate(busy):
        x = f"{GUTTER + (place + 0.5) * column:g}"
        for colour, low, high in _stack(parts, tall):
            columns[colour].append(f"M{x} {foot - low:g}v{low - high:g}")
    for kind, paths in (("s", columns), ("c", blocks)):
        for colour, parts_of in sorted(paths.items()):
            yield f'<path class="{kind}{colour}" d="{"".join(parts_of)}"/>'


def _stack(parts: dict[int, float], tall: int) -> Iterator[tuple[int, float, float]]:
    """Yield a column's colours stacked, with lower and upper edges in half units."""
    largest = sorted(parts, key=lambda colour: (-parts[colour], colour))
    shown = {colour: parts[colour] for colour in sorted(largest[:MOST_STACKED])}
    for colour in largest[MOST_STACKED:]:
        shown[OTHER] = shown.get(OTHER, 0.0) + parts[colour]
    busy = sum(shown.values())
    if not busy:
        return
    # A lone short message must stay visible, so every column is at least one and a half units high.
    unit = max(1.5, tall * min(1.0, busy)) / busy
    reached = 0.0
    for colour, part in shown.items():
        low = round(2 * unit * reached) / 2
        reached += part
        high = round(2 * unit * reached) / 2
        if high > low:
            yield colour, low, high


def _figures(run: Run, keys: int) -> Iterator[str]:
    busy = sum(record.end - record.start for record in run.records)
    near = run.seconds / run.limit_seconds if run.limit_seconds > 0 else 0.0
    used = busy / (run.workers * run.seconds) if run.seconds > 0 else 0.0
    figures = {
        "messages": f"{len(run.records):,}",
        "keys": f"{keys:,}",
        "workers": f"{run.workers:,}",
        "time": _lasting(run.seconds),
        "limit": _lasting(run.limit_seconds),
        "times the limit": f"{near:.2f}",
        "utilisation": f"{used:.0%}",
    }
    for place, (name, value) in enumerate(figures.items()):
        x = 24 + place * 130
        yield f'<text class="value" x="{x}" y="66">{value}</text>'
        yield f'<text class="soft" x="{x}" y="82">{name}</text>'


def _key_names(records: Iterable[Record], busiest: Iterable[str]) -> list[tuple[int, str]]:
    names = [(place, _fitted(key, 14)) for place, key in enumerate(islice(busiest, COLOURS))]
    if len(names) == COLOURS:
        names.append((OTHER, "other keys"))
    if any(not _held(record) for record in records):
        names.append((NO_KEY, "no key"))
    return names


def _marks(span: float) -> Iterator[float]:
    """Yield the marked times, about nine of them, at multiples of a step of 1, 2 or 5."""
    ten = 10.0 ** math.floor(math.log10(span / 9))
    step = next(times * ten for times in (1, 2, 5, 10) if times * ten >= span / 9)
    for number in range(int(span / step + 1e-9) + 1):
        yield number * step


def _lasting(seconds: float) -> str:
    """Return a length of time to three figures: 1.23 s, 45.6 ms, 789 µs."""
    if seconds == 0:
        return "0 s"
    scale, unit = (1, "s") if seconds >= 1 else (1e3, "ms") if seconds >= 1e-3 else (1e6, "µs")
    value = seconds * scale
    text = f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {unit}"


def _fitted(text: str, room: int) -> str:
    """Return text in one line, cut in its middle; what cannot be seen is escaped."""
    text = printable(text)
    if len(text) <= room:
        return text
    tail = (room - 1) // 2
    return f"{text[: room - 1 - tail]}…{text[-tail:]}"


def _style(column: int) -> str:
    def theme(named: dict[str, str]) -> str:
        colours = [named[f"colour-{number}"] for number in range(NO_KEY + 1)]
        return (
            f".back{{fill:{named['back']}}}.band{{fill:{named['band']}}}"
            f".line{{stroke:{named['line']}}}text{{fill:{named['ink']}}}.soft{{fill:{named['soft']}}}"
        ) + "".join(f".c{n}{{fill:{c}}}.s{n}{{stroke:{c}}}" for n, c in enumerate(colours))

    light, dark = map(theme, timeline.theme())
    return (
        "text{font:12px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif}"
        ".head{font-size:17px;font-weight:650}.value{font-size:17px;font-weight:600}"
        ".strong{font-weight:650}.soft{font-size:11px}"
        ".middle{text-anchor:middle}.end{text-anchor:end}"
        f"path[class^=s]{{fill:none;stroke-width:{column};shape-rendering:crispEdges}}"
        f"{light}@media(prefers-color-scheme:dark){{{dark}}}"
    )
