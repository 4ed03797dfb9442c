"""What the target asks to be allowed: for every option enough to make our manifests, and nothing that is dangerous."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from manifest_shapes import changed, made_of, options_of, seen, text

from cluster.cluster import Cluster
from seatrial.kubernetes import (
    JOBS,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
    Access,
    Forbidden,
    Identity,
    Kubernetes,
    Object,
    ObjectPart,
    Right,
    grants,
    load_access,
)
from seatrial.targets.kubernetes import errors as rights
from seatrial.targets.kubernetes import manifest
from seatrial.targets.kubernetes.options import KubernetesOptions

EVERY = ["{}", "{workload: jobset}", "{endpoint: service}"]
EVERY += [f"{{endpoint: {endpoint}, endpoint_host: '{{job}}.example.com'}}" for endpoint in ("ingress", "route")]


@pytest.mark.parametrize("written", EVERY)
def test_nothing_is_asked_for_twice_or_outside_the_namespace(written: str) -> None:
    found = rights.needed(options_of(written), "trials")
    assert len(set(found)) == len(found)
    assert {right.namespace for right in found} == {"trials"}


@pytest.mark.parametrize("written", EVERY)
def test_no_right_lets_anybody_read_secrets_or_start_pods_of_their_own(written: str) -> None:
    found = {(right.resource, right.verb) for right in rights.needed(options_of(written), "trials")}
    assert [verb for resource, verb in found if resource == "secrets"] == ["create"]
    assert {verb for resource, verb in found if resource == "pods"} <= {"get", "list", "watch"}
    assert not [right for right in found if "*" in "".join(right) or right[1] in ("impersonate", "escalate", "bind")]


def test_options_that_need_more_ask_for_more() -> None:
    def extra(written: str) -> set[tuple[str, str]]:
        own = rights.needed(options_of(written), "n")
        return {(right.group, right.resource) for right in own} - {
            (right.group, right.resource) for right in rights.needed(KubernetesOptions(), "n")
        }

    assert extra("{workload: jobset}") == {("jobset.x-k8s.io", "jobsets")}
    assert extra(EVERY[-2]) == {("networking.k8s.io", "ingresses")}
    assert extra(EVERY[-1]) == {("route.openshift.io", "routes"), ("route.openshift.io", "routes/custom-host")}
    assert not [right for right in rights.needed(options_of(EVERY[2]), "n") if right.resource == "pods/portforward"]


class TokenStatus(ObjectPart, frozen=True):
    token: str = ""


class Token(Object, frozen=True):
    status: TokenStatus = TokenStatus()


@asynccontextmanager
async def granted(cluster: Cluster, namespace: str, options: KubernetesOptions) -> AsyncIterator[Kubernetes]:
    """Somebody who has these rights and no others."""
    account = {"name": "seatrial", "namespace": namespace}
    async with Kubernetes(load_access(cluster.kubeconfig)) as admin:
        await admin.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
        for one in grants(rights.needed(options, namespace), f"system:serviceaccount:{namespace}:seatrial"):
            await admin.create(one)
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = await admin.create(
            request, Token, resource=SERVICE_ACCOUNTS, namespace=namespace, name="seatrial", subresource="token"
        )
        access = {**vars(admin.access), "identity": Identity("seatrial", token=token.status.token)}
    async with Kubernetes(Access(**access)) as client:
        yield client


@pytest.mark.cluster
async def test_the_role_gives_exactly_these_rights(cluster: Cluster, fake_namespace: str) -> None:
    options = options_of("{endpoint: ingress, endpoint_host: '{job}.example.com', workload: jobset}")
    async with granted(cluster, fake_namespace, options) as client:
        wanted = rights.needed(options, fake_namespace)
        answers = await asyncio.gather(*(client.can(right) for right in wanted))
        assert [right for right, allowed in zip(wanted, answers, strict=True) if not allowed] == []
        more = [
            Right("get", "", "secrets", fake_namespace),
            Right("list", "", "secrets", fake_namespace),
            Right("create", "", "pods", fake_namespace),
            Right("list", "", "nodes"),
            Right("list", "", "pods"),
            Right("create", "batch", "jobs", "default"),
        ]
        answers = await asyncio.gather(*(client.can(right) for right in more))
        assert [right for right, allowed in zip(more, answers, strict=True) if allowed] == []


@pytest.mark.cluster
async def test_all_objects_of_a_job_can_be_made_released_and_removed_with_them(
    cluster: Cluster, fake_namespace: str
) -> None:
    options, job = options_of("{image: x}"), changed(secrets={"TOKEN": "t"}, hosts=2)
    async with granted(cluster, fake_namespace, options) as client:
        run = await client.create(manifest.run_object(job.run, 600.0, options, fake_namespace))
        owner = manifest.owner(JOBS, run.metadata.name, run.metadata.uid)
        await client.create(*manifest.agent_configs(job.run, b"agent", owner, fake_namespace))
        await client.create(manifest.input_configs(job.run, b"inputs", owner, fake_namespace)[0])
        made = made_of(job, options, fake_namespace)
        root = await client.create(manifest.owned_by(made.root, owner))
        reference = manifest.owner(JOBS, root.metadata.name, root.metadata.uid)
        for one in (made.config, made.secret, made.service):
            assert one is not None
            await client.create(manifest.owned_by(one, reference))
        await client.patch(JOBS, root.metadata.name, manifest.RELEASE, namespace=fake_namespace)
        labels = f"seatrial/job={root.metadata.name}"
        await seen(client, PODS, lambda pods: len(pods) == 2, namespace=fake_namespace, labels=labels)
        with pytest.raises(Forbidden):
            await client.get(SECRETS, root.metadata.name, namespace=fake_namespace)
        assert await client.delete(JOBS, run.metadata.name, namespace=fake_namespace)


def test_the_yaml_that_grants_them_is_short_enough_to_read() -> None:
    documents = grants(rights.needed(KubernetesOptions(), "trials"), "alice")
    assert [one["kind"] for one in documents] == ["Role", "RoleBinding"]
    assert len(text(documents).splitlines()) < 80


def test_what_grants_a_right_replaces_nothing_that_grants_others() -> None:
    """`kubectl apply` replaces an object of the same name: each grant has one of its own."""
    first, second = Right("create", "", "pods/exec", "trials"), Right("get", "", "pods/log", "trials")
    made = [grants([right], user) for right in (first, second) for user in ("alice", "bob")]
    names = [{document["metadata"]["name"] for document in documents} for documents in made]
    assert all(len(one) == 1 for one in names)
    assert len(set.union(*names)) == 4
    assert "seatrial" not in set.union(*names), "the documented Role"
    assert grants([first, second], "alice") == grants([first, second], "alice")
