"""The program for an image without Python: the steps of a job as a plain shell can run them."""

import math
from collections.abc import Iterator
from importlib.resources import files
from shlex import quote
from typing import Any

import msgspec

from seatrial.job import Job, Step

NEEDS = "a Python of 3.8 or later in the image; there is none"
_READ = ("must", "never", "values", "finite", "curve", "stall")  # of a training: what is read of its output as it comes


def plain_script(job: Job) -> str:
    """`plain.sh` of a job: functions that are the same for all, and what this one asks for.

    Commands and names reach the shell as single-quoted words, and nothing else of the job does."""
    limits = job.limits
    settings = {
        "run_s": _seconds(limits.run_s),
        "stall_s": _seconds(limits.stall_s),
        "grace_s": _seconds(limits.grace_s) or "0",
    }
    lines = [f"{name}={value}" for name, value in settings.items()]
    lines += _before(job)
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
        yield _refuse(f"The job has secrets, and to keep them out of its log and files needs {NEEDS}.")
    if environment.interpreter:
        yield _refuse(f"The interpreter that the job names is not in the image, or older than 3.8. It needs {NEEDS}.")
    if job.hosts > 1:
        yield _refuse(f"A job on several hosts needs {NEEDS}.")
    if environment.python or environment.packages:
        yield _refuse(f"An environment with packages needs {NEEDS}.")
    if job.inputs:
        yield "unpack"


def _refuse(text: str) -> str:
    return f"refuse {quote(text)}"


def _step(index: int, step: Step, heading: str) -> str:
    why = _too_much(step)
    if why:
        result = msgspec.json.encode({"error": why}).decode()
        return f"refuse_step {index} {heading} {quote(result)}"
    timeout = _seconds(step.timeout_s) or "-"
    return f"run_step {index} {timeout} {heading} {step.kind} {quote(_safe(step.args['command']))}"


def _too_much(step: Step) -> str:
    """Why a shell alone cannot do it; empty when it can."""
    if step.kind not in ("run", "command", "train"):
        return f"a step of kind {_word(step.kind)} needs {NEEDS}"
    command = step.args.get("command")
    if not isinstance(command, str) or "\0" in command:
        return "the step has no command that a shell could run"
    if step.kind == "train" and int(step.args.get("hosts") or 1) > 1:
        return f"a training on several hosts needs {NEEDS}"
    asked = [name for name in _READ if step.args.get(name)]
    if step.kind == "train" and asked:
        return f"reading the output of a training ({', '.join(asked)}) needs {NEEDS}"
    return ""


def _word(value: Any) -> str:
    return repr(str(value)[:100]).replace("\0", "?")


def _safe(text: str) -> str:
    """As UTF-8 can hold it."""
    return text.encode("utf-8", "replace").decode()


def _seconds(value: float | None) -> str:
    return "" if value is None else str(math.ceil(value))
