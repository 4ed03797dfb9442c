"""A command and its checks: what the agent looks for in its output and files, and the findings on both."""

from collections.abc import Mapping
from typing import Any

from seatrial.checks.command import check_log, cut_short
from seatrial.checks.files import check_files
from seatrial.checks.findings import MetricData
from seatrial.checks.metrics import check_metric, check_reading, value_name
from seatrial.job import Finding, Observation, ObservedStep, Step, Verdict, unit_factor, value_text
from seatrial.job.metric import FixedBound
from seatrial.suite.command import Command, CommandChecks, parse_limit
from seatrial.suite.patterns import follow_texts, for_agent

READ_S = 900.0  # time limit for finding and reading files after the command
# Size limit per file for the agent. Real profiles have 0.2 to 100 MB.
_MOST_BYTES = {"json": 64 << 20, "xplane": 2 << 30, "kineto": 2 << 30, "": 1 << 62}
WORK, KEPT = ".", "files"  # the agent's names of the work folder and the folder of kept files
READING = "what is read"  # the entry of `read` among the files; user names cannot contain a space


def command_steps(command: Command) -> list[Step]:
    """The command, and a step that reads its files if the suite names any."""
    texts = follow_texts(command.contains, command.matches, command.never)
    checks = follow_checks(command)
    follow = {key: [*texts.get(key, ()), *checks[key]] for key in ("must", "never")} | {"values": checks["values"]}
    args = {
        "command": command.command,
        **({"follow": follow} if any(follow.values()) else {}),
        **keep_output(command, command.output_file),
    }
    reads = read_steps(command.reads, command, output=command.output_file)
    return [Step(command.step, "command", args, command.timeout_s), *reads]


def keep_output(checks: CommandChecks, file: str) -> dict[str, str]:
    """Keeps the complete output if a reader needs it."""
    return {"keep": file} if checks.reading is not None and checks.reading.file is None else {}


def follow_checks(checks: CommandChecks) -> dict[str, Any]:
    """Patterns that the agent looks for in the output."""
    values = {value_name(name): metric.log for name, metric in checks.metrics.items() if metric.log is not None}
    return {
        "must": [for_agent(pattern) for pattern in checks.log.must],
        "never": [for_agent(pattern) for pattern in checks.log.never],
        "values": {name: for_agent(pattern) for name, pattern in values.items()},
    }


def read_steps(name: str, checks: CommandChecks, place: str | None = None, output: str = "") -> list[Step]:
    """A step that reads the entries of `files`, the files of metrics, and the reader's input: in the folder `place`,
    else in the job's folders. `output` is the file with the kept output."""

    def entry(match: str, reader: str, **more: Any) -> dict[str, Any]:
        most = _MOST_BYTES.get(reader, _MOST_BYTES["json"])
        return {"match": match, "reader": reader, "most_bytes": most, **more}

    entries = {one: entry(files.match, files.valid or "", keys=[]) for one, files in checks.files.items()}
    for one, metric in checks.metrics.items():
        if metric.file is not None:
            entries[value_name(one)] = entry(metric.file, "json", keys=[metric.key])
    if reading := checks.reading:
        match = reading.file or f"{KEPT}/{output}"
        entries[READING] = entry(match, reading.reader, metrics=True, options=dict(reading.options))
    args = {"roots": [place] if place else [WORK, KEPT], "entries": entries}
    return [Step(name, "read", args, READ_S)] if entries else []


def judge_command(
    command: Command, ran: ObservedStep, files: ObservedStep, observation: Observation
) -> tuple[list[Finding], dict[str, MetricData]]:
    """Findings on the log, files and metrics of a command (not on its texts), and its metrics by name."""
    findings = check_log(ran, command.log)
    for name, entry in command.files.items():
        findings += check_files(files, observation, name, entry, f"{command.reads} {name}")
    found, metrics = judge_metrics(command, ran, files)
    return findings + found, metrics


def judge_metrics(
    checks: CommandChecks, ran: ObservedStep, files: ObservedStep, hosts: int = 1
) -> tuple[list[Finding], dict[str, MetricData]]:
    """The findings on `metrics` and `read`, and the metrics. `hosts`: how many must each report a metric of the log."""
    findings: list[Finding] = []
    metrics: dict[str, MetricData] = {}
    for name, metric in checks.metrics.items():
        finding, made = check_metric(ran, files, name, metric, hosts)
        findings.append(finding)
        metrics |= {name: made} if made else {}
    if reading := checks.reading:
        found, read = check_reading(ran, files, READING, reading.reader, reading.file or "")
        findings, metrics = findings + found, metrics | read
    return findings, metrics


def judge_bounds(checks: CommandChecks, ran: ObservedStep, metrics: Mapping[str, MetricData]) -> list[Finding]:
    """A finding for each of `bounds`; `metrics` are all metrics of the command."""
    findings = []
    for name, text in checks.bounds.items():
        operator, number, unit = parse_limit(text)
        check, metric = f"bound {name}", metrics.get(name)
        if metric is None:
            early = ran.outcome is None or cut_short(ran)
            verdict, class_ = (Verdict.SKIPPED, "") if early else (Verdict.FAILED, "metric")
            findings.append(Finding(ran.name, check, verdict, class_, f"{name} was not measured (expected {text})"))
            continue
        shown = value_text(metric["value"], metric["unit"])
        factor = unit_factor(metric["unit"], unit)
        if factor is None:
            message = f"{name} is {shown}, which cannot be compared with {text}; correct the unit of one of them"
            findings.append(Finding(ran.name, check, Verdict.INVALID, "unit", message))
            continue
        operator = operator or (">=" if metric.get("better") == "higher" else "<=")
        met = FixedBound(name, "", operator, number, text).met_by(metric["value"] * factor)
        verdict, class_ = (Verdict.PASSED, "") if met else (Verdict.FAILED, "metric")
        message = f"{name} is {shown} (expected {operator}{text.lstrip('<>= ')})"
        findings.append(Finding(ran.name, check, verdict, class_, message))
    return findings
