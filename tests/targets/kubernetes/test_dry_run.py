"""What a cluster would refuse later is found before anything is made; and marks for all that is made."""

import json
import time
from collections.abc import Callable, Iterator

import pytest
import yaml
from manifest_shapes import changed, made_of, options_of
from on_cluster import RESTRICTED, job, namespace_of, nothing_left, opened

from cluster.cluster import Cluster
from seatrial.job import Outcome, Resources
from seatrial.targets import DiagnosticLevel, TargetError
from seatrial.targets.kubernetes import manifest
from targets.contract import until_exit

POLICY = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: {name}}}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{{apiGroups: [batch, ""], apiVersions: [v1], operations: [CREATE], resources: [jobs, pods]}}]
  validations:
  - expression: "(has(object.spec.template) ? object.spec.template.spec : object.spec).containers.all(c, c.image.startsWith('localhost/'))"
    message: images come from localhost
  - expression: "has(object.metadata.labels) && 'team' in object.metadata.labels"
    message: everything has a team
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: {name}}}
spec:
  policyName: {name}
  validationActions: [Deny]
  matchResources: {{namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {namespace}}}}}}}
"""  # noqa: E501


def test_marks_are_on_all_objects_and_pods_and_never_in_the_place_of_ours() -> None:
    options = options_of("{labels: {team: ml, seatrial/run: other}, annotations: {cost: '42'}, workload: jobset}")
    made = made_of(changed(hosts=2, secrets={"TOKEN": "token"}), options)
    pod = made.root["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    run = manifest.run_object("nightly-1", 60, options, "trials")
    for one in (made.root, made.config, made.secret, pod, run, run["spec"]["template"]):
        assert one is not None
        assert one["metadata"]["labels"]["team"] == "ml"
        assert one["metadata"]["labels"]["seatrial/run"] == "nightly-1"
        assert one["metadata"]["annotations"]["cost"] == "42"


@pytest.fixture
def strict(real_cluster: Cluster) -> Iterator[str]:
    """A namespace with bounds for containers, where images and labels are under a policy."""
    with namespace_of(real_cluster, RESTRICTED) as name:
        limits = {"limits": [{"type": "Container", "min": {"memory": "80Mi"}, "max": {"memory": "1Gi"}}]}
        bounds = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "bounds", "namespace": name}}
        policy = POLICY.format(name=f"policy-{name}", namespace=name)
        text = yaml.safe_dump_all([*yaml.safe_load_all(policy), {**bounds, "spec": limits}])
        real_cluster.kubectl("apply", "-f", "-", input=text)
        try:
            other = ("-n", name, "create", "job", "other", "--image=elsewhere/x:1", "--dry-run=server")
            until(lambda: "policy-" in real_cluster.kubectl(*other, check=False).stderr)
            yield name
        finally:
            kinds = "validatingadmissionpolicybindings,validatingadmissionpolicies"
            real_cluster.kubectl("delete", kinds, f"policy-{name}", "--ignore-not-found")


def until(holds: Callable[[], bool]) -> None:
    """A policy counts a moment after it was made."""
    until_s = time.monotonic() + 600
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.2)


async def test_what_policies_and_bounds_say_is_known_before_a_run_and_can_be_satisfied(
    real_cluster: Cluster, strict: str
) -> None:
    small = Resources(memory_bytes=96 << 20)
    keeper = {"memory": "96Mi"}
    for options, wanted, text in (
        ({}, job("true", resources=small), "everything has a team"),
        ({"labels": {"team": "ml"}}, job("true", resources=small), "because of its keeper"),
        (
            {"labels": {"team": "ml"}, "keeper": keeper},
            job("true", resources=Resources(memory_bytes=2 << 30)),
            "maximum memory usage per Container is 1Gi",
        ),
        (
            {"labels": {"team": "ml"}, "keeper": keeper},
            job("true", image="elsewhere/x:1"),
            "images come from localhost",
        ),
        (
            {"labels": {"team": "ml"}, "keeper": keeper, "security": "none"},
            job("true", resources=small),
            "violates PodSecurity",
        ),
    ):
        async with opened(real_cluster, strict, **options) as target:
            with pytest.raises(TargetError, match=text) as caught:
                await target.verify(wanted)
            assert caught.value.outcome is Outcome.REFUSED, text
            assert ("because of its keeper" in str(caught.value)) == (text == "because of its keeper")
            if "everything" in text or "keeper" in text:
                examined = await target.examine()
                problems = [one.why + one.fix for one in examined if one.level is DiagnosticLevel.PROBLEM]
                assert any(text in problem for problem in problems), problems
    async with opened(real_cluster, strict, labels={"team": "ml"}, keeper=keeper, annotations={"a": "b"}) as target:
        wanted = job("true", resources=small)
        await target.verify(wanted)
        handle = await target.submit(wanted, {})
        assert (await until_exit(target, handle))[-1].exit.code == 0  # type: ignore[union-attr]
        found = json.loads(
            real_cluster.kubectl("-n", strict, "get", "jobs,pods,configmaps", "-l", "team=ml", "-o", "json").stdout
        )
        assert {one["kind"] for one in found["items"]} == {"Job", "Pod", "ConfigMap"}
        assert all(one["metadata"]["annotations"]["a"] == "b" for one in found["items"])
        await target.remove(handle)
    await nothing_left(real_cluster, strict)
