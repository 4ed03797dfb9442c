"""A suite from torchprime's step_time_bounds.yaml: a training trial for each benchmark, with its five checks.

Their workflow asks of every job: it ends well, its log says that it finished, there is exactly one profile, the step
time of its metrics file is within the bounds, and, where the file has a target, the last loss is near to it.
"""

import re
import shlex

from seatrial.baseline.models import STEP_TIME, BaselineEntry, Baselines
from seatrial.job import BoundState
from seatrial.migrate import Imported, literal, suite_name, unique_name
from seatrial.suite.yaml.document import scalar
from seatrial.suite.yaml.problem import printable

NO_COMMAND = "echo say in this suite how {benchmark} is started >&2; exit 64"

_HEAD = """\
# Made from {file} by `seatrial import`. What torchprime's workflow checks of each job is in `x-checks`.
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
    """The suite as text. `baseline` is the file as the suite will name it; `{benchmark}` and `{name}` of `command` are
    put in."""
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
    # Quoted: a name of the file is one word of the command, whatever is in it.
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
        lines.append("    loss: {}  # its target and tolerance are those of the baseline")
    if entry.bound.state is BoundState.DISABLED:
        lines.append(f"    disabled: {scalar(entry.bound.why)}")
    return lines


def _unknown(baselines: Baselines, command: str | None) -> tuple[str, ...]:
    entries = [metrics[STEP_TIME] for metrics in baselines.entries.values()]
    start = "how a job is started: `command` of every trial ends with 64 until you write it (or give --command)"
    comments = [
        *([start] if command is None else []),
        "where a job runs: every trial runs on this machine until it has a `machine`",
        "where a job writes its files: `profile` and `outputs` are looked for below the work folder",
    ]
    half = [entry.benchmark for entry in entries if (entry.target_loss is None) != (entry.loss_tolerance is None)]
    if half:
        comments.append(f"half of a loss check, so none was made: {', '.join(half)}")
    invented = [entry.benchmark for entry in entries if entry.invented]
    if invented:
        some = ", ".join(invented)
        comments.append(f"bounds that a comment calls invented: {some}; `seatrial baseline update` after some runs")
    return tuple(comments)
