"""The findings of a replay, as one object for `--json` and as text made from that object."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from interlock.replay.groups import compared
from interlock.replay.measure import Outcome
from interlock.replay.run import Record, Run
from interlock.replay.trace import Trace
from interlock.runtime.concurrency import Limits

Summary = dict[str, Any]


def summarise(
    trace: Trace,
    outcome: Outcome,
    peers: Sequence[Outcome],
    *,
    workers: int,
    work: str,
    serial_digest: str,
    limits: Limits | None = None,
    unlimited: Outcome | None = None,
    ungrouped: Outcome | None = None,
) -> Summary:
    """Return the whole report, in JSON's types. Times are seconds.

    `serial_seconds` is the measured time of the serial way when it is among `peers`, else the
    sum of the handlers' durations; `serial_source` says which. `compared` has a row for each way
    that ran, ours first, and is empty when there were no peers. `unlimited` is the same run without
    the queue's limits, `ungrouped` the same without groups.
    """
    run, verdict = outcome.run, outcome.verdict
    serial = next((peer.run.seconds for peer in peers if peer.way.name == "serial"), None)
    rows = [_row(one, serial_digest) for one in (outcome, *peers)] if peers else []
    return {
        "trace": trace.name,
        "messages": len(trace.messages),
        "keys": verdict.keys,
        "several_keys": sum(len(m.keys) + len(m.shared) > 1 for m in trace.messages),
        "unkeyed": sum(not m.keys and not m.shared for m in trace.messages),
        "skipped": len(trace.skipped),
        "skipped_lines": trace.skipped[:SHOWN],
        "workers": workers,
        "way": outcome.way.name,
        "pool": outcome.pool,
        "work": work,
        "limits": {name: str(most) for name, most in (limits or {}).items()},
        "unlimited_seconds": None if unlimited is None else unlimited.run.seconds,
        "groups": None if ungrouped is None else compared(trace.messages, run, ungrouped.run),
        "threads": outcome.shape.threads,
        "processes": outcome.shape.processes,
        "lanes": outcome.shape.lanes,
        "violations": verdict.violations,
        "violations_by_kind": {
            "order": verdict.order,
            "overlap": verdict.overlap,
            "lost": verdict.lost,
            "unfinished": verdict.unfinished,
        },
        "violations_found": [_told(violation, trace) for violation in verdict.examples],
        "repeated": verdict.repeated,
        "digest": outcome.digest,
        "digest_matches": outcome.digest == serial_digest,
        "failures": len(outcome.failures),
        "failures_found": [list(failure) for failure in outcome.failures[:SHOWN]],
        "seconds": run.seconds,
        "serial_seconds": outcome.limit.work if serial is None else serial,
        "serial_source": "sum of the handlers' durations" if serial is None else "measured",
        "limit_seconds": run.limit_seconds,
        "critical_path_seconds": outcome.limit.critical_path,
        "work_seconds": outcome.limit.work,
        "of_limit": _ratio(run.seconds, run.limit_seconds),
        "compared": rows,
        "busiest": _busiest(run),
        "longest_waits": _longest_waits(run),
    }


def text(summary: Summary, *, color: bool = False) -> str:
    """Return the summary for a reader, with a newline at the end."""
    good, bad = ("\x1b[32m", "\x1b[31m") if color else ("", "")
    plain = "\x1b[0m" if color else ""
    kept = summary["violations"] == 0
    kinds = summary["violations_by_kind"]
    lines = [
        f"{summary['trace']}: {count(summary['messages'], 'message')} on "
        f"{count(summary['keys'], 'key')}; {summary['several_keys']:,} "
        f"{'has' if summary['several_keys'] == 1 else 'have'} several keys, "
        f"{summary['unkeyed']:,} none",
        f"{summary['way']}, {count(summary['workers'], 'worker')} ({summary['pool']}), "
        f"{summary['work']}",
        "",
        f"violations  {good if kept else bad}{summary['violations']:,}{plain} (order "
        f"{kinds['order']:,}, overlap {kinds['overlap']:,}, lost "
        f"{kinds['lost'] + kinds['unfinished']:,}), each key checked from outside",
    ]
    lines += [f"            {bad}{found}{plain}" for found in summary["violations_found"][:SHOWN]]
    equal = "equals the serial run's"
    lines += [
        "digest      "
        + (f"{good}{equal}" if summary["digest_matches"] else f"{bad}differs from the serial run's")
        + plain,
        f"time        {summary['seconds']:.3f} s; one thread {summary['serial_seconds']:.3f} s "
        f"({summary['serial_source']}), "
        f"{_times(summary['serial_seconds'], summary['seconds'])} as long",
        f"limit       {summary['limit_seconds']:.3f} s: critical path "
        f"{summary['critical_path_seconds']:.3f} s, work / workers "
        f"{_per_worker(summary):.3f} s; "
        f"{_times(summary['seconds'], summary['limit_seconds'])} the limit",
    ]
    if summary["unlimited_seconds"] is not None:
        told = ", ".join(f"{name}={most}" for name, most in summary["limits"].items())
        without = summary["unlimited_seconds"]
        lines.append(
            f"limits      {told}: {_times(summary['seconds'], without)} the time without them, "
            f"{without:.3f} s"
        )
    if summary["groups"] is not None:
        groups = summary["groups"]
        lines.append(
            f"groups      {count(groups['groups'], 'group')}: Jain's index of their throughputs "
            f"{groups['index']:.2f}, without turns {groups['index_without']:.2f}; "
            f"{_times(summary['seconds'], groups['seconds_without'])} the time without them, "
            f"{groups['seconds_without']:.3f} s"
        )
    if summary["failures"]:
        lines.append(f"failures    {bad}{count(summary['failures'], 'handler')} raised{plain}")
        lines += [f"            {id}: {error}" for id, error in summary["failures_found"]]
    if summary["skipped"]:
        lines.append(f"skipped     {bad}{count(summary['skipped'], 'bad line')}{plain}")
        lines += [f"            {line}" for line in summary["skipped_lines"]]
    if summary["compared"]:
        lines += ["", *_compared_lines(summary["compared"], good, bad, plain)]
    if summary["groups"] is not None:
        lines += ["", *_group_lines(summary["groups"])]
    if summary["busiest"]:
        lines += ["", f"{'busiest keys':<42}{'messages':>10}{'held':>10}{'of the time':>13}"]
    for key in summary["busiest"][:SHOWN]:
        lines.append(
            f"  {_short(key['key'], 40):<40}{key['messages']:>10,}{key['seconds']:>8.3f} s"
            f"{key['share']:>13.0%}"
        )
    if summary["longest_waits"]:
        lines += ["", "longest waits for another message"]
    for wait in summary["longest_waits"][:SHOWN]:
        lines.append(
            f"  {_short(wait['id'], 16):<16} {wait['seconds']:>8.3f} s behind "
            f"{_short(wait['behind'], 16)} on {_short(wait['on'], 40)}, {wait['ahead']:,} ahead"
        )
    return "\n".join(lines) + "\n"


def count(number: int, one: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {one}{'' if number == 1 else 's'}"


def _row(outcome: Outcome, serial_digest: str) -> Summary:
    return {
        "way": outcome.way.name,
        "title": outcome.way.title,
        "threads": outcome.shape.threads,
        "processes": outcome.shape.processes,
        "lanes": outcome.shape.lanes,
        "seconds": outcome.run.seconds,
        "violations": outcome.verdict.violations,
        "order": outcome.verdict.order,
        "overlap": outcome.verdict.overlap,
        "digest_matches": outcome.digest == serial_digest,
        "failures": len(outcome.failures),
    }


def _compared_lines(rows: Sequence[Summary], good: str, bad: str, plain: str) -> list[str]:
    processes = any(row["processes"] for row in rows)
    head = f"{'compared ways':<34} threads {'processes ' if processes else ''}  lanes  seconds"
    lines = [f"{head}  violations  digest"]
    for row in rows:
        color = bad if row["violations"] or not row["digest_matches"] else good
        cells = f"  {_short(row['title'], 32):<32} {row['threads']:>7} "
        cells += f"{row['processes']:>9} " if processes else ""
        cells += f"{row['lanes']:>7,} {row['seconds']:>8.3f}  "
        cells += f"{color}{row['violations']:>10,}  "
        lines.append(cells + ("equal" if row["digest_matches"] else "differs") + plain)
    if any(row["violations"] for row in rows):
        lines.append(
            "  A way that breaks the order may be faster than the limit, because it waits for less."
        )
    return lines


def _group_lines(groups: Summary) -> list[str]:
    head = f"{'groups, and waits':<32}{'messages':>10}{'median':>11}{'longest':>11}"
    lines = [f"{head}{'without: median':>18}{'longest':>11}"]
    for row in groups["largest"][:SHOWN_GROUPS]:
        name = "no group" if row["group"] is None else row["group"]
        without = row["without"]
        lines.append(
            f"  {_short(name, 30):<30}{row['messages']:>10,}{row['median']:>9.3f} s"
            f"{row['longest']:>9.3f} s{without['median']:>16.3f} s{without['longest']:>9.3f} s"
        )
    return lines


def _busiest(run: Run) -> list[Summary]:
    counts: dict[str, int] = defaultdict(int)
    held: dict[str, float] = defaultdict(float)
    for record in run.records:
        for key in (*record.keys, *record.shared):
            counts[key] += 1
            held[key] += record.end - record.start
    first = sorted(counts, key=lambda key: (-held[key], key))[:LISTED]
    return [
        {
            "key": key,
            "messages": counts[key],
            "seconds": held[key],
            # Readers hold a key together, so this may pass 1.
            "share": _ratio(held[key], run.seconds) or 0.0,
        }
        for key in first
    ]


def _longest_waits(run: Run) -> list[Summary]:
    waits = [
        (run.records[record.waited_for].end - record.put_time, record)
        for record in run.records
        if record.waited_for is not None
    ]
    waits.sort(key=lambda wait: (-wait[0], wait[1].index))
    return [_wait(run, seconds, record) for seconds, record in waits[:LISTED]]


def _wait(run: Run, seconds: float, record: Record) -> Summary:
    assert record.waited_for is not None
    behind = run.records[record.waited_for]
    on = next(
        key
        for key in (*record.keys, *record.shared)
        if key in behind.keys or (key in behind.shared and key in record.keys)
    )
    ahead = sum(
        1
        for other in run.records[: record.index]
        if other.end > record.put_time
        and (on in other.keys or (on in other.shared and on in record.keys))
    )
    return {
        "id": record.id,
        "keys": list(record.keys[:LISTED]),
        "shared": list(record.shared[:LISTED]),
        "seconds": seconds,
        "started_after": record.start - record.put_time,
        "behind": behind.id,
        "on": on,
        "ahead": ahead,
    }


def _told(violation: Any, trace: Trace) -> str:
    messages = trace.messages
    id = messages[violation.id].id
    if violation.other is None:
        return f"{id} was never handled" if violation.kind == "lost" else f"{id} never ended"
    key = violation.key.decode("utf-8", "replace")
    how = "before" if violation.kind == "order" else "during"
    return f"{violation.kind}: {id} started {how} {messages[violation.other].id} on {key}"


def _per_worker(summary: Summary) -> float:
    at_once = summary["processes"] or summary["workers"]
    return float(summary["work_seconds"]) / float(at_once)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _times(part: float, whole: float) -> str:
    ratio = _ratio(part, whole)
    return "–" if ratio is None else f"{ratio:.2f} ×"


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else "…" + text[-(width - 1) :]


LISTED = 10
SHOWN = 5
SHOWN_GROUPS = 10
