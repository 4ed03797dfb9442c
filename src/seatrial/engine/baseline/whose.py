"""Which benchmarks runs of torchprime's table are of: a job's name begins with the name of its benchmark."""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from seatrial.engine.baseline.runs_file import PastRun

# Their run is called <benchmark>-<eight letters or digits>-<time>-<eight hex digits>.
_RUN = re.compile(r"(?P<job>.+?(?P<random>-[a-z0-9]{8})?)-\d{14}-[0-9a-f]{8}")


class MixedRuns(Exception):
    """Runs of several jobs that cannot be told apart by the benchmarks of the suite."""

    def __init__(self, jobs: Counter[str], unknown: Collection[str], benchmarks: Collection[str]) -> None:
        found = ", ".join(f"{job} ({count})" for job, count in sorted(jobs.items()))
        known = ", ".join(sorted(benchmarks))
        super().__init__(
            f"by their names the runs are of {len(jobs)} jobs: {found}; of the selected benchmarks ({known}) none, or "
            f"more than one, is called {', '.join(sorted(unknown))}. Give each row its `benchmark`, or import the rows "
            "of one job at a time"
        )


def whose(runs: Sequence[PastRun], benchmarks: Collection[str]) -> list[PastRun]:
    """The runs, each with its benchmark where its name says it. Raises MixedRuns.

    Runs of one job only, and runs with other names, may stay without: then whoever imports them says whose they are."""
    jobs: Counter[str] = Counter()
    unknown, found = set[str](), []
    for one in runs:
        job, benchmark = _job(one.run, benchmarks)
        if one.benchmark or not job:
            found.append(one)
            continue
        jobs[job] += 1
        found.append(replace(one, benchmark=benchmark))
        if not benchmark:
            unknown.add(job)
    if unknown and len(jobs) > 1:
        raise MixedRuns(jobs, unknown, benchmarks)
    return found


def _job(run: str, benchmarks: Collection[str]) -> tuple[str, str]:
    """The name of its job, without what is random in it, and the one benchmark that is called so."""
    match = _RUN.fullmatch(run)
    if match is None:
        return "", ""
    whole, random = match["job"], match["random"] or ""
    for job in (whole, whole.removesuffix(random)):
        same = [benchmark for benchmark in benchmarks if _plain(benchmark) == _plain(job)]
        if len(same) == 1:
            return job, same[0]
    return whole.removesuffix(random), ""


def _plain(name: str) -> str:
    """Names of jobs have no dots or underscores: `3.1` and `3_1` are `3dot1` there."""
    return re.sub(r"(?<=\d)(?:dot|_|\.)(?=\d)", ".", name)
