"""Logs and files that are there already are read as those of a job are, by `python AGENT read`."""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from reads import LOSS, STEP, host_profile, pattern, values

from seatrial.job import Outcome, Step, read_records
from seatrial.job.observation import ObservedStep

STEPS = [Step("train", "command"), Step("files", "read")]


def read(agent: Path, **spec: Any) -> tuple[ObservedStep, ObservedStep]:
    done = subprocess.run(
        [sys.executable, "-I", "-S", agent, "read"], input=json.dumps(spec).encode(), capture_output=True, check=True
    )
    assert done.stderr == b""
    records = read_records(done.stdout.splitlines(), STEPS)
    assert (records.outcome, records.broken_records) == (Outcome.EXITED, 0)
    assert records.hardware["cores"] >= 1
    return records.steps[0], records.steps[1]


TRAIN = {
    "values": {"loss": LOSS, "step": STEP},
    "must": [pattern("Finished", "Finished")],
    "never": [pattern("Traceback", "Traceback")],
    "finite": ["loss"],
}


def test_a_log_and_a_folder_give_what_a_job_would_have(agent: Path, tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_bytes(b"step: 1 loss: 2\nTraceback\nstep: 2 loss: nan\nstep: 3 loss: 1\nFinished")
    (tmp_path / "profile").mkdir()
    (tmp_path / "profile/host.xplane.pb").write_bytes(host_profile({1: 0.1, 2: 0.2}))
    logs = [{"path": str(tmp_path / "log.txt"), "host": 0}]
    entries = {"profile": {"match": "**/*.xplane.pb", "reader": "xplane"}}
    train, files = read(agent, logs=logs, follow=TRAIN, roots=[str(tmp_path)], entries=entries)
    assert train.outcome is Outcome.EXITED
    assert values(train.notes, "loss") == [2, "nan", 1]
    assert train.result["must"]["Finished"]["line"] == 5
    assert train.result["never"]["Traceback"]["line"] == 2
    assert (train.result["stopped"], train.result["errors"]) == (None, [])
    (found,) = files.result["profile"]["files"]
    assert found["path"] == "profile/host.xplane.pb"
    assert [step["number"] for step in found["profile"]["steps"]] == [1, 2]


def test_each_host_has_a_log_of_its_own_also_a_compressed_one(agent: Path, tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(b"step: 1 loss: 2\nhalf")
    (tmp_path / "1").write_bytes(gzip.compress(b"step: 1 loss: 3\nFinished\n"))
    logs = [{"path": str(tmp_path / str(host)), "host": host} for host in (0, 1)]
    train, _ = read(agent, logs=logs, follow=TRAIN, roots=[], entries={})
    assert [values(train.notes, "loss", host) for host in (0, 1)] == [[2], [3]]
    assert train.result["must"]["Finished"]["host"] == {"1": 1}
    assert train.result["lines"] == 4


def test_one_log_of_several_hosts_says_whose_each_line_is(agent: Path, tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_bytes(b"[0] loss: 1\n[1] loss: 2\n")
    logs = [{"path": str(tmp_path / "log.txt"), "host": None}]
    train, _ = read(agent, logs=logs, follow=TRAIN, hosts=2, roots=[], entries={})
    assert [values(train.notes, "loss", host) for host in (0, 1)] == [[1], [2]]


def test_logs_that_cannot_be_read_are_told_and_the_others_are_read(agent: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"loss: 1\n" * 1000, mtime=0)[:-12])
    (tmp_path / "good").write_bytes(b"loss: 7\n")
    names = ["none", ".", "cut.gz", "good"]
    logs = [{"path": str(tmp_path / name), "host": host} for host, name in enumerate(names)]
    train, _ = read(agent, logs=logs, follow=TRAIN, roots=[], entries={})
    assert [Path(error["path"]).name for error in train.result["errors"]] == ["none", tmp_path.name, "cut.gz"]
    assert values(train.notes, "loss", 3) == [7]


def test_the_time_for_all_of_it_is_limited(agent: Path, tmp_path: Path) -> None:
    logs = [{"path": "/dev/zero", "host": 0}]
    train, files = read(
        agent, logs=logs, follow=TRAIN, roots=[str(tmp_path)], entries={"x": {"match": "*"}}, seconds=0.5
    )
    assert "the read timed out" in train.result["errors"][0]["error"]
    assert files.result["x"]["count"] == 0


def test_without_any_log_only_files_are_read(agent: Path, tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text('{"step_execution_time": 2.4}')
    entries = {"m": {"match": "m.json", "reader": "json", "keys": ["step_execution_time"]}}
    train, files = read(agent, logs=[], follow=None, roots=[str(tmp_path)], entries=entries)
    assert train.result["lines"] == 0
    assert files.result["m"]["files"][0]["values"] == {"step_execution_time": 2.4}
