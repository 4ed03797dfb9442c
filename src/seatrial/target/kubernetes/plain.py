"""The program for an image without Python: the steps of a job as a plain shell can run them."""

import math
from collections.abc import Iterator
from importlib.resources import files
from shlex import quote

import msgspec

from seatrial.job import Job, Step

NEEDS = "a Python of 3.8 or later in the image; there is none"


def plain_script(job: Job) -> str:
    """`plain.sh` of a job: functions that are the same for all, and the calls of this one.

    Commands and names reach the shell single-quoted, and nothing else of the job does."""
    return "\n".join([script("plain"), *_calls(job), "finish", ""])


def script(name: str) -> str:
    """The text of one of the programs that are handed into pods."""
    return (files(__package__) / "scripts" / f"{name}.sh").read_text()


def _calls(job: Job) -> Iterator[str]:
    environment = job.environment
    yield f"run_s={_seconds(job.limits.run_s)} grace_s={_seconds(job.limits.grace_s) or 0}"
    if environment.interpreter:
        yield f"try_python {_quoted(environment.interpreter)}"
    yield "exec 2>/dev/null"
    yield "begin"
    needs_more = {
        "The job has secrets, and to keep them out of its log and files": job.secrets,
        "An environment with an interpreter or packages": environment.interpreter
        or environment.python
        or environment.packages,
        "A job on several hosts": job.hosts > 1,
        "A job with files of the machine that submits it": job.inputs,
    }
    yield from (f"finish refused {quote(f'{what} needs {NEEDS}.')}" for what, wanted in needs_more.items() if wanted)
    for index, step in enumerate(job.steps):
        heading = " ".join(f"[{index + 1}/{len(job.steps)}] {step.name}".split()).replace("\0", "?")
        yield f"step {index} {_quoted(heading)} {_kind_and_text(step)}"


def _kind_and_text(step: Step) -> str:
    command = step.args.get("command")
    if step.kind not in ("run", "command"):
        problem = f"a step of kind {step.kind[:100]!r} needs {NEEDS}"
    elif not isinstance(command, str) or "\0" in command:
        problem = "the step has no command that a shell could run"
    else:
        return f"{step.kind} '{_seconds(step.timeout_s)}' {_quoted(command)}"
    return f"refused '' {quote(msgspec.json.encode({'error': _utf8(problem)}).decode())}"


def _quoted(text: str) -> str:
    return quote(_utf8(text))


def _utf8(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _seconds(value: float | None) -> str:
    return "" if value is None else str(math.ceil(value))
