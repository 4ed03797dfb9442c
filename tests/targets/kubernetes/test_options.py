"""What a suite may say of a Kubernetes target, and what it is told when that is wrong."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from manifest_shapes import options_of
from pydantic import BaseModel, ValidationError

from seatrial.kinds.runtime.kind import kind
from seatrial.suite import SuiteError, load
from seatrial.suite.schema import suite_schema
from seatrial.targets.kubernetes.options import KubernetesOptions
from seatrial.targets.local import LocalOptions

TARGETS: dict[str, type[BaseModel]] = {"local": LocalOptions, "kubernetes": KubernetesOptions}

WRONG = [
    ("{namespce: a}", "namespce", "unknown field 'namespce'; did you mean 'namespace'?"),
    ("{namespace: My Trials}", "My", "use up to 63 lower case letters, digits and -"),
    ("{parallel: 0}", "0", "greater than or equal to 1"),
    ("{parallel: many}", "many", "expected a whole number, got 'many'"),
    ("{pull: Sometimes}", "Sometimes", "expected one of Always, IfNotPresent, Never, got 'Sometimes'"),
    ("{workload: jobsets}", "jobsets", "expected one of job, jobset, got 'jobsets'; did you mean 'jobset'?"),
    ("{keep: soon}", "soon", "invalid duration 'soon'; use seconds (90) or units"),
    ("{files_size: 20}", "20", "invalid size 20; use a number with a unit: 512Mi, 16Gi"),
    ("{keeper: {cpu: some}}", "some", "invalid number of cores 'some'; use 2, 0.5 or thousandths (50m)"),
    ("{keeper: {cpu: 0.0001}}", "0.0001", "invalid number of cores"),
    ("{keeper: {cpus: 1}}", "cpus", "unknown field 'cpus'; did you mean 'cpu'?"),
    ("{select: {pool: 3}}", "3", 'expected text, but YAML reads 3 as the number 3; write "3"'),
    ("{select: {pool: a b}}", "a b", "invalid label value 'a b'"),
    ("{select: {a/b/c: d}}", "d", "invalid label 'a/b/c'"),
    ("{env: {1A: x}}", "x", "invalid variable name '1A'"),
    ("{env: {A: 1}}", "1", 'write "1"'),
    ("{gpu_resource: gpu}", "gpu}", "invalid GPU resource 'gpu'; use a name such as nvidia.com/gpu"),
    ("{gpu_models: {A100: nvidia.com/gpu}}", "nvidia", "expected a map with resource, select, got 'nvidia.com/gpu'"),
    ("{pull_secrets: registry}", "registry", "expected a list, got 'registry'; write [\"registry\"]"),
    ("{service_account: a_b}", "a_b", "invalid object name"),
    (
        "{tolerations: [{key: a, operator: Exists, value: b}]}",
        "{key",
        "`value` cannot be combined with `operator: Exists`",
    ),
    ("{tolerations: [{effect: NoSchedule}]}", "{effect", "without `key` needs `operator: Exists`"),
    ("{tolerations: [{key: a, effect: Never}]}", "Never", "expected one of NoSchedule, PreferNoSchedule, NoExecute"),
    (
        "{tolerations: [{key: a, tolerationSeconds: 3}]}",
        "{key",
        "`tolerationSeconds` applies only to `effect: NoExecute`",
    ),
    ("{volumes: [{claim: a, host: /b, at: /c}]}", "{claim", "exactly one of claim, host, config, secret (found"),
    ("{volumes: [{at: /c}]}", "{at", "exactly one of claim, host, config, secret (found none)"),
    ("{volumes: [{claim: a}]}", "{claim", "`at` is missing (Mount path in the trial's container)"),
    ("{volumes: [{claim: a, at: data}]}", "data}", "invalid folder 'data'; use an absolute path"),
    ("{volumes: [{claim: a, at: /a/../b}]}", "/a/", "without .. and :"),
    ("{volumes: [{claim: a, at: /data, path: ../b}]}", "{claim", "invalid `path` '../b'; use a path relative"),
    ("{volumes: [{config: a, at: /c, read_only: false}]}", "{config", "a config volume cannot be writable"),
    ("{volumes: [{claim: a, at: /seatrial/volume}]}", "cluster", "cannot mount a volume at /seatrial/volume"),
    (
        "{volumes: [{claim: a, at: /c}, {claim: b, at: /c/}]}",
        "cluster",
        "cannot mount a volume at /c: the path is already in use",
    ),
    ("{shared_memory: 1Gi, volumes: [{claim: a, at: /dev/shm}]}", "cluster", "cannot mount a volume at /dev/shm"),
    ("{user: 0}", "cluster", "`user: 0` (root) cannot be combined with `security: restricted`; set `security: none`"),
    ("{user: -1}", "-1", "greater than or equal to 0"),
    ("{security: baseline}", "baseline", "expected one of restricted, none"),
    ("{endpoint: ingress}", "cluster", "`endpoint: ingress` needs `endpoint_host`"),
    ("{endpoint: route, endpoint_host: a.example}", "cluster", "must contain {job}, or all jobs would share it"),
    ("{endpoint_host: '{job}.example'}", "cluster", "`endpoint_host` applies only to `endpoint: ingress` or `route`"),
    ("{endpoint_class: nginx}", "cluster", "`endpoint_class` applies only to `endpoint: ingress`"),
    ("{template: {containers: []}}", "template", "use `metadata` (labels, annotations) and `spec` (as in a Pod)"),
    ("{template: [a]}", "template", "expected a map"),
]


@pytest.mark.parametrize(("written", "at", "message"), WRONG, ids=[written for written, _, _ in WRONG])
def test_what_is_wrong_is_told_at_its_place(written: str, at: str, message: str, tmp_path: Path) -> None:
    line = f"  cluster: {{kind: kubernetes, {written[1:]}"
    path = tmp_path / "suite.yaml"
    path.write_text(f"trials: {{t: {{kind: runtime, run: ['true']}}}}\ntargets:\n{line}\n")
    with pytest.raises(SuiteError) as raised:
        load(path, {"runtime": kind.model}, TARGETS)
    (problem,) = raised.value.problems
    assert message in problem.message
    assert problem.mark is not None
    assert problem.mark.line == 3
    assert line[problem.mark.column - 1 :].startswith(at)


def test_everything_has_a_default_and_a_description() -> None:
    assert KubernetesOptions() == options_of("{}")
    for model in _models(KubernetesOptions):
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name}"
            assert field.description.endswith("."), f"{model.__name__}.{name}"


def _models(model: Any) -> list[Any]:
    from seatrial.targets.kubernetes.options import GpuModel, Keeper, Toleration, Volume

    return [model, GpuModel, Keeper, Toleration, Volume]


def test_units_are_read() -> None:
    options = options_of(
        "{keep: 1h30m, keep_gpu: 4m, files_size: 1.5Gi, keeper: {cpu: 50m, memory: 64Mi}, kubeconfig: ~/x}"
    )
    assert (options.keep_s, options.keep_gpu_s, options.files_size_bytes) == (5400.0, 240.0, 3 << 29)
    assert (options.keeper.cpu, options.keeper.memory_bytes) == (0.05, 64 << 20)
    assert options.kubeconfig == Path.home() / "x"


def test_options_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        KubernetesOptions().namespace = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("written", "user"),
    [
        ("{}", 1000),
        ("{user: 7}", 7),
        ("{user: null}", None),
        ("{security: none}", None),
        ("{security: none, user: 7}", 7),
        ("{security: none, user: 0}", 0),
    ],
)
def test_the_user_of_pods_is_the_images_own_only_where_nothing_says_otherwise(written: str, user: int | None) -> None:
    assert options_of(written).run_as == user


def test_the_schema_for_editors_takes_what_the_model_takes_and_refuses_what_it_refuses() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    checker = jsonschema.Draft202012Validator(suite_schema({"runtime": kind.model}, TARGETS))

    def suite(written: str) -> dict[str, Any]:
        entry = {"kind": "kubernetes", **yaml.safe_load(written)}
        return {"targets": {"cluster": entry}, "trials": {"t": {"kind": "runtime", "run": ["true"]}}}

    good = """{keep: 1h, files_size: 1Gi, keeper: {cpu: 50m}, volumes: [{claim: a, at: /data}], select: {a: b},
               gpu_models: {A100: {resource: nvidia.com/gpu}}, template: {spec: {}}, kubeconfig: ~/x, user: null}"""
    assert list(checker.iter_errors(suite(good))) == []
    for wrong in ("{namespce: a}", "{keep: soon}", "{files_size: 20}", "{pull: Sometimes}", "{keeper: {cpu: some}}"):
        assert list(checker.iter_errors(suite(wrong))) != [], wrong
