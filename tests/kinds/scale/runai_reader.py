"""Reads `submitted.json` and `sampled.json` as strictly as Run:ai's `plotter.py` does, from what is known about it: a
missing field, a null or a time in another format stops it. Their script is not part of this repository: to run it, too,
set RUNAI_SCALE_TEST_TOOL to its folder."""

import json
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path

SINCE = {
    "workloadCreatedTimestamp": "submitTimestamp",
    "jobCreatedTimestamp": "workloadCreatedTimestamp",
    "firstPodCreatedTimestamp": "jobCreatedTimestamp",
    "lastPodCreatedTimestamp": "jobCreatedTimestamp",
    "podGroupCreatedTimestamp": "firstPodCreatedTimestamp",
    "podSchedulingDecisionTimestamp": "podGroupCreatedTimestamp",
    "firstEvictionTimestamp": "podGroupCreatedTimestamp",
    "firstPVCBindRequestTimestamp": "podGroupCreatedTimestamp",
    "firstPVCBindTimestamp": "firstPVCBindRequestTimestamp",
    "backendJobCreatedTimestamp": "podGroupCreatedTimestamp",
}


def seconds_between(folder: Path) -> dict[str, dict[str, float]]:
    """By job, the seconds from the event before to each event. Entries without a submission are left out."""
    submitted = {
        (one["jobName"], one["projectName"]): one["submitTimestamp"]
        for one in json.loads((folder / "submitted.json").read_text())
    }
    found = {}
    for one in json.loads((folder / "sampled.json").read_text()):
        key = one["jobName"], one["projectName"]
        if key in submitted:
            entry = {**one, "submitTimestamp": submitted[key]}
            times = {name: whole_second(text) for name, text in entry.items() if "Time" in name}  # every such field
            found[key[0]] = {name: (times[name] - times[since]).total_seconds() for name, since in SINCE.items()}
    return found


def whole_second(text: str) -> datetime:
    for mark in (".", "Z", "+"):
        text = text.partition(mark)[0]
    return datetime.strptime(text.replace("T", " "), "%Y-%m-%d %H:%M:%S")


def run_theirs(folder: Path, plot: str) -> str | None:
    """What their script printed; None without it. Raises CalledProcessError if it crashed."""
    scripts = os.environ.get("RUNAI_SCALE_TEST_TOOL")
    if not scripts:
        return None
    command = [sys.executable, str(Path(scripts) / "plotter.py"), "-o", str(folder), "--plot", plot]
    done = subprocess.run(command, env={**os.environ, "MPLBACKEND": "agg"}, capture_output=True, text=True, check=True)
    return done.stdout
