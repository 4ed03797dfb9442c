"""Histories of 200,000 results: `seatrial history TRIAL`, CPU and wall time, beside plain SQL over the same rows."""

import contextlib
import os
import random
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from _measure import ROOT, SEATRIAL, sized, table

from seatrial.job import AttemptResult, CellResult, Exit, Outcome, Place, RunResults, Stage, StageTime, Verdict
from seatrial.record.history import open_history

RESULTS, RUNS = sized((200_000, 1_000), (500, 10))
TRIALS = 20
BENCHMARKS = RESULTS // RUNS
ROUNDS = sized(5, 1)

# What anybody could type into sqlite3: the last 400 of each series, and their 95th percentile.
PLAIN = """
SELECT series, count(*), max(CASE WHEN place = total * 95 / 100 THEN value END) FROM (
    SELECT series, value, count(*) OVER (PARTITION BY series) AS total,
        row_number() OVER (PARTITION BY series ORDER BY value) AS place
    FROM (
        SELECT series, value, row_number() OVER (PARTITION BY series ORDER BY at_s DESC) AS age FROM points
        WHERE series IN (SELECT id FROM series WHERE trial LIKE ?)
    ) WHERE age <= 400
) GROUP BY series
"""


def results(number: int, noise: random.Random, trials: int = TRIALS, benchmarks: int = BENCHMARKS) -> RunResults:
    """One night: a benchmark in seven got 8 % worse three weeks ago."""
    started_s = 1.7e9 + number * 3600.0
    cells = []
    for benchmark in range(benchmarks):
        level = 2.0 * (1.08 if benchmark % 7 == 0 and number > RUNS - 500 else 1.0)
        value = noise.gauss(level, 0.02)
        trial = f"trial{benchmark % trials}"
        attempt = AttemptResult(
            1,
            Place("cluster", "a100", f"node-{number % 17}"),
            [StageTime(Stage.STARTED, started_s + benchmark, "agent")],
            Exit(Outcome.EXITED, 0),
            Verdict.PASSED,
            seconds=value * 100,
        )
        cells.append(
            CellResult(
                f"{trial}[model=m{benchmark},machine=a100]",
                f"{benchmark:08x}",
                {"model": f"m{benchmark}", "machine": "a100"},
                Verdict.PASSED,
                trial=trial,
                kind="training",
                attempts=[attempt],
                metrics={"step_time": {"value": value, "unit": "s", "better": "lower", "source": "log"}},
                fingerprint="0f1e2d3c",
            )
        )
    return RunResults(
        1,
        f"nightly-{number:05}-ab12",
        "nightly",
        Verdict.PASSED,
        cells,
        started_s=started_s,
        seconds=60.0,
        commit=f"{number:040x}",
    )


def fill(place: str, trials: int = TRIALS) -> float:
    """CPU seconds that it took us."""
    history, noise = open_history(place), random.Random(0)
    before = resource.getrusage(resource.RUSAGE_SELF)
    for number in range(RUNS):
        history.add(results(number, noise, trials))
    after = resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def best(measure: Callable[[], tuple[float, float]]) -> str:
    cpu, wall = min(measure() for _ in range(ROUNDS))
    return f"{cpu:6.2f} s CPU  {wall:6.2f} s wall"


def command(place: str, *args: str) -> Callable[[], tuple[float, float]]:
    def measure() -> tuple[float, float]:
        # As installed: compiled modules are kept from one start to the next.
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        env["SEATRIAL_HISTORY"] = place
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run([SEATRIAL, "history", *args], env=env, stdout=subprocess.DEVNULL, check=True)
        after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall

    return measure


def plain(path: Path, trials: str) -> Callable[[], tuple[float, float]]:
    def measure() -> tuple[float, float]:
        cpu, wall = time.process_time(), time.monotonic()
        with contextlib.closing(sqlite3.connect(path)) as connection:
            found = len(connection.execute(PLAIN, (trials,)).fetchall())
        if not found:
            raise SystemExit(f"no series of {trials}")
        return time.process_time() - cpu, time.monotonic() - wall

    return measure


def rows(place: str) -> list[tuple[str, str]]:
    return [
        (f"seatrial history TRIAL, one of {TRIALS}", best(command(place, "trial7"))),
        ("seatrial history TRIAL --json", best(command(place, "trial7", "--json"))),
        ("seatrial history (what there is)", best(command(place))),
        ("seatrial history --help (what the start costs)", best(command(place, "--help"))),
    ]


@contextlib.contextmanager
def postgres() -> Iterator[str | None]:
    """A server of its own, as in the tests; None where there is none."""
    sys.path.insert(0, str(ROOT / "tests" / "record"))
    from postgres_server import NoPostgres, PostgresServer

    try:
        server = PostgresServer()
    except NoPostgres as error:
        print(f"PostgreSQL: not measured, {error}")
        yield None
        return
    try:
        server.start()
        yield server.database()
    finally:
        server.remove()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history.db"
        took_s = fill(str(path))
        told = [
            (
                f"adding {RUNS:,} runs of {BENCHMARKS} results",
                f"{took_s:6.2f} s CPU  ({path.stat().st_size >> 20} MiB)",
            ),
            *rows(str(path)),
            ("plain SQL in sqlite3: p95 of that trial", best(plain(path, "trial7"))),
            ("plain SQL in sqlite3: p95 of all trials", best(plain(path, "%"))),
        ]
        table(f"a history of {RESULTS:,} results in SQLite, best of {ROUNDS} (to reach: <= 0.5 s)", told)
        one = str(Path(folder) / "one.db")
        fill(one, trials=1)
        told = [("seatrial history TRIAL, all 200 series in it", best(command(one, "trial0")))]
        table("the same results as one trial, which are all looked at", told)
    with postgres() as url:
        if url:
            took_s = fill(url)
            told = [(f"adding {RUNS:,} runs", f"{took_s:6.2f} s CPU of ours"), *rows(url)]
            table(f"the same in PostgreSQL, CPU of ours, best of {ROUNDS}", told)


if __name__ == "__main__":
    main()
