"""Job files for the agent on this machine, in the format of `agent/job_file.py`: steps, variables and the container.

A job gets its own home, its runtime first on PATH, and from the caller's environment only network settings.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from seatrial.targets.agent_file import agent_job, job_variables
from seatrial.targets.local.containers import Image, removal
from seatrial.targets.local.environments import PreparedEnvironment
from seatrial.targets.local.folders import JobSubmission
from seatrial.targets.local.programs import machine_path

# Variables passed to jobs: locale, time zone, user, proxies, certificates and visible GPUs.
_PASSED = (
    "LANG", "LC_ALL", "TZ", "USER", "LOGNAME",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO",
    "PIP_CERT",
    "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES",
)  # fmt: skip
_ENGINE_VARIABLES = re.compile(
    r"(CONTAINERS?|DOCKER|XDG|PODMAN)_.*|HOME|PATH|TMPDIR|(https?|no|all)_proxy", re.IGNORECASE
)
_PASSED_INSIDE = ("LANG", "TZ", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
_INSIDE = "/seatrial"


def job_file(
    submission: JobSubmission, folder: Path, environment: PreparedEnvironment, secrets: Mapping[str, str], agent: str
) -> dict[str, object]:
    """The only place that has secret values. `agent`: path of the agent's zipapp."""
    job, ready = submission.job, None
    if job.ready is not None:
        path = quote(job.ready.path, safe="/?[]@!$&'()*+,;=:%~")
        ready = {"port": submission.ports[job.ready.port], "path": f"/{path.lstrip('/')}" if path else ""}
    image, python = environment.image, str(environment.python) if environment.python else None
    return {
        **agent_job(job),
        "folders": {"out": str(folder), "work": str(folder / "work"), "files": str(folder / "files")},
        "variables": _variables(submission, folder, secrets, environment),
        "secret_variables": sorted(secrets),
        "environment": {"interpreter": python, "driver": environment.driver},
        "cpus": submission.cpus,
        "memory_bytes": job.resources.memory_bytes,
        "ready": ready,
        "container": container_request(submission, folder, image, secrets, agent) if image is not None else None,
    }


def _variables(
    submission: JobSubmission, folder: Path, secrets: Mapping[str, str], environment: PreparedEnvironment
) -> dict[str, str]:
    job = submission.job
    own = {"TMPDIR": str(folder / "tmp")}
    passed = dict(os.environ)  # Seatrial's own program needs the same access to targets as this process
    if not job.environment.seatrial:
        passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
        own |= {
            "LANG": passed.get("LANG", "C.UTF-8"),
            "HOME": str(folder / "home"),
            "PATH": os.pathsep.join([*map(str, environment.bin_folders), machine_path()]),
            **({"VIRTUAL_ENV": str(environment.virtual_env)} if environment.virtual_env else {}),
        }
        if submission.gpus:
            # Makes CUDA show only the job's GPUs. Indices, because not every library reads UUIDs; in PCI order, because
            # nvidia-smi counts that way and CUDA by default does not.
            own["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, submission.gpus))
            own["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    marks = {**job_variables(job, submission.ports), "SEATRIAL_FILES": str(folder / "files")}
    return {**passed, **own, **job.env, **secrets, **marks}


def container_request(
    submission: JobSubmission, folder: Path, image: Image, secrets: Mapping[str, str], agent: str
) -> dict[str, object]:
    """The `container` field that `agent/run/container.py` reads."""
    job, podman = submission.job, Path(image.engine).name == "podman"
    mounts = {
        folder / "work": "work", folder / "files": "files", folder / "home": "home", folder / "tmp": "tmp",
        folder / "out": "out", folder / "records.jsonl": "out/records.jsonl", Path(agent): "agent.pyz:ro",
    }  # fmt: skip
    create = ["run", "--detach", "--name", submission.container]
    create += ["--security-opt", "label=disable", "--entrypoint", "/bin/sh", *image.ulimits]
    for label, value in (("run", job.run), ("job", job.name)):
        create += ["--label", f"seatrial.{label}={value}"]
    for source, inside in mounts.items():
        create += ["--volume", f"{source}:{_INSIDE}/{inside}"]
    for number in submission.ports.values():
        create += ["--publish", f"127.0.0.1:{number}:{number}"]
    if job.resources.memory_bytes is not None:
        create += ["--memory", f"{job.resources.memory_bytes}b", "--memory-swap", f"{job.resources.memory_bytes}b"]
    if job.resources.cpu is not None:
        create += ["--cpus", f"{job.resources.cpu:g}"]
    create += _gpu_options(submission, podman)
    own = {"HOME": f"{_INSIDE}/home", "TMPDIR": f"{_INSIDE}/tmp", "SEATRIAL_FILES": f"{_INSIDE}/files"}
    passed = {name: os.environ[name] for name in _PASSED_INSIDE if name in os.environ}
    return {
        "engine": image.engine,
        "name": submission.container,
        "create": [*create, image.name],
        "remove": removal(image.engine),
        "env": {name: value for name, value in os.environ.items() if _ENGINE_VARIABLES.fullmatch(name)},
        "values": {**passed, **job.env, **own, **job_variables(job, submission.ports)},
        "secret_values": dict(secrets),
        "python": image.python,
    }


def _gpu_options(submission: JobSubmission, podman: bool) -> list[str]:
    """Options for the job's GPUs, numbered from 0 inside the container; if none are known here, the engine chooses."""
    count, given = submission.job.resources.gpu.count, submission.gpus
    if given and podman:
        return [word for index in given for word in ("--device", f"nvidia.com/gpu={index}")]
    if given:
        return ["--gpus", f'"device={",".join(map(str, given))}"']  # docker parses the value as CSV
    if count:
        return ["--device", "nvidia.com/gpu=all"] if podman else ["--gpus", str(count)]
    return []
