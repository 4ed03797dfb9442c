"""What the agent of a job on this machine is to do, in the form that `agent/job_file.py` describes."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from seatrial.targets.local.containers import container_request
from seatrial.targets.local.environments import PreparedEnvironment
from seatrial.targets.local.folders import JobFolder, JobSubmission
from seatrial.targets.local.variables import job_environment


def job_file(
    submission: JobSubmission,
    folder: JobFolder,
    environment: PreparedEnvironment,
    secrets: Mapping[str, str],
    agent: str,
) -> dict[str, Any]:
    """The only place that the values of secrets go to. `agent`: the file that it runs from."""
    job, limits = submission.job, submission.job.limits
    python = str(environment.python) if environment.python else None
    folders = environment.bin_folders
    return {
        "version": 1,
        "name": job.name,
        "steps": [
            {"name": step.name, "kind": step.kind, "args": step.args, "timeout_s": step.timeout_s} for step in job.steps
        ],
        "limits": {"run_s": limits.run_s, "stall_s": limits.stall_s, "grace_s": limits.grace_s},
        "folders": {"out": str(folder.path), "work": str(folder.work), "files": str(folder.files)},
        "variables": job_environment(submission, folder.path, secrets, folders, environment.virtual_env),
        "secret_variables": sorted(secrets),
        "environment": {"interpreter": python, "driver": environment.driver},
        "cpus": submission.cpus,
        "memory_bytes": job.resources.memory_bytes,
        "ready": _ready(submission),
        "container": container_request(submission, folder.path, environment.image, secrets, agent),
    }


def _ready(submission: JobSubmission) -> dict[str, Any] | None:
    """The port that answers when the job is ready, and what to ask it for."""
    ready = submission.job.ready
    if ready is None:
        return None
    path = quote(ready.path, safe="/?[]@!$&'()*+,;=:%~")
    return {"port": submission.ports[ready.port], "path": f"/{path.lstrip('/')}" if path else ""}
