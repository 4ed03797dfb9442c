"""A strategic merge patch of ours and one of the API server come to the same."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest
import yaml
from manifest_shapes import made, pod_templates

from cluster.cluster import Cluster
from seatrial.kubernetes import ApiError, Kubernetes, Object, Patch, Resource, load_access
from seatrial.target.kubernetes.manifest.strategic import MERGE_KEYS, PatchError, apply_patch

POD_TEMPLATES = Resource("", "v1", "PodTemplate", "podtemplates")


class PodTemplate(Object, frozen=True):
    template: Any = None


SAME = """
a field more: {spec: {hostNetwork: true}}
a field changed: {spec: {terminationGracePeriodSeconds: 3}}
a field taken away: {spec: {activeDeadlineSeconds: null}}
a field taken away that is not there: {spec: {nodeName: null}}
labels: {metadata: {labels: {team: a}, annotations: {note: "1", other: null}}}
finalizers: {metadata: {finalizers: [example.com/a, example.com/b]}}
a variable changed: {spec: {containers: [{name: trial, env: [{name: EPOCHS, value: "5"}]}]}}
a variable more: {spec: {containers: [{name: trial, env: [{name: LAST, value: x}, {name: HOME, value: /x}]}]}}
a variable taken out: {spec: {containers: [{name: trial, env: [{name: EPOCHS, $patch: delete}]}]}}
a variable taken out that is not there: {spec: {containers: [{name: trial, env: [{name: NONE, $patch: delete}]}]}}
variables replaced: {spec: {containers: [{name: trial, env: [{$patch: replace}, {name: ONLY, value: x}]}]}}
a variable from elsewhere: {spec: {containers: [{name: trial, env: [{name: EPOCHS, value: null, valueFrom:
  {fieldRef: {fieldPath: metadata.name}}}]}]}}
a container more: {spec: {containers: [{name: side, image: x, env: [{name: A, value: b}]}]}}
containers in another order: {spec: {containers: [{name: keeper, tty: true}, {name: side, image: x}, {name: trial}]}}
only the last one: {spec: {containers: [{name: keeper, tty: true}, {name: side, image: x}]}}
only the first one: {spec: {containers: [{name: side, image: x}, {name: trial, tty: true}]}}
a container taken out: {spec: {containers: [{name: keeper, $patch: delete}]}}
a container taken out and one put in: {spec: {containers: [{name: keeper, $patch: delete}, {name: side, image: x}]}}
containers replaced: {spec: {containers: [{name: side, image: x}, {$patch: replace}]}}
inits: {spec: {initContainers: [{name: one, image: x, volumeMounts: [{name: seatrial-volume, mountPath: /b}]}]}}
ports of the first: {spec: {initContainers: [{name: zero, ports: [{containerPort: 71}]}]}}
ports by their number: {spec: {containers: [{name: trial, ports: [{containerPort: 80, name: a}, {containerPort: 81}]}]}}
mounts by their path: {spec: {containers: [{name: trial, volumeMounts:
  [{mountPath: /seatrial/agent, name: seatrial-agent, readOnly: false}, {mountPath: /new, name: seatrial-volume}]}]}}
commands are replaced: {spec: {containers: [{name: trial, command: [a, b], args: [c]}]}}
sources of variables are replaced: {spec: {containers: [{name: trial, envFrom: [{secretRef: {name: x}}]}]}}
limits are merged: {spec: {containers: [{name: trial, resources: {limits: {cpu: "9", memory: null}, requests: null}}]}}
capabilities are replaced: {spec: {containers:
  [{name: trial, securityContext: {capabilities: {add: [KILL], drop: [A]}}}]}}
tolerations are replaced: {spec: {tolerations: [{key: a, operator: Exists}]}}
pull secrets are merged: {spec: {imagePullSecrets: [{name: b}]}}
aliases are merged: {spec: {hostAliases: [{ip: 10.0.0.2, hostnames: [c]}]}}
gates are merged: {spec: {schedulingGates: [{name: example.com/gate}]}}
spread is merged: {spec: {topologySpreadConstraints: [{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: ScheduleAnyway,
  labelSelector: {matchLabels: {a: b}}}]}}
affinity is put in: {spec: {affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution:
  [{topologyKey: zone, labelSelector: {matchExpressions: [{key: a, operator: Exists}]}}]}}}}
a volume more: {spec: {volumes: [{name: new, emptyDir: {medium: Memory}}]}}
a volume's size: {spec: {volumes: [{name: seatrial-volume, emptyDir: {sizeLimit: 1Gi}}]}}
a volume of another sort: {spec: {volumes: [{name: seatrial-volume, emptyDir: null, hostPath: {path: /x}}]}}
a volume by kept keys: {spec: {volumes: [{name: seatrial-volume, $retainKeys: [name, hostPath], hostPath: {path: /x}}]}}
a volume taken out: {spec: {volumes: [{name: spare, $patch: delete}]}}
parts of a volume are replaced: {spec: {volumes:
  [{name: seatrial-inputs, projected: {sources: [{configMap: {name: x}}]}}]}}
a map emptied: {spec: {securityContext: {$patch: delete}}}
a map replaced: {spec: {securityContext: {$patch: replace, runAsUser: 7}}}
a selector emptied: {spec: {nodeSelector: {$patch: replace, a: b}}}
nulls in what is new: {spec: {dnsConfig: {nameservers: [10.0.0.1], options: null}, dnsPolicy: None}}
a list emptied: {spec: {imagePullSecrets: []}}
a list taken away: {spec: {imagePullSecrets: null}}
the whole spec replaced: {spec: {$patch: replace, containers: [{name: a, image: b}]}}
"""
REFUSED = """
an element without its key: {spec: {containers: [{image: x}]}}
a deletion without its key: {spec: {containers: [{name: trial, env: [{$patch: delete}]}]}}
a list that should have maps: {spec: {containers: [trial]}}
another directive: {spec: {containers: [{name: trial, $patch: merge}]}}
another directive in a map: {spec: {securityContext: {$patch: merge}}}
a key that is not kept: {spec: {volumes: [{name: seatrial-volume, $retainKeys: [name], hostPath: {path: /x}}]}}
kept keys that are no list: {spec: {volumes: [{name: seatrial-volume, $retainKeys: name}]}}
a directive in a list that is replaced: {spec: {tolerations: [{$patch: replace}, {key: a, operator: Exists}]}}
"""


def original() -> dict[str, Any]:
    template = next(pod_templates(made("cpu").root))
    spec = template["spec"] | {
        "imagePullSecrets": [{"name": "a"}],
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}],
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "b", "operator": "Exists"}],
        "initContainers": [{"name": "zero", "image": "y", "ports": [{"containerPort": 70}]}],
        "schedulingGates": [{"name": "example.com/first"}],
        "volumes": [*template["spec"]["volumes"], {"name": "spare", "emptyDir": {}}],
    }
    return {"metadata": template["metadata"] | {"finalizers": ["example.com/b", "example.com/c"]}, "spec": spec}


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Kubernetes]:
    async with Kubernetes(load_access(cluster.kubeconfig)) as made:
        yield made


def pod_template(template: Any, namespace: str, name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "PodTemplate", "metadata": metadata, "template": template}


@pytest.mark.cluster
async def test_patches_come_to_what_the_server_makes_of_them(client: Kubernetes, fake_namespace: str) -> None:
    there = await client.create(pod_template(original(), fake_namespace, "original"), PodTemplate)
    differing = []
    for what, patch in yaml.safe_load(SAME).items():
        theirs = await _patched(client, fake_namespace, patch)
        ours = apply_patch(there.template, patch)
        with contextlib.suppress(ApiError):  # shown below: the other one was taken
            found = pod_template(ours, fake_namespace, "ours")
            ours = (await client.create(found, PodTemplate, dry_run=True)).template
        if _without_times(ours) != _without_times(theirs):
            differing.append(f"{what}:\n ours   {ours}\n theirs {theirs}")
    assert differing == [], "\n".join(differing)


@pytest.mark.cluster
def test_the_lists_that_are_merged_are_those_of_the_servers_own_schema(cluster: Cluster) -> None:
    definitions = cluster.request("GET", "/openapi/v2")["definitions"]
    theirs = dict(_merged_lists(definitions, "io.k8s.api.core.v1.PodTemplateSpec", ()))
    # What a claim of a pod's own may have besides labels and annotations, the server refuses anyway.
    claim = ("spec", "volumes", "ephemeral", "volumeClaimTemplate")
    assert {path: key for path, key in theirs.items() if path[:4] != claim} == MERGE_KEYS


def _merged_lists(definitions: Any, name: str, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    for field, schema in definitions[name].get("properties", {}).items():
        place = (*path, field)
        if "merge" in schema.get("x-kubernetes-patch-strategy", "").split(","):
            yield place, schema.get("x-kubernetes-patch-merge-key", "")
        inner = schema.get("items", schema).get("$ref", "").rpartition("/")[2]
        if inner and len(place) < 12:  # deeper than any pod template
            yield from _merged_lists(definitions, inner, place)


@pytest.mark.cluster
async def test_what_the_server_refuses_is_refused_here(client: Kubernetes, fake_namespace: str) -> None:
    there = await client.create(pod_template(original(), fake_namespace, "original"), PodTemplate)
    taken = []
    for what, patch in yaml.safe_load(REFUSED).items():
        with contextlib.suppress(ApiError):
            await _patched(client, fake_namespace, patch)
            taken.append(f"the server takes {what}")
        with contextlib.suppress(PatchError):
            apply_patch(there.template, patch)
            taken.append(f"we take {what}")
    assert taken == []


@pytest.mark.cluster
async def test_a_map_that_replaces_nothing_is_kept_here_and_lost_on_the_server(
    client: Kubernetes, fake_namespace: str
) -> None:
    patch = {"spec": {"affinity": {"$patch": "replace", "nodeAffinity": {}}}}
    there = await client.create(pod_template(original(), fake_namespace, "original"), PodTemplate)
    assert "affinity" not in (await _patched(client, fake_namespace, patch))["spec"]
    assert apply_patch(there.template, patch)["spec"]["affinity"] == {"nodeAffinity": {}}


async def _patched(client: Kubernetes, namespace: str, patch: dict[str, Any]) -> Any:
    found = await client.patch(
        POD_TEMPLATES,
        "original",
        {"template": patch},
        PodTemplate,
        how=Patch.STRATEGIC,
        namespace=namespace,
        dry_run=True,
    )
    return found.template


def _without_times(template: Any) -> Any:
    """The one thing that the server says of each object anew."""
    template = msgspec.to_builtins(template)
    template["metadata"].pop("creationTimestamp", None)
    return template


def test_neither_the_original_nor_the_patch_is_changed() -> None:
    first, patch = original(), yaml.safe_load(SAME)["containers in another order"]
    apply_patch(first, patch)
    assert first == original()
    assert patch == yaml.safe_load(SAME)["containers in another order"]


def test_an_error_says_where() -> None:
    with pytest.raises(PatchError, match=r"^spec\.containers\.env: an element has no `name`"):
        apply_patch(original(), {"spec": {"containers": [{"name": "trial", "env": [{"value": "x"}]}]}})
    with pytest.raises(PatchError, match=r"^spec\.\$setElementOrder/containers: not known here"):
        apply_patch(original(), {"spec": {"$setElementOrder/containers": []}})
    with pytest.raises(PatchError, match=r"^spec\.tolerations\.\$patch: this list is replaced as a whole"):
        apply_patch(original(), {"spec": {"tolerations": [{"$patch": "delete", "key": "a"}]}})
    with pytest.raises(PatchError, match=r"^spec\.1: the name of a field is text"):
        apply_patch(original(), {"spec": {1: "x"}})
