"""The one form in which the agent is told what to do, and what is said of anything else."""

from typing import Any

import pytest
from supervised import Supervised

from seatrial.agent.job_file import JobError, RunLimits, read_job_file

STEP = {"name": "run true", "kind": "command"}


def test_what_is_left_out_or_null_has_its_default() -> None:
    least = {"version": 1, "steps": [STEP]}
    for given in (least, dict.fromkeys(("name", "limits", "ready", "cpus", "log", "variables")) | least):
        job = read_job_file(given, {"PATH": "/bin", "TOKEN": "hush"})
        assert (job.name, job.steps, job.limits, job.folders) == ("", [STEP], RunLimits(None, None, 10.0), None)
        assert (job.env, job.secrets) == ({"PATH": "/bin", "TOKEN": "hush"}, [])
        assert (job.hosts, job.inputs, job.cpus, job.memory_bytes, job.log_segments) == (1, False, [], None, 4)
        assert (job.ready, job.container) == (None, None)
        with pytest.raises(JobError, match="folders"):
            job.in_folders()


def test_secrets_are_the_values_of_the_variables_that_are_named() -> None:
    job = {"version": 1, "steps": [], "secret_variables": ["TOKEN", "EMPTY", "ABSENT"]}
    assert read_job_file(job, {"TOKEN": "hush", "EMPTY": ""}).secrets == ["hush"]
    assert read_job_file({**job, "variables": {"TOKEN": "own"}}, {"TOKEN": "hush"}).secrets == ["own"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "expected an object, got list"),
        ({"steps": []}, "job version None (this agent reads 1)"),
        ({"version": 2, "steps": []}, "job version 2"),
        ({"version": 1}, "invalid value for `steps`: null"),
        ({"version": 1, "steps": {}}, "invalid value for `steps`: dict"),
        ({"version": 1, "steps": ["true"]}, 'step 0: expected an object, got "true"'),
        ({"version": 1, "steps": [STEP, {"name": "x"}]}, "step 1: `kind` must be a string, got null"),
        ({"version": 1, "steps": [{**STEP, "args": [1]}]}, "invalid value for `args`: list"),
        ({"version": 1, "steps": [{**STEP, "timeout_s": "1m"}]}, 'invalid value for `timeout_s`: "1m"'),
        ({"version": 1, "steps": [], "limits": {"run_s": True}}, "invalid value for `run_s`: true"),
        ({"version": 1, "steps": [], "limits": 5}, "invalid value for `limits`: 5"),
        ({"version": 1, "steps": [], "folders": {"out": "/x"}}, "folders: `work` must be a string, got null"),
        ({"version": 1, "steps": [], "hosts": "2"}, 'invalid value for `hosts`: "2"'),
        ({"version": 1, "steps": [], "ready": {"path": "/"}}, "invalid value for `port`: null"),
    ],
)
def test_anything_else_is_refused_with_what_is_wrong(given: Any, said: str) -> None:
    with pytest.raises(JobError) as caught:
        read_job_file(given, {})
    assert said in str(caught.value)


def test_a_zygote_says_what_is_wrong_with_a_job_and_starts_the_next(job: Supervised) -> None:
    answer = job.zygote.ask({"version": 1, "steps": [{"name": "x"}]})
    assert "step 0: `kind`" in answer["error"]
    assert "folders" in job.zygote.ask({"version": 1, "steps": []})["error"]
    assert job.run("true")["code"] == 0
