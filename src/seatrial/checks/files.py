"""Checks the files that a job wrote: count, size, modification time, readability."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from seatrial.checks.ended import ended_badly, unread
from seatrial.job import Finding, Observation, ObservedStep, Stage, Verdict, count
from seatrial.readers.profile import entry_files
from seatrial.suite.command import Files

_MOST_NAMED = 10  # files listed in a finding
_ANY_MORE = 10**12  # files; whether an amount sets no upper limit
CLOCKS_S = 2.0  # tolerance between file times and job times: file systems round, clocks differ
# torchprime's layout, `profile/0-1/…`: the folder of worker 1 of slice 0.
_HOST_FOLDER = re.compile(r"(?:^|/)(?:profile|outputs|xla_dumps)/(\d+-\d+)/")


class JobWindow(msgspec.Struct, frozen=True):
    """When the job ran, in wall-clock seconds."""

    start_s: float
    end_s: float | None


def job_window(observation: Observation) -> JobWindow | None:
    times = {stage.stage: stage for stage in observation.stages}
    start, end = times.get(Stage.STARTED), times.get(Stage.FINISHED)
    if start is None:
        return None
    slack_s = CLOCKS_S + start.uncertainty_s
    return JobWindow(start.wall_s - slack_s, end.wall_s + CLOCKS_S + end.uncertainty_s if end else None)


def entry_count(observed: ObservedStep, name: str) -> int:
    """How many files the agent found; it lists only the first ones."""
    entry = observed.result.get(name)
    count = entry.get("count") if isinstance(entry, dict) else None
    return count if isinstance(count, int) else len(entry_files(observed, name))


def check_files(
    observed: ObservedStep, observation: Observation, name: str, expected: Files, step: str = ""
) -> list[Finding]:
    """Returns a finding per expectation."""
    step = step or f"files {name}"
    entry = observed.result.get(name)
    if not isinstance(entry, dict):
        bad = unread(observed, step, "count") or ended_badly(observed, "count", observation.exit, step)
        why = str(observed.result.get("error") or "the files could not be checked")
        return [bad or Finding(step, "count", Verdict.FAILED, "files", why, observed.output)]
    files = entry_files(observed, name)
    hosts, cut = sorted(host_folders(observed)), str(entry.get("cut") or "")
    findings = [_count(step, expected, files, entry_count(observed, name), hosts, cut)]
    if files and (wanted := expected.size) is not None:
        sizes = [(str(one.get("path")), one["bytes"]) for one in files if isinstance(one.get("bytes"), int)]
        wrong = [
            f"{path} has {size:,} bytes (expected {wanted.text})" for path, size in sizes if not wanted.met_by(size)
        ]
        smallest = min((size for _, size in sizes), default=0)
        findings.append(all_good(step, "size", "files", wrong, len(files), f"{smallest:,} bytes or more"))
    if files and expected.fresh:
        findings.append(_fresh(step, files, job_window(observation)))
    if files and expected.valid:
        wrong = [f"{one.get('path')}: {one['error']}" for one in files if one.get("error")]
        findings.append(all_good(step, "valid", "broken", wrong, len(files), f"read as {expected.valid}"))
    return findings


def host_in_path(path: str) -> str:
    """The host folder of a file; empty if the layout has none."""
    match = _HOST_FOLDER.search(path)
    return match[1] if match else ""


def host_folders(observed: ObservedStep) -> set[str]:
    return {
        host
        for name in observed.result
        for one in entry_files(observed, name)
        if (host := host_in_path(str(one.get("path"))))
    }


def all_good(step: str, check: str, class_: str, wrong: Sequence[str], total: int, good: str) -> Finding:
    """One finding for all files: passed with message `good` if `wrong` is empty."""
    if not wrong:
        return Finding(step, check, Verdict.PASSED, message=good)
    first = wrong[0] if len(wrong) == 1 else f"{len(wrong)} of {total} files: {wrong[0]}"
    rest = len(wrong) - _MOST_NAMED
    evidence = "\n".join([*wrong[:_MOST_NAMED], *([f"and {rest} more"] if rest > 0 else [])])
    return Finding(step, check, Verdict.FAILED, class_, first, evidence if len(wrong) > 1 else "")


def _count(step: str, expected: Files, files: list[dict[str, Any]], total: int, hosts: list[str], cut: str) -> Finding:
    """Checks the count, per host if the layout has host folders: `hosts` are those with files of any entry. `cut`: why
    not everything was searched."""
    by_host = {host: sum(host_in_path(str(one.get("path"))) == host for one in files) for host in hosts}
    placed = any(host_in_path(str(one.get("path"))) for one in files)
    counts = by_host if placed and total == len(files) else {"": total}
    wanted = expected.count.text if expected.count else "at least one"
    wrong = [
        (host, have) for host, have in counts.items() if not (expected.count.met_by(have) if expected.count else have)
    ]
    names = "\n".join(str(one.get("path")) for one in files[:_MOST_NAMED])
    if wrong:
        host, have = wrong[0]
        in_host = f" in the folder of host {host}" if host else ""
        message = f"{count(have, 'file')} matching {expected.match!r}{in_host} (expected {wanted})"
        message += f"; {cut}" if cut else ""
        return Finding(step, "count", Verdict.FAILED, "files", message, names)
    each = f" on each of {len(counts)} hosts" if len(counts) > 1 else ""
    shown = str(files[0].get("path")) if total == 1 and files else count(next(iter(counts.values())), "file") + each
    if cut and expected.count and not expected.count.met_by(_ANY_MORE):
        return Finding(step, "count", Verdict.INVALID, "unjudged", f"{shown}, but there may be more: {cut}", names)
    return Finding(step, "count", Verdict.PASSED, message=shown)


def _fresh(step: str, files: list[dict[str, Any]], window: JobWindow | None) -> Finding:
    if window is None:
        return Finding(step, "fresh", Verdict.SKIPPED, message="not checked: the start time of the job is unknown")
    wrong = []
    for one in files:
        written_s = one.get("modified_s")
        if not isinstance(written_s, int | float):
            wrong.append(f"{one.get('path')} has no modification time")
        elif written_s < window.start_s:
            wrong.append(f"{one.get('path')} was written {window.start_s - written_s:,.0f} s before the job started")
        elif window.end_s is not None and written_s > window.end_s:
            wrong.append(f"{one.get('path')} was written {written_s - window.end_s:,.0f} s after the job ended")
    return all_good(step, "fresh", "files", wrong, len(files), "written while the job ran")
