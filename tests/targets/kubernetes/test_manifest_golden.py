"""Every shape of manifest, byte for byte; and each as a real API server takes it.

`REWRITE_GOLDEN=1 pytest tests/targets/kubernetes/test_manifest_golden.py` writes the files; read the difference."""

import copy
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from manifest_shapes import INPUTS, NAMESPACE, OWNER, RESTRICTED, SHAPES, made, objects, options_of, pod_templates, text
from on_cluster import namespace_of

from cluster.cluster import Cluster
from seatrial.kubernetes import ApiError, Kubernetes, load_access
from seatrial.targets.kubernetes import manifest

GOLDEN = Path(__file__).parent / "golden"


def documents(shape: str) -> list[dict[str, Any]]:
    if shape != "run":
        return objects(made(shape))
    run = manifest.run_object("nightly-1", 3 * 86400.0, options_of("{}"), NAMESPACE)
    archive = bytes(range(256)) * 3
    return [run, *manifest.input_configs("nightly-1", archive, OWNER, NAMESPACE)]


@pytest.mark.parametrize("shape", ["run", *SHAPES])
def test_a_manifest_is_what_it_was(shape: str) -> None:
    path, found = GOLDEN / f"{shape}.yaml", text(documents(shape))
    if os.environ.get("REWRITE_GOLDEN"):
        path.write_text(found, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == found


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == {"run", *SHAPES}


@pytest.fixture
def restricted_namespace(cluster: Cluster) -> Iterator[str]:
    kind = "pod-security.kubernetes.io"
    with namespace_of(cluster, f"{kind}/enforce=restricted", f"{kind}/warn=restricted") as name:
        cluster.kubectl("create", "serviceaccount", "trials", "-n", name)
        yield name


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Kubernetes]:
    async with Kubernetes(load_access(cluster.kubeconfig)) as made:
        yield made


@pytest.mark.cluster
async def test_the_server_takes_every_object_and_knows_every_field(client: Kubernetes, fake_namespace: str) -> None:
    run = manifest.run_object("nightly-1", 3 * 86400.0, options_of("{}"), fake_namespace)
    configs = manifest.input_configs("nightly-1", os.urandom(5 << 19), OWNER, fake_namespace)
    assert len(configs) == 3
    for one in [run, *configs]:
        await client.create(one, dry_run=True)
    for shape in SHAPES:
        for one in objects(made(shape, fake_namespace)):
            if one["kind"] != "JobSet":
                await client.create(one, dry_run=True)
            else:
                for template in pod_templates(one):
                    await client.create(_job_around(template, fake_namespace), dry_run=True)


@pytest.mark.cluster
async def test_the_server_does_not_take_a_field_that_it_does_not_know(client: Kubernetes, fake_namespace: str) -> None:
    root = made("cpu", fake_namespace).root
    root["spec"]["template"]["spec"]["containers"][0]["resourses"] = {}
    with pytest.raises(ApiError, match="resourses"):
        await client.create(root, dry_run=True)


@pytest.mark.cluster
async def test_a_restricted_namespace_takes_pods_of_every_shape_with_default_security(
    client: Kubernetes, restricted_namespace: str
) -> None:
    for shape in RESTRICTED:
        for template in pod_templates(made(shape, restricted_namespace).root):
            spec = dict(template["spec"], serviceAccountName="trials")
            if spec.pop("runtimeClassName", None):
                assert shape == "template"  # the cluster has no such class, and its admission comes first
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": shape, **template["metadata"]}, "spec": spec}
            await client.create(pod, namespace=restricted_namespace, dry_run=True)


@pytest.mark.cluster
async def test_a_restricted_namespace_does_not_take_pods_without_security(
    client: Kubernetes, restricted_namespace: str
) -> None:
    (template,) = pod_templates(made("no-security", restricted_namespace).root)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": template["spec"]}
    with pytest.raises(ApiError, match="restricted"):
        await client.create(pod, namespace=restricted_namespace, dry_run=True)


def _job_around(template: dict[str, Any], namespace: str) -> dict[str, Any]:
    """The pod template of another workload, where every server knows its fields."""
    template = copy.deepcopy(template)
    template["spec"]["restartPolicy"] = "Never"
    head = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "around", "namespace": namespace}}
    return {**head, "spec": {"template": template}}


def test_the_shapes_with_inputs_name_each_part_in_order() -> None:
    template = next(pod_templates(made("cpu").root))
    sources = next(one for one in template["spec"]["volumes"] if "projected" in one)["projected"]["sources"]
    assert [source["configMap"]["name"] for source in sources] == list(INPUTS)
    assert [source["configMap"]["items"][0]["path"] for source in sources] == ["part-0000", "part-0001"]
