"""Writes runs and marks to the history."""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from seatrial.job import AttemptResult, CellResult, RunResults, Stage, causes_by_cell, fields_digest, flatten_metrics
from seatrial.job.metric import METRICS
from seatrial.record.history.data import Mark, cell_number, key, series_id, text
from seatrial.record.history.schema import Session, benchmark_of

_Row = tuple[Any, ...]

_MOST_CAUSES = 20  # per cell; they are part of an index


def write_run(session: Session, results: RunResults) -> None:
    run = key(results.run)
    session.execute("DELETE FROM runs WHERE run = ?", (run,))
    took = results.started_s, results.seconds, int(results.interrupted)
    row = (run, text(results.suite), text(results.suite_path), results.verdict.value, *took)
    columns = 'run, suite, suite_path, verdict, started_s, seconds, interrupted, seatrial, "commit", counts, targets'
    counts = Counter(cell.verdict.value for cell in results.cells)
    counts["flaky"] = sum(cell.flaky for cell in results.cells)
    targets = sorted({text(attempt.place.target) for cell in results.cells for attempt in cell.attempts})
    of_cells = json.dumps(counts), json.dumps(targets)
    _insert(session, "runs", columns, [(*row, text(results.seatrial), key(results.commit), *of_cells)])
    # By primary key: of rows with the same key the last one counts.
    cells: dict[str, _Row] = {}
    attempts: dict[_Row, _Row] = {}
    series: dict[int, _Row] = {}
    points: dict[_Row, _Row] = {}
    by_cell = causes_by_cell(results)
    causes = {hash_: " ".join(cause.id for cause in own[:_MOST_CAUSES]) for hash_, own in by_cell.items()}
    for cell in results.cells:
        hash_ = key(cell.hash)
        cells[hash_] = _cell(run, results, cell, causes.get(cell.hash, ""))
        for attempt in cell.attempts:
            place = text(attempt.place.target), text(attempt.place.machine), text(attempt.place.host)
            ended = attempt.verdict.value, attempt.exit.outcome.value, _started_s(results, attempt), attempt.seconds
            attempts[hash_, attempt.number] = (run, hash_, attempt.number, *place, *ended)
        _metrics(results, cell, series, points)
    columns = "run, hash, id, trial, kind, verdict, flaky, why, benchmark, fingerprint, host, at_s, under_test"
    _insert(session, "cells", f"{columns}, cell, headline, cause", cells.values())
    _insert(session, "causes", "cause, at_s, run, verdict, headline, place, cells", _causes(run, results))
    _insert(session, "settings", "id, fields", _settings(results), "(id) DO NOTHING")
    columns = "run, hash, number, target, machine, host, verdict, outcome, started_s, seconds"
    _insert(session, "attempts", columns, attempts.values())
    update = (
        "(id) DO UPDATE SET trial = excluded.trial, better = excluded.better,"
        " checked = CASE excluded.checked WHEN '' THEN series.checked ELSE excluded.checked END"
        " WHERE series.trial <> excluded.trial OR series.better <> excluded.better OR excluded.checked <> ''"
    )
    columns = "id, trial, benchmark, fingerprint, metric, unit, better, checked"
    _insert(session, "series", columns, series.values(), update)
    _insert(session, "points", "series, at_s, run, hash, value, verdict, host, id, source", points.values())


def _insert(session: Session, table: str, columns: str, rows: Iterable[_Row], on_conflict: str = "") -> None:
    places = ", ".join("?" for _ in columns.split(","))
    conflict = f" ON CONFLICT {on_conflict}" if on_conflict else ""
    session.many(f"INSERT INTO {table} ({columns}) VALUES ({places}){conflict}", [*rows])


def add_mark(session: Session, new: Mark) -> None:
    update = (
        "(run, benchmark, metric, at_s)"
        " DO UPDATE SET word = excluded.word, reason = excluded.reason, said_by = excluded.said_by"
    )
    row = new.run, new.benchmark, new.metric, new.at_s, new.label, new.reason, new.by
    _insert(session, "marks", "run, benchmark, metric, at_s, word, reason, said_by", [row], update)


def _cell(run: str, results: RunResults, cell: CellResult, causes: str) -> _Row:
    # The message of the finding that decided the verdict.
    message = next((finding.message for finding in cell.findings if finding.verdict is cell.verdict), "")
    last = cell.attempts[-1] if cell.attempts else None
    host, headline = (last.place.host, last.headline) if last else ("", "")
    named = key(cell.hash), key(cell.id), key(cell.trial), text(cell.kind)
    judged = cell.verdict.value, int(cell.flaky), text(cell.why or message)
    compared = key(cell.benchmark or benchmark_of(cell.id)), key(cell.fingerprint), text(host)
    under_test = fields_digest(cell.under_test) if cell.under_test else ""
    number = cell_number(results.suite, benchmark_of(cell.id))
    seen = started_at_s(results, cell), under_test, number, text(headline), key(causes)
    return (run, *named, *judged, *compared, *seen)


def _causes(run: str, results: RunResults) -> list[_Row]:
    """Each cause once, with the start of its first cell."""
    started_s = {cell.hash: started_at_s(results, cell) for cell in results.cells}
    found = {}
    for cause in results.causes:
        at_s = min((started_s[one] for one in cause.cells if one in started_s), default=results.started_s)
        about = text(cause.text), text(" · ".join(cause.place.values())), len(cause.cells)
        found[key(cause.id)] = (key(cause.id), at_s, run, cause.verdict.value, *about)
    return list(found.values())


def _settings(results: RunResults) -> list[_Row]:
    found: dict[str, _Row] = {}
    for cell in results.cells:
        if cell.conditions and cell.fingerprint:
            found.setdefault(key(cell.fingerprint), (key(cell.fingerprint), _json(cell.conditions)))
        if cell.under_test:
            id_ = fields_digest(cell.under_test)
            found.setdefault(id_, (id_, _json(cell.under_test)))
    return [found[id_] for id_ in sorted(found)]  # sorted, so that concurrent writers do not deadlock


def _json(fields: dict[str, str]) -> str:
    return json.dumps({text(name): text(value) for name, value in fields.items()}, ensure_ascii=False)


def _metrics(results: RunResults, cell: CellResult, series: dict[int, _Row], points: dict[_Row, _Row]) -> None:
    benchmark, fingerprint = key(cell.benchmark or benchmark_of(cell.id)), key(cell.fingerprint)
    hash_, own_id = key(cell.hash), "" if key(cell.id) == benchmark else key(cell.id)
    judged = {finding.check for finding in cell.findings if finding.step == METRICS and "lower" in finding.data}
    others = [(one, one.metrics) for one in cell.attempts if one.metrics]
    last = next((one for one in reversed(cell.attempts) if not one.metrics), None)  # it has the cell's own metrics
    for attempt, metrics in [*others, (last, cell.metrics)]:
        verdict, host, at_s = cell.verdict.value, "", results.started_s
        if attempt is not None:
            verdict = "passed" if attempt.unjudged else attempt.verdict.value
            host, at_s = text(attempt.place.host), _started_s(results, attempt)
        for one in flatten_metrics(metrics):
            metric, unit = key(one.name), key(one.unit)
            number = series_id(benchmark, fingerprint, metric, unit)
            checked = key(results.run) if f"bounds {one.name}" in judged else ""
            series[number] = (number, key(cell.trial), benchmark, fingerprint, metric, unit, one.better or "", checked)
            point = (number, at_s, key(results.run), hash_, one.value, verdict, host, own_id, text(one.source))
            points[number, at_s, hash_] = point


def started_at_s(results: RunResults, cell: CellResult) -> float:
    """The start of a cell's last attempt in a run."""
    return _started_s(results, cell.attempts[-1]) if cell.attempts else results.started_s


def _started_s(results: RunResults, attempt: AttemptResult) -> float:
    times = {time.stage: time.wall_s for time in attempt.stages}
    return times.get(Stage.STARTED, times.get(Stage.CREATED, results.started_s))
