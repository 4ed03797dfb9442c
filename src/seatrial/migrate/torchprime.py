"""Creates a suite from torchprime's step_time_bounds.yaml and workflows: a training trial per job, with its checks.

torchprime's workflow e2e_test.yml submits jobs with `tp run`, and calls reusable_e2e_check.yml, which checks that every
job exits 0, that its log contains the final line, that there is exactly one profile, that the step time is within
bounds, and that the final loss is close to its target, if the file has one. Nothing of them is executed."""

import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from seatrial import SeatrialError
from seatrial.baseline.models import STEP_TIME, BaselineEntry, Baselines
from seatrial.baseline.past_runs import plain_name
from seatrial.job import BoundState
from seatrial.migrate import Imported, literal, suite_name, unique_name
from seatrial.suite.yaml.document import flow_text, scalar
from seatrial.suite.yaml.problem import SuiteError, printable
from seatrial.suite.yaml.source import Source, YamlMap, read_source

CALLER = "e2e_test.yml"
CHECKS = frozenset({"logs", "profile", "step_time", "loss"})  # the scripts e2e_testing/check_*.py
_TP_RUN = re.compile(r"^[ \t]*tp run\b", re.MULTILINE)
_WITH_VALUE = ("--name", "--num-slices", "--priority", "--base-docker-url", "--comments")  # options of `tp run`
_EXPRESSION = re.compile(r"\$\{\{.*?\}\}", re.DOTALL)
_SECRET = re.compile(r"\s*\$\{\{\s*secrets\.(\w+)\s*\}\}\s*")
_CHOICE = re.compile(r"benchmark\s*==\s*'([^']+)'\s*&&\s*needs\.[\w-]+\.outputs\.([\w-]+)")
_ENDS_COMMAND = frozenset({"&&", "||", "|", ";", "&"})
_LOST = re.compile(r"\\[ \t]+$")


class Workload(msgspec.Struct, frozen=True):
    """A training job that the workflow submits."""

    job_name: str  # the beginning of its name on the cluster
    title: str
    line: int
    words: tuple[str, ...]  # the script and its arguments
    env: YamlMap  # as in a suite
    slices: str
    benchmark: str = ""  # empty: the workflow does not check the job


class Workflow(msgspec.Struct, frozen=True):
    root: Path  # the checkout
    workloads: list[Workload]
    bounds: Path | None
    checks: frozenset[str]
    warnings: list[str]


def read_workflow(file: Path) -> Workflow:
    """Raises SeatrialError. The reusable workflow submits nothing: then its caller next to it is read."""
    folder = file.resolve().parent
    root = folder.parents[1] if folder.parts[-2:] == (".github", "workflows") else folder
    source, warnings = _read(file), list[str]()
    submitting = [(step, source.find((*path, "run"), key=True)[0].line) for path, step in _steps(source)]
    submitting = [(step, line) for step, line in submitting if _TP_RUN.search(step["run"])]
    if not submitting:
        if file.name != CALLER and file.with_name(CALLER).is_file():
            return read_workflow(file.with_name(CALLER))
        raise SeatrialError(f"no step of {file} runs `tp run`; import the workflow that submits the jobs, {CALLER}")
    jobs = [_map(job) for job in _map(source.data["jobs"]).values()]
    # A benchmark's job is an output of the submitting job, and that output comes from a step.
    benchmarks = {output: one for job in jobs for one, output in _CHOICE.findall(str(job.get("with")))}
    outputs = [item for job in jobs for item in _map(job.get("outputs")).items()]
    by_step = {
        step: benchmarks.get(name, "") for name, value in outputs for step in re.findall(r"steps\.([\w-]+)", str(value))
    }
    workloads = [_workload(step, by_step, file, line, warnings) for step, line in submitting]
    checks = CHECKS
    for path in {root / str(job["uses"]).removeprefix("./") for job in jobs if job.get("uses")}:
        if path.is_file():
            scripts = frozenset(re.findall(r"check_(\w+)\.py", "".join(step["run"] for _, step in _steps(_read(path)))))
            checks = scripts & CHECKS
            warnings += [f"{path}: not imported: check_{one}.py" for one in sorted(scripts - CHECKS)]
        else:
            warnings.append(f"{path} not found; the suite has all checks of torchprime")
    bounds = re.search(r"[\w./-]*step_time_bounds\.ya?ml", source.text)
    return Workflow(root, workloads, root / bounds[0] if bounds else None, checks, warnings)


def _read(file: Path) -> Source:
    source = read_source(file)
    if source.problems:
        raise SuiteError(source.problems)
    return source


def _map(value: Any) -> YamlMap:
    return value if isinstance(value, dict) else {}


def _steps(source: Source) -> Iterator[tuple[tuple[str | int, ...], YamlMap]]:
    """The steps that run a script, each with its path."""
    for name, job in _map(_map(source.data).get("jobs")).items():
        steps = _map(job).get("steps")
        for number, step in enumerate(steps if isinstance(steps, list) else ()):
            if isinstance(_map(step).get("run"), str):
                yield ("jobs", name, "steps", number), step


def _workload(step: YamlMap, by_step: dict[str, str], file: Path, line: int, warnings: list[str]) -> Workload:
    """Splits the command as a shell does. Leaves out values that only GitHub or the shell knows, with a warning."""
    script: str = step["run"]
    command = _EXPRESSION.sub("\0", script[_TP_RUN.search(script).start() :])  # type: ignore[union-attr]
    command, _, rest = command.replace("\\\n", " ").partition("\n")
    if _LOST.search(command):
        lost = rest.partition("\n")[0].strip()
        why = f"a space after `\\` ends the command, so {lost!r} was never passed"
        warnings.append(f"{file}:{line}: {why}; the suite leaves it out, too")
    try:
        words = shlex.split(_LOST.sub("", command))[2:]
    except ValueError as error:
        raise SeatrialError(f"{file}:{line}: cannot split the command of `tp run`: {error}") from error
    words, slices = list(itertools.takewhile(lambda word: word not in _ENDS_COMMAND, words)), "1"
    while words and words[0].startswith(("-", "\0")):
        option, given, value = words.pop(0).partition("=")
        if option in _WITH_VALUE and not given and words:
            value = words.pop(0)
        slices = value if option == "--num-slices" else slices
    env: YamlMap = {name: str(value) for name, value in _map(step.get("env")).items()}
    env |= {name: {"secret": secret[1]} for name, value in env.items() if (secret := _SECRET.fullmatch(value))}
    unknown = [word for word in words if re.search("[\0$`]", word)]
    unknown += [name for name, value in env.items() if isinstance(value, str) and _EXPRESSION.search(value)]
    warnings += [f"{file}:{line}: left out, because its value is unknown: {one!r}" for one in unknown]
    generated = re.search(r"gen_name\.py\s+([\w.-]+)", script)
    name = generated[1] if generated else str(step.get("id", "training")).removeprefix("run-")
    title, kept = str(step.get("name", "")).removeprefix("Run "), tuple(word for word in words if word not in unknown)
    env = {name: value for name, value in env.items() if name not in unknown}
    return Workload(name, title, line, kept, env, slices, by_step.get(str(step.get("id")), ""))


# The suite.


_HEAD = """\
# Created from {file} by `seatrial import`. `x-checks` has the checks of torchprime's workflow.
name: {name}

x-checks: &checks
  kind: training
  timeout: {{queue: 1h, run: 3h}}"""
_CHECKS = {
    "logs": "  log: {must: [Finished training run]}",
    "profile": "  files: {profile: {match: '**/profile/**/*.xplane.pb', count: 1, valid: xplane}}",
    "step_time": "  metrics:\n    step_time: "
    "{file: '**/outputs/**/train_metrics.json', key: step_execution_time, unit: s, better: lower}",
}
NO_COMMAND = "echo set the command for {benchmark} in this suite >&2; exit 64"
# torchprime's launcher adds the last two arguments. Its checks look for files by host: slice 0, worker N.
_PYTHON = (
    'python {arguments} "profile_dir=$SEATRIAL_FILES/profile/0-$SEATRIAL_HOST" '
    '"output_dir=$SEATRIAL_FILES/outputs/0-$SEATRIAL_HOST"'
)
_VARIANT = re.compile(r"-(?:sa|scan-offload|2d|2-slice|sft|ddp-fsdp|pure-mlp)$")


def suite_from_torchprime(
    baselines: Baselines | None,
    name: str,
    file: str,
    baseline: str,
    command: str | None = None,
    workflow: Workflow | None = None,
    workspace: str = "",
) -> Imported:
    """The suite as text. `file`, `baseline` and `workspace` are paths relative to the suite. `{benchmark}`, `{name}`,
    `{model}` and `{arguments}` are replaced in `command`."""
    checks = workflow.checks if workflow else CHECKS
    head = _HEAD.format(file=printable(file), name=scalar(suite_name(name, "torchprime")))
    lines = [head, *(_CHECKS[one] for one in _CHECKS if one in checks)]
    lines += [f"  baseline: {scalar(baseline)}"] if baseline else []
    lines += [f"  workspace: {{path: {scalar(workspace)}}}"] if workspace else []
    lines.append("\ntrials:")
    known = baselines.entries if baselines else {}
    entries = {name: metrics[STEP_TIME] for name, metrics in known.items() if STEP_TIME in metrics}
    jobs: list[tuple[str, Workload | None]] = [(name, None) for name in entries]
    if workflow:
        jobs = [(_benchmark(one, entries), one) for one in workflow.workloads]
    found: dict[str, int] = {}
    for benchmark, workload in jobs:
        entry = entries.get(benchmark)
        trial = unique_name(benchmark, found, "benchmark")
        found[trial] = workload.line if workload else entry.line if entry else 1
        lines += _trial(trial, benchmark, entry, workload, command, "loss" in checks)
    unknown = _unknown(entries, command, workflow, [benchmark for benchmark, _ in jobs])
    return Imported("\n".join(lines) + "\n", found, unknown)


def _benchmark(workload: Workload, entries: dict[str, BaselineEntry]) -> str:
    """As the workflow says it; else, like update_step_time.py, the one with the same name, or the name of the job."""
    titles = (name for name, entry in entries.items() if entry.title.casefold() == workload.title.casefold())
    names = (name for name in entries if plain_name(name) == plain_name(workload.job_name))
    return workload.benchmark or next(itertools.chain(names, titles), workload.job_name)


def model_name(benchmark: str) -> str:
    """The model of one of torchprime's benchmarks, which are variants of it: `llama-3_1-8b-sa` runs `llama-3.1-8b`."""
    name = re.sub("^ds-", "deepseek-", _VARIANT.sub("", benchmark).replace("-fsdp-cp", "-cp"))
    return re.sub(r"(?<=\d)_(?=\d)", ".", name)


def _trial(
    name: str, benchmark: str, entry: BaselineEntry | None, workload: Workload | None, command: str | None, loss: bool
) -> list[str]:
    title = printable(" ".join((entry.title if entry else workload.title if workload else "").split()))
    words = workload.words if workload else ()
    model = next((word.removeprefix("model=") for word in words if word.startswith("model=")), model_name(benchmark))
    # Quoted, so that any name from the file is one word of the command.
    texts = {"benchmark": shlex.quote(benchmark), "name": shlex.quote(title), "model": shlex.quote(model)}
    written = {name: literal(text) for name, text in {**texts, "arguments": shlex.join(words)}.items()}
    meant = (command or (_PYTHON if workload else NO_COMMAND)).replace("model={benchmark}", "model={model}")
    lines = [
        f"  {scalar(name)}:{f'  # {title}' if title else ''}",
        "    <<: *checks",
        f"    benchmark: {scalar(literal(benchmark))}",
        f"    command: {scalar(re.sub(r'{(benchmark|name|model|arguments)}', lambda match: written[match[1]], meant))}",
    ]
    if workload and workload.env:
        env = {name: literal(value) if isinstance(value, str) else value for name, value in workload.env.items()}
        lines.append(f"    env: {flow_text(env)}")
    if loss and entry and entry.target_loss is not None and entry.loss_tolerance is not None:
        lines.append("    loss: {}  # target and tolerance come from the baseline")
    if entry and entry.bound.state is BoundState.DISABLED:
        lines.append(f"    disabled: {scalar(entry.bound.why)}")
    return lines


def _unknown(
    entries: dict[str, BaselineEntry], command: str | None, workflow: Workflow | None, run: list[str]
) -> tuple[str, ...]:
    if workflow is None:
        comments = ["where jobs write files: `profile` and `outputs` must be below the work folder"]
        if command is None:
            comments.insert(0, "the command of each job: every `command` exits 64 until you set it (or use --command)")
    else:
        comments = ["the image or environment with torchprime's packages: set `runtime`"]
        several = [name for name, one in zip(run, workflow.workloads, strict=True) if one.slices != "1"]
        if several:
            comments.append(f"the hosts of jobs on several slices (`hosts`, `machine`): {', '.join(several)}")
        if unbounded := [name for name in run if name not in entries]:
            comments.append(f"the bounds of {', '.join(unbounded)}: run `seatrial baseline update` after some runs")
        if idle := [name for name in entries if name not in run]:
            comments.append(f"the command of {', '.join(idle)}: no step of the workflow runs it (left out)")
    comments.append("where jobs run: every trial runs on this machine until you set `machine`")
    used = [entry for name, entry in entries.items() if name in run]
    half = [entry.benchmark for entry in used if (entry.target_loss is None) != (entry.loss_tolerance is None)]
    if half:
        comments.append(f"the target or the tolerance of the loss of {', '.join(half)} (check left out)")
    invented = [entry.benchmark for entry in used if entry.invented]
    if invented:
        some = ", ".join(invented)
        comments.append(f"real bounds instead of invented ones: {some}; run `seatrial baseline update` after some runs")
    return tuple(comments)
