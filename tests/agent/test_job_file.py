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
        ([], "it is list, not an object"),
        ({"steps": []}, "its version is None, and this agent reads 1"),
        ({"version": 2, "steps": []}, "its version is 2"),
        ({"version": 1}, "`steps` is null"),
        ({"version": 1, "steps": {}}, "`steps` is dict"),
        ({"version": 1, "steps": ["true"]}, 'step 0 is "true", not an object'),
        ({"version": 1, "steps": [STEP, {"name": "x"}]}, "step 1: `kind` is null, not a text"),
        ({"version": 1, "steps": [{**STEP, "args": [1]}]}, "`args` is list"),
        ({"version": 1, "steps": [{**STEP, "timeout_s": "1m"}]}, '`timeout_s` is "1m"'),
        ({"version": 1, "steps": [], "limits": {"run_s": True}}, "`run_s` is true"),
        ({"version": 1, "steps": [], "limits": 5}, "`limits` is 5"),
        ({"version": 1, "steps": [], "folders": {"out": "/x"}}, "folders: `work` is null"),
        ({"version": 1, "steps": [], "hosts": "2"}, '`hosts` is "2"'),
        ({"version": 1, "steps": [], "ready": {"path": "/"}}, "`port` is null"),
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
