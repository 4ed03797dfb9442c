"""The program for an image without Python: the steps of a job as a plain shell can run them."""

import math
from collections.abc import Iterator
from importlib.resources import files
from shlex import quote

import msgspec

from seatrial.job import Job, Step

NEEDS = "a Python of 3.8 or later in the image; there is none"


def plain_script(job: Job) -> str:
    """`plain.sh` of a job: functions that are the same for all, and what this one asks for.

    Commands and names reach the shell as single-quoted words, and nothing else of the job does."""
    lines = [f"run_s={_seconds(job.limits.run_s)}", f"grace_s={_seconds(job.limits.grace_s) or '0'}", *_before(job)]
    for index, step in enumerate(job.steps):
        heading = " ".join(f"[{index + 1}/{len(job.steps)}] {step.name}".split()).replace("\0", "?")
        lines.append(_step(index, step, quote(_safe(heading))))
    return "\n".join([script("plain"), *lines, "finish", ""])


def script(name: str) -> str:
    """The text of one of the programs that are handed into pods."""
    return (files(__package__) / "scripts" / f"{name}.sh").read_text()


def _before(job: Job) -> Iterator[str]:
    environment = job.environment
    if environment.interpreter:
        yield f"try_python {quote(_safe(environment.interpreter))}"
    yield "begin"
    if job.secrets:
        yield f"refuse {quote(f'The job has secrets, and to keep them out of its log and files needs {NEEDS}.')}"
    if environment.interpreter or environment.python or environment.packages:
        yield f"refuse {quote(f'An environment with an interpreter or packages needs {NEEDS}.')}"
    if job.hosts > 1:
        yield f"refuse {quote(f'A job on several hosts needs {NEEDS}.')}"
    if job.inputs:
        yield "unpack"


def _step(index: int, step: Step, heading: str) -> str:
    command = step.args.get("command")
    why = ""
    if step.kind not in ("run", "command"):
        why = f"a step of kind {step.kind[:100]!r} needs {NEEDS}"
    elif not isinstance(command, str) or "\0" in command:
        why = "the step has no command that a shell could run"
    if why:
        return f"refuse_step {index} {heading} {quote(msgspec.json.encode({'error': _safe(why)}).decode())}"
    return f"run_step {index} {_seconds(step.timeout_s) or '-'} {heading} {step.kind} {quote(_safe(str(command)))}"


def _safe(text: str) -> str:
    """As UTF-8 can hold it."""
    return text.encode("utf-8", "replace").decode()


def _seconds(value: float | None) -> str:
    return "" if value is None else str(math.ceil(value))
