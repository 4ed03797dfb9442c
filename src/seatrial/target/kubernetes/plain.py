"""The program for an image without Python: the steps of a job as a plain shell can run them."""

import math
from collections.abc import Iterator
from importlib.resources import files
from shlex import quote

import msgspec

from seatrial.job import Job, Step

NEEDS = "a Python of 3.8 or later in the image; there is none"


def plain_script(job: Job) -> str:
    """`plain.sh` of a job: what is the same for all, and the calls of this one.

    Commands and names reach the shell single-quoted, and nothing else of the job does."""
    return "\n".join([script("plain"), *_calls(job), "finish", ""]).encode("utf-8", "replace").decode()


def script(name: str) -> str:
    """The text of one of the programs that are handed into pods."""
    return (files(__package__) / "scripts" / f"{name}.sh").read_text()


def _calls(job: Job) -> Iterator[str]:
    environment = job.environment
    needs_more = {
        "The job has secrets, and to keep them out of its log and files": job.secrets,
        "An environment with an interpreter": environment.interpreter,
        "An environment with packages": environment.python or environment.packages,
        "A job on several hosts": job.hosts > 1,
        "A job with files of the machine that submits it": job.inputs,
    }
    yield from (f"finish refused {quote(f'{what} needs {NEEDS}.')}" for what, wanted in needs_more.items() if wanted)
    yield f"grace_s={math.ceil(job.limits.grace_s)}"
    for index, step in enumerate(job.steps):
        heading = " ".join(f"[{index + 1}/{len(job.steps)}] {step.name}".split()).replace("\0", "?")
        yield f"step {index} {quote(heading)} {_kind_and_text(step)}"


def _kind_and_text(step: Step) -> str:
    command = step.args.get("command")
    if step.kind not in ("run", "command"):
        problem = f"a step of kind {step.kind[:100]!a} needs {NEEDS}"
    elif not isinstance(command, str) or "\0" in command:
        problem = "the step has no command that a shell could run"
    else:
        limit = "" if step.timeout_s is None else math.ceil(step.timeout_s)
        return f"{step.kind} '{limit}' {quote(command)}"
    return f"refused '' {quote(msgspec.json.encode({'error': problem}).decode())}"
