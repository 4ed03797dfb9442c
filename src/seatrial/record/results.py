"""`results.json`: reading it, and the JSON Schema that other programs may hold us to."""

from pathlib import Path
from typing import Any

import msgspec

from seatrial import SeatrialError
from seatrial.job import VERSION, RunResults, Unreadable, decode, read_json

SCHEMA_ID = "https://json-schema.org/draft/2020-12/schema"

_SHOWN = {"kind": "The form that it is shown in.", "title": "For people."}
_CHART = {
    **_SHOWN,
    "columns": "Names of the columns of rows; of a series the first is in order.",
    "rows": "Of a table, a series, a timeline (name, begin, end) or a distribution (a metric and its quantiles).",
    "units": "Of columns, where they have one.",
}
# What a field means, where its name and type do not say it all. A test keeps this complete.
_MEANING: dict[str, dict[str, str]] = {
    "RunResults": {
        "version": "Version of this form. It changes if a field changes its meaning; new fields may come at any time.",
        "run": "Id of the run, the name of its folder.",
        "suite": "Name of the suite.",
        "verdict": "Of the run: the most serious of its cells, in the order of the exit codes.",
        "cells": "Every cell of the plan, also those that did not run.",
        "holes": "Combinations that were not run, each with its reason.",
        "causes": "Cells with findings that say the same, with the place that explains them; largest first.",
        "suite_path": "The suite file, as it was given.",
        "started_s": "Wall time at the start, seconds since 1970-01-01 UTC.",
        "seconds": "How long the run took.",
        "counts": "Number of cells by verdict, and of flaky ones.",
        "interrupted": "Whether the run was ended before all cells were done.",
        "seatrial": "Version of Seatrial that ran it.",
        "target": "The target that everything was run on, as --target asked for it; empty: as the suite says.",
        "axes": "By trial and axis: the values in the order of the suite, also of excluded combinations.",
        "commit": "Commit of what was tested, where it is known; with a + behind it, and changes on top.",
        "against": "What news are relative to: `history`, or the id of a run; empty: nothing was compared.",
        "changes": "Number of cells by what became of them since the last time.",
        "past_runs": "Earlier runs that cells of this one were in, oldest first.",
    },
    "CellResult": {
        "id": "Readable id: trial[axis=value,...].",
        "hash": "Eight hex digits of the cell's content; the same content has the same hash in every run.",
        "axes": "Readable value of each axis.",
        "verdict": "The class of the cell's outcome.",
        "trial": "Name of its trial in the suite.",
        "kind": "Kind of its trial.",
        "flaky": "It passed, but not in its first attempt.",
        "why": "Why it was skipped, is expected to fail, or could not be judged.",
        "attempts": "Every try, in order; the findings are those of the last, unless the others outvoted it.",
        "findings": "Every check's result.",
        "metrics": "Metrics by name: a number, an object with value and unit, or an object of more metrics.",
        "benchmark": "Name of its series of metrics: the same for all its repeats, and in every run.",
        "fingerprint": "Of its conditions; metrics of two never mix.",
        "conditions": "What must be equal for metrics to be compared: hardware, axes, command. By dotted names.",
        "exhibits": "Typed data of its kind to show beside the findings.",
        "under_test": "What may differ, for it is what is judged: ref, image, packages, variables. By dotted names.",
        "news": "What became of it since the last time; null: it did not run, or nothing was compared.",
    },
    "CellNews": {
        "change": "first (it never ran before), new (it fails and did not the last time), slower and faster (it was "
        "not, the last time), known (as the last time), other-cause (as bad as the last time, with "
        "another cause), fixed, or same (good then and now).",
        "last": "The last time that this cell ran before, or the run that was asked for; null: there is none.",
        "before": "Its verdict then.",
        "since": "When it began to fail, or to be slower or faster, without a break; if known, with its present cause.",
        "runs": "How many of its runs were looked at, this one included; at most 21.",
        "flaky": "In how many of them it passed on a retry.",
        "bad": "In how many of them it did not pass.",
        "past": "Those before this one, oldest first: the place of the run in past_runs, and the verdict or `flaky`.",
    },
    "CauseNews": {
        "change": "new (never seen before in this suite), known (seen the last time), or back (seen, but earlier).",
        "since": "The first time that it was seen; null: it is new.",
        "last": "The last time before this run.",
    },
    "Moment": {
        "run": "Id of the run.",
        "at_s": "Wall time at which the cell, or else the run, started in it.",
        "commit": "What was tested in it, where that is known.",
    },
    **dict.fromkeys(("Table", "Series", "Distribution", "Timeline"), _CHART),
    "TokenDiff": {**_SHOWN, "data": "Both sides of two answers where they differ."},
    "TokenDifference": {
        "agreement": "How far the answers agree.",
        "message": "What is different, in one line.",
        "position": "Of the first token that differs, from 0.",
        "size": "How large the difference is.",
        "tolerance": "How large it may be.",
        "expected": "The token that is expected there.",
        "got": "The one that came.",
    },
    "DiffToken": {
        "text": "Of the token.",
        "logprob": "Its log-probability, where it is known.",
        "rank": "1 is the likeliest.",
        "top": "The likeliest tokens in its place.",
    },
    "Text": {**_SHOWN, "data": "What it says."},
    "TextBody": {"text": "Any text."},
    "Cause": {
        "id": "Six hex digits, the same in every run that says the same.",
        "verdict": "Of the findings that say so.",
        "text": "What most of its cells say.",
        "cells": "Hashes of its cells; a cell may be in several causes.",
        "place": "Axis values (at most two) that explain the failures; empty if none do.",
        "there": "How many of its cells are in that place.",
        "of": "How many cells of the run are in that place.",
        "shared": "Axis values (at most two) of exactly these cells, where there are too few to rule out chance.",
        "news": "Whether it is new, or since when it is known; null: there was nothing to compare with.",
    },
    "Excluded": {
        "trial": "Name of the trial.",
        "axes": "The combination.",
        "why": "Why it is not run.",
        "cause": "What says so: disabled, needs, exclude, tag, select or pairwise.",
    },
    "AttemptResult": {
        "number": "1 for the first.",
        "place": "Where it ran.",
        "stages": "When it reached each stage of a job's life.",
        "exit": "How it ended.",
        "verdict": "What this attempt alone came to.",
        "why": "Why, where it did not pass.",
        "headline": "The one line that says most of why it did not pass, such as the error that a program printed.",
        "seconds": "From started to finished, by one clock; null if it did not get there.",
        "parts": "Where there is more than one, each by its name; place, stages and exit above are those of the first.",
        "metrics": "Its metrics, where the cell's are those of another attempt.",
        "unjudged": "All that is wrong with it is that metrics which have bounds could not be judged by them.",
    },
    "PartResult": {
        "place": "Where it ran.",
        "stages": "When it reached each stage of a job's life.",
        "exit": "How it ended.",
    },
    "Place": {
        "target": "Name of the target.",
        "machine": "Name of the machine; empty where the trial needs none.",
        "host": "The hosts as one text, where they are known.",
        "hosts": "The hosts, where they are known.",
    },
    "StageTime": {
        "stage": "The stage that was reached.",
        "wall_s": "Wall time, seconds since 1970-01-01 UTC.",
        "source": "Whose clock that is.",
        "uncertainty_s": "How far off it may be.",
    },
    "Exit": {
        "outcome": "How the job ended.",
        "code": "Exit code, if it exited.",
        "signal": "Number of the signal, if one killed it.",
        "message": "What happened, for a person.",
    },
    "Finding": {
        "step": "The step that was judged; for a notebook `notebook PATH PASS`.",
        "check": "The check that judged it.",
        "verdict": "Its verdict.",
        "class": "The class of what went wrong, for a notebook: error, shell, dead, timeout, memory, broken.",
        "message": "What was found, in one line.",
        "evidence": "The text that proves it, its most telling line first.",
        "data": "The same for programs; its fields depend on the check.",
    },
}


class ResultsError(SeatrialError):
    """The results at `path` are missing or cannot be read."""

    def __init__(self, path: Path, reason: str, advice: str) -> None:
        super().__init__(f"{path}: {reason}. {advice}")
        self.path = path
        self.reason = reason
        self.advice = advice


def read_results(folder: Path) -> RunResults:
    path, attach = folder / "results.json", f"`seatrial attach {folder.name}` makes it anew from the journal."
    try:
        results = read_json(path, RunResults)
    except FileNotFoundError as error:
        advice = f"The run has not finished: `seatrial attach {folder.name}` takes it up."
        raise ResultsError(path, "there are no results yet", advice) from error
    except OSError as error:
        raise ResultsError(path, error.strerror or str(error), "Check its permissions.") from error
    except Unreadable as error:
        raise ResultsError(path, f"this is not a results.json: {error}", attach) from error
    if results.version > VERSION:
        reason = f"it has version {results.version}, this Seatrial knows {VERSION}"
        raise ResultsError(path, reason, "Upgrade Seatrial to read it.")
    for cell in results.cells:
        for name in (cell.hash, *(part for attempt in cell.attempts for part in attempt.parts)):
            if name in ("", ".", "..") or "/" in name or "\0" in name:  # files are read below a folder of that name
                raise ResultsError(path, f"{name[:80]!r} is no name of a cell or part", attach)
    return results


def results_schema() -> dict[str, Any]:
    """The JSON Schema of results.json. Unknown fields are allowed: the form grows."""
    made = decode(msgspec.json.encode(msgspec.json.schema(RunResults)), dict[str, Any])  # lists for tuples
    for part in made["$defs"].values():
        if "description" in part:  # a docstring: Python 3.13 takes out its indentation, older ones do not
            part["description"] = " ".join(part["description"].split())
    for name, meanings in _MEANING.items():
        properties = made["$defs"][name]["properties"]
        for field, meaning in meanings.items():
            properties[field] = _described(properties[field], meaning)
    return {"$schema": SCHEMA_ID, "title": "Results of a Seatrial run", **made}


def _described(field: dict[str, Any], meaning: str) -> dict[str, Any]:
    return {"description": meaning, **field}
