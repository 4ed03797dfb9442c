"""The situations of docs/verdicts.md. Each is really run, in a folder of its own; `act` returns the exit code."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from typing import Any

from forked import exit_code, run_forked, start_forked
from world import SEATRIAL, World

WITHIN_S = 300.0  # for a job that starts when the machine has time
Act = Callable[[World], int]


@dataclass(frozen=True)
class Situation:
    text: str
    act: Act
    green: bool = False  # whether it may exit with 0
    quick: bool = False  # nothing is run: it needs no process of its own


def good(text: str, act: Act) -> Situation:
    return Situation(text, act, green=True)


bad = Situation  # it may not exit with 0


def refused(text: str, act: Act) -> Situation:
    """Nothing runs."""
    return Situation(text, act, quick=True)


class Here(World):
    """Its commands run in this process."""


def seatrial(world: World, *args: str, **env: str) -> int:
    if isinstance(world, Here):
        return world._in_process(args, {**world.env, **env}).returncode
    return run_forked(args, world.folder, {**world.env, **env}, WITHIN_S).returncode


def of_suite(suite: str, *args: str, command: str = "run", **files: str) -> Act:
    """Runs a suite as it is written."""

    def act(world: World) -> int:
        for name, text in {"suite.yaml": suite, **files}.items():
            (world.folder / name).write_text(text.replace("$HERE", str(world.folder)))
        return seatrial(world, command, "suite.yaml", *args)

    return act


def runtime(fields: str, *args: str, head: str = "", **files: str) -> Act:
    common = "kind: runtime, facts: false, retries: 0"
    return of_suite(f"name: n\n{head}\ntrials: {{t: {{{common}, {fields}}}}}", *args, **files)


def training(fields: str, *args: str, **files: str) -> Act:
    return of_suite(f"name: n\ntrials: {{t: {{kind: training, retries: 0, {fields}}}}}", *args, **files)


# ---- model servers

# Answers every request as its argument says.
SERVER = """
import http.server, json, os, sys
how = sys.argv[1]
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    asked = 0
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        Handler.asked += 1
        if how == "dies" and Handler.asked > 1: os._exit(3)
        text = {"wrong": "no", "empty": ""}.get(how, "yes")
        choice = {"index": 0, "text": text, "finish_reason": "stop"}
        body = json.dumps({"choices": [choice], "usage": {"completion_tokens": 1, "prompt_tokens": 1}}).encode()
        status = 500 if how == "errors" and Handler.asked > 1 else 200
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *arguments): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["SEATRIAL_PORT"])), Handler).serve_forever()
"""
YES = {"text": "yes", "inputTokenCount": 1, "generatedTokenCount": 1}
CASES = json.dumps([{"name": "a", "request": {"requests": [{"text": "x"}]}, "response": {"responses": [YES]}}])


def serving(how: str, fields: str = "") -> Act:
    command = how if " " in how else f"exec {sys.executable} $HERE/server.py {how}"
    server = f"{{command: '{command}', ready: {{within: {'1s' if 'sleep' in how else '10m'}}}}}"
    once = "stream: false, batching: false, retries: 0"
    trial = f"{{kind: serving, {once}, server: {server}, cases: [cases.yaml]{fields}}}"
    return of_suite(f"name: n\ntrials: {{t: {trial}}}", **{"server.py": SERVER, "cases.yaml": CASES})


# ---- clusters under load, with processes as workloads


def scale(**fields: Any) -> Act:
    trial = {
        "kind": "scale",
        "target": "here",
        "retries": 0,
        "workload": {"kind": "pod", "command": ["true"]},
        "local": {"places": 4},
        "count": 4,
        "arrivals": {"rate": 100},
        "until": "finished",
        "settle": "4m",
        "bounds": {"finished.p99": "10m"},
    }
    return of_suite(json.dumps({"name": "n", "trials": {"t": {**trial, **fields}}}))


ENDLESS = {"kind": "pod", "gpus": 1, "command": ["sleep", "infinity"]}

# ---- metrics

METRIC = r"command: 'echo m=%s', metrics: {m: {log: 'm=(\S+)', unit: s, better: lower}}"
BOUNDED = f"{METRIC}, baseline: bounds.yaml, benchmark: b, confirm: 0"
BOUNDS = "baselines: {b: {m: {lower: 1, upper: 2, center: 1.5, unit: %s, better: lower, runs: 30, state: usable}}}"


def bounded(value: str, *args: str, unit: str = "s", metric: str = BOUNDED) -> Act:
    return training(metric % value, *args, **{"bounds.yaml": BOUNDS % unit})


# ---- stop and resume

WAITS = "run: ['touch $HERE/begun; while [ ! -e $HERE/go ]; do sleep 0.05; done; exit %s']"


def begun(world: World, code: int) -> BaseProcess:
    """A run with a job at work."""
    suite = f"name: n\ntrials: {{t: {{kind: runtime, facts: false, retries: 0, {WAITS % code}}}}}"
    world.suite(suite.replace("$HERE", str(world.folder)))
    output = world.folder / "output"
    process = start_forked(("run", "suite.yaml"), world.folder, world.env, output, output)
    until = time.monotonic() + WITHIN_S
    while not (world.folder / "begun").exists() or not world.started():
        assert exit_code(process, 0) is None, output.read_text()
        assert time.monotonic() < until
        time.sleep(0.02)
    return process


def stopped(how: Callable[[BaseProcess, World], Any]) -> Act:
    """Does something to a run with a job at work. The exit code is that of the run."""

    def act(world: World) -> int:
        process = begun(world, 0)
        how(process, world)
        code = exit_code(process, WITHIN_S)
        assert code is not None
        return code

    return act


def killed(code: int, *then: str) -> Act:
    """Kills Seatrial while its job is at work, then runs the commands. The exit code is that of the last one."""

    def act(world: World) -> int:
        process = begun(world, code)
        process.kill()
        exit_code(process, WITHIN_S)
        if then == ("attach last",):  # else the job must still be at work
            (world.folder / "go").touch()
        return [seatrial(world, *command.split()) for command in then][-1]

    return act


def after(first: Act, *then: str) -> Act:
    def act(world: World) -> int:
        first(world)
        return [seatrial(world, *command.split()) for command in then][-1]

    return act


def full_disk(*then: str) -> Act:
    """The disk is full at the fifth write of the record."""

    def act(world: World) -> int:
        world.suite("name: n\ntrials: {t: {kind: runtime, facts: false, run: ['true']}}")
        code = seatrial(world, "run", "suite.yaml", SEATRIAL_FAILPOINT="5:ENOSPC")
        return [seatrial(world, *command.split()) for command in then][-1] if then else code

    return act


def in_shell(script: str, code: int) -> Act:
    def act(world: World) -> int:
        world.suite(f"name: n\ntrials: {{t: {{kind: runtime, facts: false, run: ['exit {code}']}}}}")
        command = ["sh", "-c", script, SEATRIAL]
        return subprocess.run(
            command, cwd=world.folder, env=world.env, capture_output=True, timeout=WITHIN_S
        ).returncode

    return act


def notebook(source: str, tags: tuple[str, ...] = ()) -> Act:
    cell = {"cell_type": "code", "metadata": {"tags": tags}, "source": source, "outputs": [], "execution_count": None}
    head = f"runtimes: {{r: {{interpreter: {sys.executable}}}}}"
    text = json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 4})
    return runtime("runtime: r, notebooks: [{path: n.ipynb, passes: [fresh]}]", head=head, **{"n.ipynb": text})


NO_CLONE = "runtimes: {r: {workspace: {git: 'file:///no/such/repository'}}}"
NO_PYTHON = "runtimes: {r: {interpreter: /no/such/python}}"
LONG = "run: [{command: 'F() { yes | head -c 1000000; }; F; echo Traceback; F', never: [Traceback]}]"
TRAINED = (
    "command: 'echo step 1 loss: 0.5; echo m=1; echo done', log: {must: done}, steps: {count: 1}, loss: {}, "
    r"metrics: {m: {log: 'm=(\S+)', max: 2}}"
)
# A machine that is too slow to see the steps apart stops it by the time limit, with the same verdict.
STALLED = (
    "command: 'for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo step $i; sleep 0.1; done; sleep 600', "
    "stall: {factor: 2, least: 500ms, after: 2}, timeout: {run: 60s, grace: 1s}"
)
NO_BASELINE = f"{METRIC % 1}, baseline: none.yaml, benchmark: b"
OPTIONAL = BOUNDED.replace("better: lower", "better: lower, required: false")
NO_FILE = "command: ls, metrics: {m: {file: m.json, key: a}}"
CURVE = "command: ls, loss: {curve: c.csv, tolerance: 1%}"
STORED = "command: ls, artifacts: '%s', files: {m: {match: x}}"
SILENT = "timeout: {stall: 1s, grace: 1s}"
SOON = "timeout: {run: 1s, grace: 1s}"
LATER = "timeout: {run: 4s, grace: 1s}"  # another cell passes meanwhile
XFAIL = "xfail: [{why: known}]"
STEPS = "run: [{name: a, command: 'false'}, {name: b, command: 'false'}], xfail: [{step: run a, why: known}]"
RETRIED = "kind: runtime, facts: false, retry_on: [failed], run: ['mkdir $HERE/once && exit 1; true']"

DISABLED = "trials: {t: {kind: runtime, disabled: broken, run: ['true']}}"
FALSE = "matrix: {n: [1, 2]}, run: ['false']"
HOUR = "run: ['true'], machine: m, estimate: 1h"
DEAR = "machines: {m: {price: 5}}"

SECTIONS = {
    "Runtime trials": [
        good("A command exits with 0.", runtime("run: ['true']")),
        bad("A command exits with 3.", runtime("run: ['exit 3']")),
        bad("A command is killed.", runtime("run: ['kill -9 $$']")),
        bad("A command is not installed.", runtime("commands: [no-such-command]")),
        bad("A module cannot be imported.", runtime("imports: [no_such_module]")),
        bad("The output has a forbidden text.", runtime("run: [{command: echo Traceback, never: [Traceback]}]")),
        bad(
            "The forbidden text is in the middle of a long output, which is not kept.",
            runtime(LONG),
        ),
        bad("A notebook cell raises an exception.", notebook("1 / 0")),
        bad(
            "A thread of a notebook raises an exception.",
            notebook(
                "import threading\nthread = threading.Thread(target=lambda: 1 / 0)\nthread.start()\nthread.join()"
            ),
        ),
        bad("A notebook has no code cell that runs.", notebook("1 / 0", tags=("skip",))),
        bad("The interpreter of a runtime does not exist.", runtime("run: ['true'], runtime: r", head=NO_PYTHON)),
        bad("The code cannot be cloned.", runtime("run: ['true'], runtime: r", head=NO_CLONE)),
        bad("The job is lost: its supervisor is killed.", runtime("run: ['kill -9 $PPID; sleep 60']")),
    ],
    "Training trials": [
        good("The job exits with 0, and its log, steps and metric are as required.", training(TRAINED)),
        bad("The job exits with 1.", training("command: 'exit 1'")),
        bad("The job exits with 0 without its last line.", training("command: echo hello, log: {must: done}")),
        bad("The loss becomes NaN.", training("command: 'echo step 1 loss: nan; sleep 600', loss: {}")),
        bad("The loss is never printed.", training("command: echo hello, loss: {}")),
        bad("The log has too few steps.", training("command: echo step 1, steps: {count: 2}")),
        bad("A file is missing.", training("command: echo hello, files: {profile: {match: '*.pb'}}")),
        bad("The file of a metric is missing.", training(NO_FILE)),
        good(
            "The file of an optional metric is missing.",
            training(NO_FILE.replace("a}", "a, required: false}")),
        ),
        bad("A metric is NaN.", training(METRIC % "nan")),
        bad("A metric is over its `max`.", training(TRAINED.replace("m=1", "m=3"))),
        bad("One of two hosts exits with 1.", training("command: 'exit $SEATRIAL_HOST', hosts: 2")),
        bad("The job makes no new step.", training(STALLED)),
        bad(
            "The recorded loss curve cannot be read.",
            training(CURVE, **{"c.csv": "none"}),
        ),
        bad(
            "The storage with the results cannot be read.",
            training(STORED % "file://$HERE/suite.yaml/x"),
        ),
    ],
    "Model servers": [
        good("The answers are right.", serving("right")),
        bad("An answer is wrong.", serving("wrong")),
        bad("The answers are empty.", serving("empty")),
        bad("The server answers with errors.", serving("errors")),
        bad("The server dies while it is asked.", serving("dies")),
        bad("The server exits at once.", serving("exit 1")),
        bad("The server never gets ready.", serving("sleep 600")),
        bad("Every case is skipped.", serving("right", ", skip: [{case: '*', why: not today}]")),
    ],
    "Clusters under load": [
        good("All workloads finish in time.", scale()),
        bad("Workloads fail.", scale(workload={"kind": "pod", "command": ["false"]})),
        bad("Workloads do not start.", scale(workload=ENDLESS, local={"places": 1}, until="started", settle="500ms")),
    ],
    "Metrics and bounds": [
        good("A metric is within its bounds.", bounded("1.5")),
        bad("A metric is worse than its bounds.", bounded("9")),
        bad("A metric is better than its bounds.", bounded("0.1")),
        bad("The bounds have another unit than the metric.", bounded("1.5", unit="GB")),
        bad("A metric with bounds is not measured.", bounded("none")),
        refused(
            "Bounds have no side that can fail, with `--strict`.",
            training(BOUNDED % "1.5", "--strict", **{"bounds.yaml": (BOUNDS % "s").replace("upper: 2", "upper: null")}),
        ),
        bad("An optional metric with bounds is not measured.", bounded("", metric=OPTIONAL)),
        good("A metric has no baseline.", training(NO_BASELINE)),
        bad("A metric has no baseline, with `--strict`.", training(NO_BASELINE, "--strict")),
        refused("A fixed bound is not a number (`<=nan`).", training(f"{METRIC % 1}, bounds: {{m: '<=nan'}}")),
        refused("The baseline file is broken.", training(BOUNDED % 1, **{"bounds.yaml": "baselines: [1"})),
    ],
    "Known failures, retries and limits": [
        good("A known failure (`xfail`) fails.", runtime(f"run: ['false'], {XFAIL}")),
        good("A known failure times out.", runtime(f"run: ['sleep 600'], {SOON}, {XFAIL}")),
        bad("A known failure passes.", runtime(f"run: ['true'], {XFAIL}")),
        bad("One step is a known failure, and another step fails.", runtime(STEPS)),
        bad(
            "A known failure, and the infrastructure fails.",
            runtime(f"run: [ls], runtime: r, {XFAIL}", head=NO_CLONE),
        ),
        good("A cell fails, and passes on a retry.", of_suite(f"name: n\ntrials: {{t: {{{RETRIED}}}}}")),
        bad("The job runs longer than `timeout.run`.", runtime(f"run: ['sleep 600'], {SOON}")),
        bad(
            "The job is silent longer than `timeout.stall`.",
            runtime(f"run: ['sleep 600'], {SILENT}"),
        ),
        bad("One cell fails, one passes.", runtime("matrix: {n: [1, 0]}, run: ['exit ${n}']")),
        bad("One cell times out, one passes.", runtime(f"matrix: {{n: [600, 0]}}, run: ['sleep ${{n}}'], {LATER}")),
        bad("One cell times out, one fails.", runtime(f"matrix: {{n: [600, x]}}, run: ['sleep ${{n}}'], {LATER}")),
        bad(
            "`--max-failures` leaves cells out.",
            runtime(FALSE, "--max-failures=1", "--parallel=1"),
        ),
    ],
    "Stop and resume": [
        bad("You press Ctrl-C.", stopped(lambda process, _: os.kill(process.pid or 0, signal.SIGINT))),
        bad(
            "Another terminal runs `seatrial cancel`.",
            stopped(lambda _, world: seatrial(world, "cancel", "last")),
        ),
        bad("Seatrial is killed.", stopped(lambda process, _: process.kill())),
        good("Seatrial is killed, the job passes, `seatrial attach`.", killed(0, "attach last")),
        bad("Seatrial is killed, the job fails, `seatrial attach`.", killed(1, "attach last")),
        bad("Seatrial is killed, `seatrial reap`, `seatrial attach`.", killed(0, "reap", "attach last")),
        bad("Seatrial is killed, `seatrial cancel`, `seatrial attach`.", killed(0, "cancel last", "attach last")),
        bad("`seatrial attach` of a finished run that failed.", after(runtime("run: ['false']"), "attach last")),
    ],
    "Records and output": [
        bad("The disk with the records is full.", full_disk()),
        good("The disk was full, and has room again: `seatrial attach`.", full_disk("attach last")),
        bad("The run folder is deleted during the run.", runtime("run: ['rm -r $HERE/runs']")),
        good("The history cannot be written.", runtime("run: ['true']", "--history", "suite.yaml")),
        bad("The copy with `--out` fails.", runtime("run: ['cd $HERE; mv out gone; touch out']", "--out", "out")),
        bad("A run fails, and its output is closed.", in_shell('"$0" run suite.yaml >&- 2>&-', 1)),
    ],
    "Nothing to run, or wrong input": [
        refused(
            "Every combination is excluded.", runtime("matrix: {n: [1]}, exclude: [{n: 1, why: no}], run: ['true']")
        ),
        refused("`seatrial plan` of a suite in which all trials are disabled.", of_suite(DISABLED, command="plan")),
        refused("`--select` matches nothing.", runtime("run: ['true']", "--select", "n=1")),
        good("`--failed` of a run without failures.", after(runtime("run: ['true']"), "run suite.yaml --failed last")),
        refused("The suite is missing.", lambda world: seatrial(world, "run", "suite.yaml")),
        refused("The suite is not YAML.", of_suite("trials: [")),
        refused("The suite has an unknown field.", runtime("runs: ['true']")),
        refused("A trial has no check that can fail.", runtime("tags: [x]")),
        refused("The suite names an unknown target.", runtime("run: ['true'], target: nowhere")),
        refused("`--target` is unknown.", runtime("run: ['true']", "--target", "nowhere")),
        refused("A notebook is missing.", runtime("notebooks: [{path: none.ipynb}]")),
        bad("A secret is missing.", runtime("run: ['true'], env: {A: {secret: NO_SUCH_SECRET}}")),
        refused(
            "The package for a storage is missing.",
            training(STORED % "nowhere://x"),
        ),
        refused(
            "The plan may cost more than `--max-cost`.",
            runtime(HOUR, "--max-cost=1", head=DEAR),
        ),
    ],
}
