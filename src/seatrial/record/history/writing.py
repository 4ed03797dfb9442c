"""What a run adds to the history."""

from typing import Any

from seatrial.job import AttemptResult, CellResult, RunResults, Stage, figures
from seatrial.record.history.data import Mark
from seatrial.record.history.keeping import key, series_id, text
from seatrial.record.history.schema import Session, benchmark_of

Row = tuple[Any, ...]


def add(session: Session, results: RunResults) -> None:
    run = key(results.run)
    session.execute("DELETE FROM runs WHERE run = ?", (run,))
    session.execute(
        'INSERT INTO runs (run, suite, suite_path, verdict, started_s, seconds, interrupted, seatrial, "commit")'
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            run,
            text(results.suite),
            text(results.suite_path),
            results.verdict.value,
            results.started_s,
            results.seconds,
            int(results.interrupted),
            text(results.seatrial),
            key(results.commit),
        ),
    )
    # By their keys: of two rows with the same key the later one counts.
    cells: dict[str, Row] = {}
    attempts: dict[Row, Row] = {}
    series: dict[int, Row] = {}
    points: dict[Row, Row] = {}
    for cell in results.cells:
        hash_ = key(cell.hash)
        cells[hash_] = _cell(run, results, cell)
        for attempt in cell.attempts:
            attempts[hash_, attempt.number] = _attempt(run, hash_, results, attempt)
        _figures(run, results, cell, series, points)
    session.many(
        "INSERT INTO cells (run, hash, id, trial, kind, verdict, flaky, why, benchmark, fingerprint, host, at_s)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        list(cells.values()),
    )
    session.many("INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", list(attempts.values()))
    session.many(
        "INSERT INTO series (id, trial, benchmark, fingerprint, metric, unit, better) VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET trial = excluded.trial, better = excluded.better"
        " WHERE series.trial <> excluded.trial OR series.better <> excluded.better",
        list(series.values()),
    )
    session.many("INSERT INTO points VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", list(points.values()))


def mark(session: Session, new: Mark) -> None:
    session.execute(
        "INSERT INTO marks (run, benchmark, metric, at_s, word, reason, said_by) VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (run, benchmark, metric, at_s)"
        " DO UPDATE SET word = excluded.word, reason = excluded.reason, said_by = excluded.said_by",
        (new.run, new.benchmark, new.metric, new.at_s, new.label, new.reason, new.by),
    )


def _cell(run: str, results: RunResults, cell: CellResult) -> Row:
    return (
        run,
        key(cell.hash),
        key(cell.id),
        key(cell.trial),
        text(cell.kind),
        cell.verdict.value,
        int(cell.flaky),
        text(cell.why or _first_message(cell)),
        key(cell.benchmark or benchmark_of(cell.id)),
        key(cell.fingerprint),
        text(_host(cell)),
        _at_s(results, cell),
    )


def _first_message(cell: CellResult) -> str:
    """What the finding says that the cell has its verdict from."""
    return next((finding.message for finding in cell.findings if finding.verdict is cell.verdict), "")


def _attempt(run: str, hash_: str, results: RunResults, attempt: AttemptResult) -> Row:
    return (
        run,
        hash_,
        attempt.number,
        text(attempt.place.target),
        text(attempt.place.machine),
        text(attempt.place.host),
        attempt.verdict.value,
        attempt.exit.outcome.value,
        _started_s(results, attempt),
        attempt.seconds,
    )


def _figures(run: str, results: RunResults, cell: CellResult, series: dict[int, Row], points: dict[Row, Row]) -> None:
    benchmark, fingerprint = key(cell.benchmark or benchmark_of(cell.id)), key(cell.fingerprint)
    at_s, hash_ = _at_s(results, cell), key(cell.hash)
    own_id = "" if key(cell.id) == benchmark else key(cell.id)
    of_cell = (cell.verdict.value, text(_host(cell)), own_id)
    for figure in figures(cell.metrics):
        metric, unit = key(figure.name), key(figure.unit)
        number = series_id(benchmark, fingerprint, metric, unit)
        series[number] = (number, key(cell.trial), benchmark, fingerprint, metric, unit, figure.better or "")
        points[number, hash_] = (number, at_s, run, hash_, figure.value, *of_cell, text(figure.source))


def _host(cell: CellResult) -> str:
    return cell.attempts[-1].place.host if cell.attempts else ""


def _at_s(results: RunResults, cell: CellResult) -> float:
    return _started_s(results, cell.attempts[-1]) if cell.attempts else results.started_s


def _started_s(results: RunResults, attempt: AttemptResult) -> float:
    times = {time.stage: time.wall_s for time in attempt.stages}
    return times.get(Stage.STARTED, times.get(Stage.CREATED, results.started_s))
