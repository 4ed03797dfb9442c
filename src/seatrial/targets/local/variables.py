"""The environment variables of a job: its own home, its runtime first, of the caller's only the way to the network."""

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from seatrial.targets.local.folders import JobSubmission
from seatrial.targets.local.reservations import gpu_variables

# How the machine reaches the world, speaks and counts time; and which of its GPUs the caller was given.
_PASSED = (
    "LANG", "LC_ALL", "TZ", "USER", "LOGNAME",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO",
    "PIP_CERT",
    "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES",
)  # fmt: skip


def job_environment(
    submission: JobSubmission,
    folder: Path,
    secrets: Mapping[str, str],
    bin_folders: Iterable[Path] = (),
    virtual_env: Path | None = None,
) -> dict[str, str]:
    job = submission.job
    if job.environment.seatrial:  # our own program, which reaches targets as this process does
        return {
            **os.environ, "TMPDIR": str(folder / "tmp"), **job.env, **secrets, **job_marks(submission),
            "SEATRIAL_FILES": str(folder / "files"),
        }  # fmt: skip
    passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
    own = {
        "LANG": passed.get("LANG", "C.UTF-8"),
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "PATH": os.pathsep.join([*map(str, bin_folders), machine_path()]),
        **({"VIRTUAL_ENV": str(virtual_env)} if virtual_env else {}),
        **gpu_variables(submission),
    }
    return {**passed, **own, **job.env, **secrets, **job_marks(submission), "SEATRIAL_FILES": str(folder / "files")}


def machine_path() -> str:
    """The PATH of this process without the programs of Seatrial's own environment, which its user may have activated:
    what is tested must not find them. An interpreter that it shares with others is the machine's, and stays."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if sys.prefix == sys.base_prefix:
        return os.pathsep.join(folders)
    own = os.path.realpath(os.path.join(sys.prefix, "bin"))
    return os.pathsep.join(folder for folder in folders if os.path.realpath(folder) != own)


def job_marks(submission: JobSubmission) -> dict[str, str]:
    """By these its processes are found, whatever became of who started them; and by these they learn their ports."""
    job, ports = submission.job, submission.ports
    return {
        "SEATRIAL_RUN": job.run,
        "SEATRIAL_CELL": job.cell,
        "SEATRIAL_ATTEMPT": str(job.attempt),
        "SEATRIAL_JOB": job.name,
        **{f"SEATRIAL_PORT_{name.upper().replace('-', '_')}": str(number) for name, number in ports.items()},
        **({"SEATRIAL_PORT": str(next(iter(ports.values())))} if ports else {}),
    }
