"""Runs to keep in a history."""

from typing import Any

from seatrial.job import AttemptResult, CellResult, Exit, Finding, Outcome, Place, RunResults, Stage, StageTime, Verdict
from seatrial.record.history.data import series_id

METRICS = {"peak": {"value": 12, "unit": "MiB"}, "steps": {"import numpy": {"seconds": 0.5}}, "python": "3.11"}


def cell(
    hash_: str, *seconds: float, verdict: Verdict = Verdict.PASSED, started_s: float = 1000.0, **changes: Any
) -> CellResult:
    attempts = [
        AttemptResult(
            number=number,
            place=Place("here", "small", "node-1"),
            stages=[StageTime(Stage.STARTED, started_s + number, "agent")],
            exit=Exit(Outcome.EXITED, 0),
            verdict=verdict,
            seconds=took,
        )
        for number, took in enumerate(seconds, 1)
    ]
    values: dict[str, Any] = {"id": f"t[n={hash_}]", "trial": "t", "attempts": attempts, "metrics": METRICS} | changes
    return CellResult(hash=hash_, axes={"n": hash_}, verdict=verdict, **values)


def run(name: str, *cells: CellResult, started_s: float = 1000.0, commit: str = "") -> RunResults:
    return RunResults(
        1, name, "suite", Verdict.PASSED, list(cells), started_s=started_s, seconds=9.0, commit=commit, seatrial="0"
    )


def timed(
    value: float,
    hash_: str = "a",
    verdict: Verdict = Verdict.PASSED,
    at_s: float = 0.0,
    better: str = "lower",
    **changes: Any,
) -> CellResult:
    """A cell with one metric that somebody judges."""
    metrics = {"step_time": {"value": value, "unit": "s", "better": better, "source": "log"}}
    alarm = verdict in (Verdict.SLOWER, Verdict.FASTER)
    findings = [Finding("figures", "bounds", verdict, message=f"{value} s is out of bounds")] if alarm else []
    values: dict[str, Any] = {"metrics": metrics, "findings": findings, "fingerprint": "f00d0000"} | changes
    return cell(hash_, 1.0, verdict=verdict, started_s=at_s, **values)


# As version 2 wrote it, which was the first that was released: two runs of a cell and one of its repeats, metrics of
# them, and what somebody said of a run.
_PEAK = series_id("works[n=1]", "", "peak", "MiB")
VERSION_2 = f"""
CREATE TABLE runs (
    run TEXT PRIMARY KEY, suite TEXT NOT NULL, suite_path TEXT NOT NULL, verdict TEXT NOT NULL,
    started_s DOUBLE PRECISION NOT NULL, seconds DOUBLE PRECISION NOT NULL, interrupted INTEGER NOT NULL,
    seatrial TEXT NOT NULL, "commit" TEXT NOT NULL
);
CREATE INDEX runs_by_time ON runs (started_s);
CREATE TABLE cells (
    run TEXT NOT NULL REFERENCES runs (run) ON DELETE CASCADE, hash TEXT NOT NULL, id TEXT NOT NULL,
    trial TEXT NOT NULL, kind TEXT NOT NULL, verdict TEXT NOT NULL, flaky INTEGER NOT NULL, why TEXT NOT NULL,
    benchmark TEXT NOT NULL, fingerprint TEXT NOT NULL, host TEXT NOT NULL, at_s DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (run, hash)
);
CREATE INDEX cells_by_hash ON cells (hash, run);
CREATE TABLE attempts (
    run TEXT NOT NULL REFERENCES runs (run) ON DELETE CASCADE, hash TEXT NOT NULL, number INTEGER NOT NULL,
    target TEXT NOT NULL, machine TEXT NOT NULL, host TEXT NOT NULL, verdict TEXT NOT NULL, outcome TEXT NOT NULL,
    started_s DOUBLE PRECISION NOT NULL, seconds DOUBLE PRECISION,
    PRIMARY KEY (run, hash, number)
);
CREATE INDEX attempts_that_passed ON attempts (hash, started_s DESC, seconds)
    WHERE verdict IN ('passed', 'xfail') AND seconds IS NOT NULL;
CREATE TABLE series (
    id BIGINT PRIMARY KEY, trial TEXT NOT NULL, benchmark TEXT NOT NULL, fingerprint TEXT NOT NULL,
    metric TEXT NOT NULL, unit TEXT NOT NULL, better TEXT NOT NULL
);
CREATE INDEX series_of_trial ON series (trial);
CREATE INDEX series_of_benchmark ON series (benchmark);
CREATE TABLE points (
    series BIGINT NOT NULL, at_s DOUBLE PRECISION NOT NULL,
    run TEXT NOT NULL REFERENCES runs (run) ON DELETE CASCADE, hash TEXT NOT NULL,
    value DOUBLE PRECISION NOT NULL, verdict TEXT NOT NULL, host TEXT NOT NULL, id TEXT NOT NULL, source TEXT NOT NULL,
    PRIMARY KEY (series, at_s, run, hash)
);
CREATE INDEX points_of_run ON points (run);
CREATE TABLE marks (
    run TEXT NOT NULL, benchmark TEXT NOT NULL, at_s DOUBLE PRECISION NOT NULL, word TEXT NOT NULL,
    reason TEXT NOT NULL, said_by TEXT NOT NULL,
    PRIMARY KEY (run, benchmark, at_s)
);
CREATE INDEX cells_with_alarm ON cells (at_s) WHERE verdict IN ('slower', 'faster');
CREATE INDEX cells_of_trial ON cells (trial, run);
INSERT INTO runs VALUES ('r1', 'nightly', 'suite.yaml', 'passed', 100.0, 9.0, 0, '0.1.0', 'c0ffee'),
    ('r2', 'nightly', 'suite.yaml', 'failed', 200.0, 9.5, 1, '0.1.0', '');
INSERT INTO cells VALUES
    ('r1', 'aa', 'works[n=1,repeat=1]', 'works', 'runtime', 'passed', 0, '', 'works[n=1]', '', 'node-1', 101.0),
    ('r1', 'ab', 'works[n=1,repeat=2]', 'works', 'runtime', 'passed', 1, '', 'works[n=1]', '', 'node-2', 102.0),
    ('r2', 'aa', 'works[n=1,repeat=1]', 'works', 'runtime', 'failed', 0, 'because', 'works[n=1]', '', 'node-1', 201.0);
INSERT INTO attempts VALUES ('r1', 'aa', 1, 'here', 'small', 'node-1', 'passed', 'exited', 101.0, 4.0),
    ('r1', 'ab', 1, 'here', 'small', 'node-1', 'infra', 'lost', 101.5, NULL),
    ('r1', 'ab', 2, 'here', 'small', 'node-2', 'passed', 'exited', 102.0, 6.0),
    ('r2', 'aa', 1, 'here', 'small', 'node-1', 'failed', 'exited', 201.0, 5.0);
INSERT INTO series VALUES ({_PEAK}, 'works', 'works[n=1]', '', 'peak', 'MiB', '');
INSERT INTO points VALUES
    ({_PEAK}, 101.0, 'r1', 'aa', 12.0, 'passed', 'node-1', 'works[n=1,repeat=1]', 'log'),
    ({_PEAK}, 102.0, 'r1', 'ab', 13.0, 'passed', 'node-2', 'works[n=1,repeat=2]', 'log'),
    ({_PEAK}, 201.0, 'r2', 'aa', 14.0, 'failed', 'node-1', 'works[n=1,repeat=1]', 'log');
INSERT INTO marks VALUES ('r2', 'works[n=1]', 300.0, 'regression', 'a worse driver', 'ann');
"""
