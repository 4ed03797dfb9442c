"""What users write: suites, baselines, past runs, curves, notebooks, kubeconfigs."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from fuzz import mutate
from fuzz.fuzzing import Kind
from fuzz.seeds import BASELINE, KUBECONFIG, ROOT, SUITE, TORCHPRIME, Seeds
from kinds.serving.prompt_files import FILES
from kinds.serving.test_other_load_generators import FILES as RESULTS
from kinds.serving.test_other_load_generators import LOAD
from migrate.test_torchprime import SUBMIT
from seatrial import SeatrialError, plugins
from seatrial.agent.masking.mask import Mask
from seatrial.agent.notebook import document
from seatrial.baseline import read_for_trials
from seatrial.baseline.past_runs import read_runs
from seatrial.job import Unreadable
from seatrial.job.reading import read_json
from seatrial.kinds.arrivals_model import read_trace
from seatrial.kinds.scale.workload import rendered
from seatrial.kinds.serving.cases import cases_of, read_case_file
from seatrial.kinds.serving.cases.read import CASE_LIMITS
from seatrial.kinds.serving.prompts import read_prompts
from seatrial.kinds.serving.results import read_results
from seatrial.kinds.training.curve import read_curve
from seatrial.kubernetes import KubernetesError, load_access
from seatrial.kubernetes.credentials import Credentials
from seatrial.kubernetes.objects import UNDECODABLE
from seatrial.migrate import import_suite
from seatrial.migrate.runai.files import SAMPLED_FILE, SUBMISSION_FILE, SUBMITTED_FILE, BegunSubmission
from seatrial.migrate.runai.sample import NamespaceSnapshot, sampled
from seatrial.migrate.runai.submit import Waves, labelled
from seatrial.migrate.runai.times import MILESTONES, csv_text, metrics_of, read_folder
from seatrial.plan import PlanError, expand
from seatrial.report.html.notebook import render_file
from seatrial.suite import SuiteError, load
from seatrial.suite.yaml.source import read_source

CASES = ROOT / "tests" / "kinds" / "serving" / "cases"
CURVE = b'{"0": 5.5, "10": 4.2, "20": 3.9}'
CURVE_CSV = b"step,loss\n0,5.5\n10,4.2\n20,3.9\n"
PAST = b'[{"run": "nightly-1", "step_time": 2.4, "at": "2026-10-03T06:00:00Z", "passed": true}, {"run": "nightly-2"}]'
PAST_CSV = (
    b"run,benchmark,step_time,date,state\nnightly-1,llama,2.4,2026-10-03T06:00:00Z,passed\nnightly-2,llama,2.5,,\n"
)


def of_users(seeds: Seeds) -> Iterator[Kind]:
    folder = seeds.folder

    def reading(name: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
        def use(data: bytes) -> object:
            (folder / name).write_bytes(data)
            return read(folder / name)

        return use

    suites = [SUITE.encode(), *(path.read_bytes() for path in sorted(ROOT.glob("examples/*/suite.yaml")))]
    trials = list(load(seeds.folder / "suite.yaml", *plugins.models(), read_for_trials).trials.values())
    notebooks = [path.read_bytes() for path in sorted(ROOT.glob("examples/demo/*.ipynb"))]
    notebooks += [
        (ROOT / f"tests/notebooks/{name}.ipynb").read_bytes() for name in ("plain", "old_format", "parameters")
    ]
    yield Kind("suites", suites, mutate.heavy_yaml, reading("fuzzed.yaml", _suite), (SuiteError, PlanError))
    yield Kind(
        "baselines",
        [BASELINE.encode(), TORCHPRIME.encode()],
        mutate.yaml_text,
        reading("fuzzed-bounds.yaml", lambda path: read_for_trials(path, trials)),
        (SuiteError,),
    )
    cases = [path.read_bytes() for path in sorted(CASES.glob("*.yaml"))]
    as_json = [json.dumps(read_source(CASES / "tester.yaml").data).encode()]
    yield Kind("cases", cases, mutate.yaml_text, reading("cases.yaml", _cases), (SuiteError,))
    yield Kind("cases-json", as_json, mutate.json_text, reading("cases.json", _cases), (SuiteError,))
    yield Kind("past-runs", [PAST], mutate.json_text, reading("past.json", read_runs), (SuiteError,))
    yield Kind("past-runs-csv", [PAST_CSV], mutate.log_text, reading("past.csv", read_runs), (SuiteError,))
    yield Kind("curves", [CURVE], mutate.json_text, reading("curve.json", read_curve), (Unreadable,))
    yield Kind("curves-csv", [CURVE_CSV], mutate.log_text, reading("curve.csv", read_curve), (Unreadable,))
    yield Kind("notebooks", notebooks, mutate.json_text, reading("fuzzed.ipynb", _notebook), (document.Broken,))
    yield Kind("workflows", [SUBMIT.encode()], mutate.yaml_text, reading("e2e_test.yml", _imported), (SeatrialError,))
    for name, seed in FILES.items():
        change = mutate.log_text if name.endswith(".csv") else mutate.json_text
        yield Kind(f"load-{name.replace('.', '-')}", [seed], change, reading(name, _load_prompts), (SuiteError,))
    results = [json.dumps(data).encode() for data in RESULTS.values()]
    read = reading("load.json", lambda path: read_results(path, LOAD))
    yield Kind("load-results", results, mutate.json_text, read, (SeatrialError,))
    yield from _of_runai(reading)
    yield Kind(
        "kubeconfigs", [KUBECONFIG.encode()], mutate.heavy_yaml, reading("kubeconfig", _kubeconfig), (KubernetesError,)
    )


def _imported(path: Path) -> object:
    return import_suite(path, path.with_name("imported.yaml"), None, plugins.models())


def _of_runai(reading: Callable[[str, Callable[[Path], object]], Callable[[bytes], object]]) -> Iterator[Kind]:
    """Files of Run:ai's scale test tool, and ours beside them."""
    theirs = ROOT / "tests/kinds/scale/runai"
    both = {name: (theirs / "earlier" / name).read_bytes() for name in (SUBMITTED_FILE, SAMPLED_FILE)}

    def shown(path: Path) -> object:
        for name, data in both.items():
            if name != path.name:
                path.with_name(name).write_bytes(data)
        rows = read_folder(path.parent).rows
        return csv_text(rows), [metrics_of(rows, one.name) for one in MILESTONES]

    for name, data in both.items():
        yield Kind(
            f"runai-{name.removesuffix('.json')}", [data], mutate.json_text, reading(name, shown), (SeatrialError,)
        )
    templates = [(theirs / f"{name}.yaml").read_bytes() for name in ("training", "distributed", "interactive")]
    claim = (theirs / "pvc.yaml").read_text()

    def filled(data: bytes) -> object:
        text = data.decode(errors="replace")
        values = dict.fromkeys(("PROJECT_PLACEHOLDER", "NUM_WORKERS_PLACEHOLDER", "NUM_GPUS"), "7")
        made, *_ = rendered("t", text, {name: value for name, value in values.items() if name in text}, claim)
        return labelled(Waves("run", "a", "runai-a", made, 1, 1, 0.0, {"seatrial/run": "run"}))

    times = {"creationTimestamp": "2026-05-04T10:00:01Z"}
    named = {"name": "j-1", "namespace": "runai-a", "uid": "u", "labels": {"release": "j-1"}, **times}
    decided = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-05-04T10:00:02Z"}
    evicted = {"name": "pg.18ac3f9e1a2b3c4d", "annotations": {"evictor-pod-group-name": "j-1"}}
    seen = {
        "workloads": [{"metadata": named, "spec": {"name": {"value": "j-1"}}}],
        "jobs": [{"metadata": named}],
        "pods": [{"metadata": named, "status": {"conditions": [decided]}}],
        "groups": [{"metadata": named}],
        "events": [
            {"metadata": evicted, "reason": "Evict", "firstTimestamp": "2026-05-04T10:00:01Z"},
            {"reason": "Scheduled", "eventTime": "2026-05-04T10:00:02.5Z", "involvedObject": {"uid": "u"}},
            {"reason": "ProvisioningSucceeded", "firstTimestamp": "x", "involvedObject": {"name": "pvc-j-1"}},
        ],
        "at": "2026-05-04T10:00:59Z",
    }
    yield Kind(
        "runai-objects",
        [json.dumps(seen).encode()],
        mutate.json_text,
        lambda data: sampled(msgspec.json.decode(data, type=NamespaceSnapshot)),
        UNDECODABLE,
    )
    yield Kind("runai-templates", templates, mutate.heavy_yaml, filled, (SuiteError,))
    begun = msgspec.json.encode(BegunSubmission(1, "submission-1", "runai-a", "run.ai/v2alpha1", "TrainingWorkload", 5))
    read = reading(SUBMISSION_FILE, lambda path: read_json(path, BegunSubmission))
    yield Kind("runai-submissions", [begun], mutate.json_text, read, (Unreadable,))


def _suite(path: Path) -> object:
    suite = load(path, *plugins.models(), read_for_trials)
    plan = expand(suite)
    return msgspec.json.encode(plan.as_json()) if len(plan.cells) < 1_000 else None


def _cases(path: Path) -> object:
    """Whether a file is read quickly or with the place of everything, it says the same."""
    found = read_case_file(path)
    assert found == cases_of(read_source(path, limits=CASE_LIMITS))
    return msgspec.json.encode(found)


def _load_prompts(path: Path) -> object:
    """Whatever it has can be sent, and its times, if it is a trace, are in order."""
    encoded = [msgspec.json.encode(prompt) for _, prompt in read_prompts(path)]
    if path.name == "trace.jsonl":
        times = read_trace(path)
        assert times == sorted(times)
    return encoded


def _notebook(path: Path) -> object:
    render_file(path)  # or a page that says why it cannot be shown
    notebook = document.read_notebook(str(path))
    document.execution(notebook)
    document.inject(notebook, {"epochs": 1, "name": "é"})
    document.keep_notebook(notebook, str(path.with_name("kept.ipynb")), Mask([]))
    return json.loads(path.with_name("kept.ipynb").read_bytes())


def _kubeconfig(path: Path) -> object:
    """Also how its user would be presented; a plugin that it names is not there."""
    for context in (None, "two"):
        access = load_access(path, context)
        credentials = Credentials(access)
        asyncio.run(credentials.refresh())
    return None
