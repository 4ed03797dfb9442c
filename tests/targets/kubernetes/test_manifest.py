"""What is made of a job: who wins, what is refused and in which words, and that no secret gets out."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from manifest_shapes import (
    IMAGE,
    JOB,
    NAMESPACE,
    OWNER,
    SHAPES,
    changed,
    container,
    gpus,
    made,
    made_of,
    objects,
    options_of,
    pod_templates,
    text,
)

from cluster.cluster import Cluster
from seatrial.job import Environment, Limits, Outcome, Resources, Step
from seatrial.kubernetes import JOBS
from seatrial.targets.kubernetes import manifest, names
from seatrial.targets.kubernetes.manifest.make import MERGED
from seatrial.targets.kubernetes.manifest.placement import cpu_quantity, size_quantity
from seatrial.targets.kubernetes.options import KubernetesOptions
from seatrial.targets.protocol import TargetError

OPTIONS = KubernetesOptions()


def refusal(job: Any = JOB, written: str = "{}") -> str:
    with pytest.raises(TargetError) as raised:
        made_of(job, options_of(written))
    assert raised.value.outcome is Outcome.REFUSED
    return str(raised.value)


def variables(found: manifest.JobObjects, name: str = "trial") -> dict[str, Any]:
    listed = container(found.root, name)["env"]
    assert len({one["name"] for one in listed}) == len(listed)
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in listed}


# ---- refusals


def test_a_runtime_without_an_image_is_told_what_to_write() -> None:
    message = refusal(changed(environment=Environment("base", python="3.11")))
    assert "runtime 'base' has no `image`" in message
    assert "set it in the runtime or in the target" in message


def test_a_driver_without_an_image_of_its_own_is_refused_whatever_image_the_target_has() -> None:
    driver = changed(environment=Environment("seatrial", seatrial=True), part="driver")
    assert "`driver` needs an image with Seatrial installed" in refusal(driver)


def test_a_runtimes_own_image_comes_before_the_targets() -> None:
    assert container(made_of(JOB, options_of("{image: other}")).root)["image"] == IMAGE
    assert container(made("plain-runtime").root)["image"] == "registry.example/python:3.11"


@pytest.mark.parametrize(
    ("resources", "written", "message"),
    [
        (Resources(select={"pool": "a"}), "{select: {pool: b}}", "machine's `select` has pool=a, the target's"),
        (
            gpus(1, "A100", select={"pool": "a"}),
            "{gpu_models: {A100: {select: {pool: b}}}}",
            "machine's `select` has pool=a, `gpu_models.A100.select` has pool=b",
        ),
        (
            gpus(1, "A100", select={"nvidia.com/gpu.product": "H100"}),
            "{gpu_label: nvidia.com/gpu.product}",
            "has nvidia.com/gpu.product=H100, `gpu_label` for A100 has nvidia.com/gpu.product=A100",
        ),
    ],
)
def test_two_labels_that_no_node_can_have_are_refused(resources: Resources, written: str, message: str) -> None:
    assert message in refusal(changed(resources=resources), written)


def gpu_nodes(resources: Resources, written: str = "{}") -> list[dict[str, Any]]:
    """What one of the terms for nodes says, by label."""
    spec = next(pod_templates(made_of(changed(resources=resources), options_of(written)).root))["spec"]
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms = [one["matchExpressions"] for one in required["nodeSelectorTerms"]]
    return [{f"{one['key']} {one['operator']}": one["values"] for one in expressions} for expressions in terms]


def test_a_gpu_model_goes_to_the_nodes_that_feature_discovery_or_a_cloud_labels_with_it() -> None:
    terms = gpu_nodes(gpus(1, "RTX 4000"))
    assert {"nvidia.com/gpu.product In": ["NVIDIA-Quadro-RTX-4000", "Quadro-RTX-4000"]} in terms
    assert {"gpu.nvidia.com/model In": ["Quadro_RTX_4000"]} in terms


def test_gpus_of_one_model_are_told_apart_by_their_memory() -> None:
    small, large = (gpu_nodes(gpus(1, "A100", memory=gib << 30)) for gib in (40, 80))
    assert {"cloud.google.com/gke-accelerator In": ["nvidia-tesla-a100"]} in small
    assert {"cloud.google.com/gke-accelerator In": ["nvidia-a100-80gb"]} in large
    products = [next(one for one in terms if "nvidia.com/gpu.product In" in one) for terms in (small, large)]
    assert all("40GB" in value for value in products[0]["nvidia.com/gpu.product In"])
    assert all("80GB" in value for value in products[1]["nvidia.com/gpu.product In"])
    karpenter = "karpenter.k8s.aws/instance-gpu"  # its name for both is a100
    range_of_80 = {f"{karpenter}-memory Gt": ["73728"], f"{karpenter}-memory Lt": ["90112"]}
    assert {f"{karpenter}-name In": ["a100"], **range_of_80} in large


@pytest.mark.parametrize("written", ["{gpu_models: {A100: {}}}", "{gpu_models: {A100: {select: {pool: a}}}}"])
def test_a_target_that_says_how_to_find_a_model_is_believed(written: str) -> None:
    spec = next(pod_templates(made_of(changed(resources=gpus(1, "A100")), options_of(written)).root))["spec"]
    assert "affinity" not in spec


def test_a_machine_that_selects_its_nodes_is_believed() -> None:
    found = made_of(changed(resources=gpus(1, "anything", select={"pool": "a"})), OPTIONS)
    assert "affinity" not in next(pod_templates(found.root))["spec"]


@pytest.mark.parametrize(
    ("resources", "what"),
    [(gpus(1, "Mystery 7"), "GPU model Mystery 7;"), (gpus(1, "A100", memory=24 << 30), "GPU model A100 with 24Gi;")],
)
def test_a_model_that_no_label_means_is_refused_with_the_line_to_add(resources: Resources, what: str) -> None:
    message = refusal(changed(resources=resources))
    assert message.startswith(f"cannot tell which nodes have {what}")
    assert "{select: {LABEL: VALUE}}" in message


T4 = {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.count": "4", "node.kubernetes.io/instance-type": "n1"}
UNLABELLED = {"kubernetes.io/hostname": "a", "node.kubernetes.io/instance-type": "g4dn.xlarge", "accelerator": "nvidia"}


def check_nodes(resources: Resources, nodes: list[dict[str, str]]) -> None:
    job = changed(resources=resources)
    manifest.refuse_unmatched(job, manifest.gpu_terms(job, OPTIONS) or [], nodes)


def unmatched(resources: Resources, nodes: list[dict[str, str]]) -> str:
    with pytest.raises(TargetError) as raised:
        check_nodes(resources, nodes)
    assert raised.value.outcome is Outcome.REFUSED
    return str(raised.value)


def test_before_a_run_an_unknown_model_is_refused_with_the_labels_of_the_nodes() -> None:
    message = unmatched(gpus(1, "Mystery 7"), [T4, T4, {**T4, "nvidia.com/gpu.product": "NVIDIA-L4"}])
    found = "nvidia.com/gpu.product=Tesla-T4 (2 nodes), nvidia.com/gpu.product=NVIDIA-L4 (1 node); name their label"
    assert f"labels of the nodes: {found}" in message
    assert "`gpu_models: {Mystery 7: {select: {LABEL: VALUE}}}`" in message


def test_before_a_run_nodes_without_a_label_that_tells_their_gpu_are_refused_with_those_that_may() -> None:
    message = unmatched(gpus(1, "T4"), [UNLABELLED])
    assert "node.kubernetes.io/instance-type=g4dn.xlarge (1 node), accelerator=nvidia (1 node)" in message
    assert "kubernetes.io/hostname" not in message


def test_a_known_model_waits_for_a_node_that_may_still_be_added() -> None:
    check_nodes(gpus(1, "A100"), [T4])  # an autoscaler may add one
    check_nodes(gpus(1, "A100"), [])  # there are none yet, or they may not be listed


def test_the_same_label_twice_is_no_conflict() -> None:
    found = made_of(changed(resources=Resources(select={"pool": "a"})), options_of("{select: {pool: a, zone: b}}"))
    assert next(pod_templates(found.root))["spec"]["nodeSelector"] == {"pool": "a", "zone": "b"}


def test_a_gpu_model_that_no_label_can_hold_is_told_where_to_say_its_label() -> None:
    message = refusal(changed(resources=gpus(1, "A100 (80 GB)")), "{gpu_label: product}")
    assert "GPU model 'A100 (80 GB)' is not a valid value of the label product" in message
    assert "gpu_models" in message


def test_the_interpreter_that_a_runtime_names_is_handed_in_for_the_agent() -> None:
    named = changed(environment=Environment("own", interpreter="/opt/own/bin/python"))
    found = made_of(named, options_of("{image: x}"))
    assert found.config["data"]["python"] == "/opt/own/bin/python"
    assert "python" not in made("cpu").config["data"]


def test_what_is_too_long_for_a_config_map_is_refused_before_the_cluster_does() -> None:
    steps = (Step("long", "command", {"command": "x" * (1 << 20)}),)
    assert "move long commands and parameters to files" in refusal(changed(steps=steps))


@pytest.mark.parametrize("bad", ["a\0b", "\udcff"])
def test_a_value_that_no_variable_can_hold_is_refused_without_telling_it(bad: str) -> None:
    message = refusal(changed(env={"TOKEN": f"hidden{bad}"}))
    assert message.startswith("the value of TOKEN ")
    assert "hidden" not in message
    with pytest.raises(TargetError, match="the value of TOKEN") as raised:
        _made_with_secret(f"hidden{bad}")
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("title", "x\udcff"),
        ("name", "x\udcff"),
        ("steps", (Step("a", "command", {"command": "\udcff"}),)),
        ("environment", Environment(image="\udcff")),
        ("avoid", ("\udcff",)),
        ("secrets", {"A\udcff": "x"}),
    ],
)
def test_text_that_no_object_can_hold_is_refused(field: str, value: Any) -> None:
    assert f"`{field}` of the job is not UTF-8" in refusal(changed(**{field: value}))


def _made_with_secret(value: str) -> manifest.JobObjects:
    return manifest.make(
        changed(secrets={"TOKEN": "token"}),
        OPTIONS,
        namespace=NAMESPACE,
        run_owner=OWNER,
        agent="agent",
        inputs=(),
        secrets={"TOKEN": value},
    )


def test_a_secret_without_a_value_is_refused() -> None:
    with pytest.raises(TargetError, match="no value for the secrets TOKEN") as raised:
        manifest.make(
            changed(secrets={"TOKEN": "token"}),
            OPTIONS,
            namespace=NAMESPACE,
            run_owner=OWNER,
            agent="agent",
            inputs=(),
            secrets={},
        )
    assert raised.value.outcome is Outcome.REFUSED


# ---- secrets and variables


def test_the_value_of_a_secret_is_in_the_secret_and_nowhere_else() -> None:
    found = _made_with_secret("tell-nobody")
    assert found.secret is not None
    assert found.secret["stringData"] == {"TOKEN": "tell-nobody"}
    assert "tell-nobody" not in text([found.root, found.config])
    assert variables(found)["TOKEN"] == {"secretKeyRef": {"name": found.secret["metadata"]["name"], "key": "TOKEN"}}


def test_a_job_without_secrets_has_no_secret() -> None:
    assert made("cpu").secret is None


def test_what_seatrial_sets_itself_stands_over_all_and_the_trial_over_the_target() -> None:
    own = {"HOME": "/mine", "SEATRIAL_RUN": "other", "A": "trial", "PASSWORD": "plain"}
    job = changed(env=own, secrets={"PASSWORD": "p", "SEATRIAL_JOB": "s"})
    found = variables(made_of(job, options_of("{env: {A: target, B: target, TMPDIR: /mine}}")))
    assert found["HOME"] == "/seatrial/volume/home"
    assert found["TMPDIR"] == "/seatrial/volume/tmp"
    assert found["SEATRIAL_RUN"] == JOB.run
    assert found["SEATRIAL_JOB"] == JOB.name
    assert (found["A"], found["B"]) == ("trial", "target")
    assert "secretKeyRef" in found["PASSWORD"]


def test_a_container_that_asked_for_no_gpu_sees_none() -> None:
    assert variables(made("cpu"))["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert "NVIDIA_VISIBLE_DEVICES" not in variables(made("gpus"))
    assert variables(made("gpus"), "keeper")["NVIDIA_VISIBLE_DEVICES"] == "void"
    job = changed(env={"NVIDIA_VISIBLE_DEVICES": "all"})
    assert variables(made_of(job, OPTIONS))["NVIDIA_VISIBLE_DEVICES"] == "all"


# ---- limits


def test_the_cluster_ends_a_job_after_all_of_its_own_limits_and_not_before() -> None:
    limits = Limits(queue_s=100.0, run_s=1000.5, grace_s=20.0)
    found = made_of(changed(limits=limits), options_of("{keep: 1h}")).root["spec"]
    pod = found["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 25
    assert pod["activeDeadlineSeconds"] > 1000.5 + 20 + 3600
    assert found["activeDeadlineSeconds"] >= 100 + pod["activeDeadlineSeconds"] - 1
    assert found["ttlSecondsAfterFinished"] == 3600


def test_jobs_without_limits_are_bounded_all_the_same() -> None:
    found = made_of(changed(limits=Limits()), options_of("{deadline: 2h, keep: 1m}")).root["spec"]
    assert 7200 < found["template"]["spec"]["activeDeadlineSeconds"] < 7200 + 3600
    assert 2 * 7200 < found["activeDeadlineSeconds"] < 2 * 7200 + 3600


def test_gpus_are_not_kept_waiting_for_a_collector() -> None:
    assert variables(made("cpu"), "keeper")["SEATRIAL_KEEP_S"] == "3600"
    assert variables(made("gpus"), "keeper")["SEATRIAL_KEEP_S"] == "300"
    for written, keep_s in {"{keep_gpu: 4m}": "240", "{keep: 10s}": "10", "{keep_gpu: 4m, keep: 10s}": "10"}.items():
        short = made_of(changed(resources=gpus(1)), options_of(written))
        assert variables(short, "keeper")["SEATRIAL_KEEP_S"] == keep_s


def test_a_limit_of_years_fits_into_what_the_server_can_hold() -> None:
    found = made_of(changed(limits=Limits(queue_s=1e12, run_s=1e12, grace_s=1e12)), OPTIONS).root["spec"]
    assert found["activeDeadlineSeconds"] == found["template"]["spec"]["activeDeadlineSeconds"] == 2**31 - 1


@pytest.mark.parametrize(
    ("cores", "written"), [(2, "2"), (2.5, "2500m"), (0.1 + 0.2, "300m"), (0.0001, "1m"), (1e-9, "1m"), (64.0, "64")]
)
def test_cores_are_written_in_thousandths(cores: float, written: str) -> None:
    assert cpu_quantity(cores) == written


@pytest.mark.parametrize(
    ("size", "written"), [(8 << 30, "8Gi"), (3 << 29, "1536Mi"), (1000, "1000"), (1025 << 10, "1025Ki"), (0, "0")]
)
def test_sizes_are_written_exactly(size: int, written: str) -> None:
    assert size_quantity(size) == written


# ---- workloads


def test_a_job_is_made_suspended_and_released_by_one_patch_or_by_its_queue() -> None:
    for shape, (_, written) in SHAPES.items():
        options, root = options_of(written), made(shape).root
        assert root["spec"]["suspend"] is True, shape
        assert root["metadata"]["labels"].get("kueue.x-k8s.io/queue-name") == options.queue, shape
    assert manifest.RELEASE == {"spec": {"suspend": False}}


def test_every_object_of_a_job_is_labelled_and_the_root_belongs_to_the_run() -> None:
    for shape in SHAPES:
        found = made(shape)
        assert found.root["metadata"]["ownerReferences"] == [OWNER]
        for one in objects(found):
            labels = one["metadata"]["labels"]
            assert labels[names.MANAGED_BY] == names.SEATRIAL
            assert labels[names.RUN] == JOB.run
            assert labels[names.JOB] == found.root["metadata"]["name"] == one["metadata"]["name"]
            assert len(one["metadata"]["ownerReferences"]) == 1
        for template in pod_templates(found.root):
            assert template["metadata"]["labels"][names.PART] == "pod"


def test_hosts_are_told_the_names_that_their_service_gives_them() -> None:
    found = made("hosts")
    assert found.service is not None
    name, template = found.root["metadata"]["name"], next(pod_templates(found.root))
    assert template["spec"]["subdomain"] == found.service["metadata"]["name"] == name
    chosen = found.service["spec"]["selector"].items()
    assert chosen <= template["metadata"]["labels"].items()
    hosts = [f"{name}-{number}.{name}.{NAMESPACE}.svc" for number in range(3)]
    assert variables(found)["SEATRIAL_HOSTNAMES"] == ",".join(hosts)
    assert variables(found)["MASTER_ADDR"] == hosts[0]
    assert variables(found)["SEATRIAL_HOSTS"] == "3"


def test_one_host_needs_no_names() -> None:
    assert made("cpu").service is None
    assert "SEATRIAL_HOSTS" not in variables(made("cpu"))


@pytest.mark.parametrize("workload", ["job", "jobset"])
def test_names_of_pods_fit_however_long_the_jobs_name_is(workload: str) -> None:
    long = changed(name=f"{'Nightly_' * 30}-69b56f04-1", hosts=100)
    found = made_of(long, options_of(f"{{workload: {workload}}}"))
    name = found.root["metadata"]["name"]
    longest = {"job": f"{name}-99-abcde", "jobset": f"{name}-h-0-99-abcde"}
    assert len(longest[workload]) <= 63
    root = f"{workload}: {found.root['metadata']['labels'][names.JOB]}"
    assert root == f"{workload}: {name}"


def test_the_same_job_gives_the_same_objects_and_shares_nothing_with_them() -> None:
    for shape in SHAPES:
        first, second = made(shape), made(shape)
        assert text(objects(first)) == text(objects(second))
        for template in pod_templates(first.root):
            template["spec"]["containers"].clear()
        assert text(objects(second)) == text(objects(made(shape)))


def test_an_owner_blocks_nobody() -> None:
    """`blockOwnerDeletion` would need the right to change finalizers."""
    owner = manifest.owner(JOBS, "a", "b")
    assert owner == {"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "b"}
    before = {"metadata": {"name": "x"}, "data": {}}
    assert manifest.owned_by(before, owner)["metadata"] == {"name": "x", "ownerReferences": [owner]}
    assert before == {"metadata": {"name": "x"}, "data": {}}


# ---- the user's template

TAKING_AWAY = [
    ("{spec: {containers: [{name: keeper, $patch: delete}]}}", "container keeper"),
    ("{spec: {containers: [{name: trial, command: [sleep, '9']}]}}", "command of container trial"),
    ("{spec: {containers: [{name: keeper, args: [x]}]}}", "args of container keeper"),
    ("{spec: {containers: [{name: trial, terminationMessagePath: /x}]}}", "terminationMessagePath of container trial"),
    ("{spec: {containers: [{name: trial, env: null}]}}", "variable SEATRIAL_RUN of container trial"),
    ("{spec: {containers: [{name: trial, env: [{name: SEATRIAL_JOB, value: x}]}]}}", "variable SEATRIAL_JOB"),
    (
        "{spec: {containers: [{name: trial, env: [{name: TOKEN, $patch: delete}]}]}}",
        "variable TOKEN of container trial",
    ),
    ("{spec: {containers: [{name: trial, volumeMounts: [{mountPath: /seatrial/volume, name: x}]}]}}", "the mount at"),
    ("{spec: {containers: [{name: keeper, volumeMounts: null}]}}", "the mount at /seatrial/volume of container keeper"),
    ("{spec: {volumes: [{name: seatrial-agent, configMap: {name: x}}]}}", "volume seatrial-agent"),
    ("{spec: {volumes: [{name: seatrial-volume, $patch: delete}]}}", "volume seatrial-volume"),
    ("{spec: {restartPolicy: OnFailure}}", "spec.restartPolicy"),
    ("{spec: {subdomain: x}}", "spec.subdomain"),
    ("{spec: null}", "container trial"),
    ("{spec: {containers: null}}", "container trial"),
    ("{metadata: {labels: {seatrial/run: x}}}", "label seatrial/run"),
    ("{metadata: null}", "label seatrial/job"),
    ("{metadata: x, spec: y}", "container trial"),
]


@pytest.mark.parametrize(("patch", "lost"), TAKING_AWAY, ids=[patch for patch, _ in TAKING_AWAY])
def test_a_template_that_takes_away_what_is_needed_is_refused(patch: str, lost: str) -> None:
    message = refusal(changed(secrets={"TOKEN": "t"}), f"{{template: {patch}}}")
    assert "removes or changes parts that Seatrial needs" in message
    assert lost in message


@pytest.mark.parametrize(
    ("patch", "problem"),
    [
        ("{spec: {containers: [{image: x}]}}", "spec.containers: a list element has no `name`"),
        ("{spec: {containers: [trial]}}", "spec.containers: a list element has no `name`"),
        (
            "{spec: {containers: [{name: trial, env: [{value: x}]}]}}",
            "spec.containers.env: a list element has no `name`",
        ),
        ("{spec: {containers: [{name: trial, $patch: replace}]}}", "spec.containers.$patch: unknown directive"),
        ("{spec: {$retainKeys: [a]}}", "spec.$retainKeys: unknown directive"),
    ],
)
def test_a_template_that_means_nothing_is_told_its_place(patch: str, problem: str) -> None:
    assert refusal(JOB, f"{{template: {patch}}}").startswith(f"the target's `template`: {problem}")


def test_a_template_may_change_everything_else() -> None:
    patch = yaml.safe_load("""
        metadata: {labels: {team: a}}
        spec:
          hostNetwork: true
          activeDeadlineSeconds: 60
          securityContext: {runAsUser: 7, runAsGroup: null}
          tolerations: [{operator: Exists}]
          containers:
          - name: trial
            image: other
            resources: null
            tty: true
            volumeMounts: [{mountPath: /d, name: d}]
            env: [{name: LEVEL, $patch: delete}, {name: EPOCHS, value: "5"}]
          - {name: keeper, image: small}
          - {name: side, image: x}
          volumes: [{name: d, emptyDir: {}}, {name: seatrial-volume, emptyDir: {medium: Memory}}]
    """)
    given = KubernetesOptions(template=patch, env={"LEVEL": "1"}, tolerations=({"key": "a", "operator": "Exists"},))
    before = copy.deepcopy(patch)
    spec = next(pod_templates(made_of(JOB, given).root))["spec"]
    assert patch == before
    variables = {one["name"]: one.get("value") for one in spec["containers"][0]["env"]}
    assert "LEVEL" not in variables
    assert variables["EPOCHS"] == "5"
    assert [one["name"] for one in spec["containers"]] == ["trial", "keeper", "side"]
    assert spec["securityContext"]["runAsUser"] == 7
    assert "runAsGroup" not in spec["securityContext"]
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["containers"][0]["image"] == "other"
    assert spec["activeDeadlineSeconds"] == 60


def test_the_template_is_the_same_for_every_workload() -> None:
    for workload in ("job", "jobset"):
        written = (
            f"{{workload: {workload}, template: {{spec: {{hostIPC: true, containers: [{{name: trial, tty: true}}]}}}}}}"
        )
        for template in pod_templates(made_of(changed(hosts=2), options_of(written)).root):
            assert template["spec"]["hostIPC"] is True
            assert template["spec"]["containers"][0]["tty"] is True


@pytest.mark.cluster
def test_the_lists_that_are_merged_are_those_of_the_servers_own_schema(cluster: Cluster) -> None:
    definitions = cluster.request("GET", "/openapi/v2")["definitions"]
    theirs = {path[-1]: key for path, key in merged_lists(definitions, "io.k8s.api.core.v1.PodTemplateSpec", ())}
    assert {field: key for field, key in theirs.items() if field not in ("ownerReferences", "finalizers")} == MERGED


def merged_lists(definitions: Any, name: str, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    for field, schema in definitions[name].get("properties", {}).items():
        place = (*path, field)
        if "merge" in schema.get("x-kubernetes-patch-strategy", "").split(","):
            yield place, schema.get("x-kubernetes-patch-merge-key", "")
        inner = schema.get("items", schema).get("$ref", "").rpartition("/")[2]
        if inner and len(place) < 12:  # deeper than any pod template
            yield from merged_lists(definitions, inner, place)
