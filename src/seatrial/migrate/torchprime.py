"""Creates a suite from torchprime's step_time_bounds.yaml: a training trial per benchmark, with its five checks.

torchprime's workflow checks that every job exits 0, that its log contains the final line, that there is exactly one
profile, that the step time is within bounds, and that the final loss is close to its target, if the file has one.
"""

import re
import shlex

from seatrial.baseline.models import STEP_TIME, BaselineEntry, Baselines
from seatrial.job import BoundState
from seatrial.migrate import Imported, literal, suite_name, unique_name
from seatrial.suite.yaml.document import scalar
from seatrial.suite.yaml.problem import printable

NO_COMMAND = "echo set the command for {benchmark} in this suite >&2; exit 64"

_HEAD = """\
# Created from {file} by `seatrial import`. `x-checks` has the checks of torchprime's workflow.
name: {name}

x-checks: &checks
  kind: training
  log: {{must: [Finished training run]}}
  files: {{profile: {{match: '**/profile/**/*.xplane.pb', count: 1, valid: xplane}}}}
  metrics:
    {metric}: {{file: '**/outputs/**/train_metrics.json', key: step_execution_time, unit: s, better: lower}}
  timeout: {{queue: 1h, run: 3h}}
  baseline: {baseline}

trials:
"""


def suite_from_torchprime(baselines: Baselines, name: str, baseline: str, command: str | None = None) -> Imported:
    """The suite as text. `baseline` is the path of the file in the suite. `{benchmark}` and `{name}` are replaced in
    `command`."""
    title, file = scalar(suite_name(name, "torchprime")), printable(baseline)
    head = _HEAD.format(file=file, name=title, metric=STEP_TIME, baseline=scalar(baseline))
    trials: list[str] = []
    lines: dict[str, int] = {}
    for benchmark, metrics in baselines.entries.items():
        name = unique_name(benchmark, lines, "benchmark")
        lines[name] = metrics[STEP_TIME].line
        trials += _trial(name, metrics[STEP_TIME], command)
    return Imported(head + "\n".join(trials) + "\n", lines, _unknown(baselines, command))


def _trial(name: str, entry: BaselineEntry, command: str | None) -> list[str]:
    title = printable(" ".join(entry.title.split()))
    substitutions = {"{benchmark}": entry.benchmark, "{name}": title}
    # Quoted, so that any name from the file is one word of the command.
    written = re.sub(
        r"\{(benchmark|name)\}", lambda match: literal(shlex.quote(substitutions[match[0]])), command or NO_COMMAND
    )
    lines = [
        f"  {scalar(name)}:{f'  # {title}' if title else ''}",
        "    <<: *checks",
        f"    benchmark: {scalar(literal(entry.benchmark))}",
        f"    command: {scalar(written)}",
    ]
    if entry.target_loss is not None and entry.loss_tolerance is not None:
        lines.append("    loss: {}  # target and tolerance come from the baseline")
    if entry.bound.state is BoundState.DISABLED:
        lines.append(f"    disabled: {scalar(entry.bound.why)}")
    return lines


def _unknown(baselines: Baselines, command: str | None) -> tuple[str, ...]:
    entries = [metrics[STEP_TIME] for metrics in baselines.entries.values()]
    start = "the command of each job: every `command` exits 64 until you set it (or use --command)"
    comments = [
        *([start] if command is None else []),
        "where jobs run: every trial runs on this machine until you set `machine`",
        "where jobs write files: `profile` and `outputs` must be below the work folder",
    ]
    half = [entry.benchmark for entry in entries if (entry.target_loss is None) != (entry.loss_tolerance is None)]
    if half:
        comments.append(f"the other half of incomplete loss checks (left out): {', '.join(half)}")
    invented = [entry.benchmark for entry in entries if entry.invented]
    if invented:
        some = ", ".join(invented)
        comments.append(f"real bounds instead of invented ones: {some}; run `seatrial baseline update` after some runs")
    return tuple(comments)
