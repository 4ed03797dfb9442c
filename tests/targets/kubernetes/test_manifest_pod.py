"""What a process finds in a pod of ours on a real node: its variables, secrets and files, just as they were given."""

import copy
import hashlib
import os
from pathlib import Path

import orjson
import pytest
from manifest_shapes import changed, container, options_of, seen

from cluster.cluster import Cluster
from seatrial.job import Environment, Input, Job, Resources
from seatrial.kubernetes import CONFIG_MAPS, JOBS, PODS, SECRETS, SERVICES, Kubernetes, Object, ObjectPart, load_access
from seatrial.targets.kubernetes import manifest
from seatrial.targets.kubernetes.names import selector
from seatrial.targets.kubernetes.options import KubernetesOptions

pytestmark = pytest.mark.cluster

HOSTILE = {
    "REFERENCE": "$(HOME) $(NONE) $$(HOME) $HOME ${HOME}",
    "DOLLARS": "$ $$ $$$ $",
    "OPEN": "$(HOME",
    "LINES": "a\nb\n\nc\n",
    "WORDS": "größe ☂ '\"\\`!#&*",
    "EMPTY": "",
    "LONG": "x" * 60_000,
}
SECRET = "tell\nnobody $(HOME) ☂"
LOOK = """
import hashlib, json, os, pathlib, stat
place = pathlib.Path("/seatrial")
parts = sorted((place / "inputs").glob("part-*"))
for name in ("out", "home"):
    (place / "volume" / name).mkdir()
print(json.dumps({
    "env": dict(os.environ),
    "job": json.loads((place / "job" / "job.json").read_text()),
    "inputs": hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest(),
    "parts": [part.name for part in parts],
    "agent": sorted(path.name for path in (place / "agent").iterdir() if not path.name.startswith(".")),
    "shared_memory": os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize,
    "user": [os.getuid(), os.getgid()],
    "token": os.path.exists("/var/run/secrets/kubernetes.io/serviceaccount/token"),
}))
"""

MEET = """
import json, os, socket, time
names = os.environ["SEATRIAL_HOSTNAMES"].split(",")
assert names[0] == os.environ["MASTER_ADDR"]
found = {}
while len(found) < len(names):
    for name in names:
        try:
            found[name] = socket.gethostbyname(name)
        except OSError:
            time.sleep(0.1)
number = int(os.environ["JOB_COMPLETION_INDEX"])
mine = socket.gethostbyname(socket.gethostname())
print(json.dumps({"number": number, "found": [found[name] for name in names], "mine": mine}))
time.sleep(5)  # the others want to find this one, too
"""
OTHER_SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "other"},
    "spec": {"ports": [{"port": 80}]},
}


class PodStatus(ObjectPart, frozen=True):
    phase: str = ""
    reason: str = ""


class PodObject(Object, frozen=True):
    status: PodStatus = PodStatus()


async def test_a_process_finds_what_it_was_given(real_cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(orjson.dumps(list(range(400_000))))
    (tmp_path / "more").write_bytes(os.urandom(1 << 20))
    archive = manifest.inputs_archive([Input(str(tmp_path), "in")])
    job = changed(
        name=f"sample-{namespace}-1",
        run=f"sample-{namespace}",
        environment=Environment(image="localhost/python:3"),
        resources=Resources(cpu=0.5, memory_bytes=256 << 20),
        env=HOSTILE,
        secrets={"TOKEN": "token"},
    )
    options = options_of("{pull: Never, shared_memory: 32Mi}")
    async with Kubernetes(load_access(real_cluster.kubeconfig)) as client:
        await client.create(OTHER_SERVICE, namespace=namespace)
        made = await _create(client, job, options, archive, namespace, LOOK)
        (output,) = await _outputs(client, namespace, made, 1)
    found = orjson.loads(output)

    assert {name: found["env"].get(name) for name in HOSTILE} == HOSTILE
    assert found["env"]["TOKEN"] == SECRET
    assert found["env"]["HOME"] == "/seatrial/volume/home"
    assert not [name for name in found["env"] if name.startswith("OTHER_")]
    assert found["job"] == orjson.loads(made.config["data"]["job.json"])
    assert found["parts"] == [f"part-{number:04d}" for number in range(len(found["parts"]))]
    assert len(found["parts"]) > 1
    assert found["inputs"] == hashlib.sha256(archive).hexdigest()
    assert found["agent"] == ["agent.pyz", "keep.sh", "start.sh"]
    assert found["shared_memory"] == 32 << 20
    assert found["user"] == [1000, 1000]
    assert found["token"] is False


async def test_the_hosts_of_a_job_find_each_other_by_the_names_that_they_are_told(
    real_cluster: Cluster, namespace: str
) -> None:
    job = changed(
        name=f"meet-{namespace}-1",
        run=f"meet-{namespace}",
        environment=Environment(image="localhost/python:3"),
        resources=Resources(),
        hosts=2,
    )
    async with Kubernetes(load_access(real_cluster.kubeconfig)) as client:
        made = await _create(client, job, options_of("{pull: Never}"), b"", namespace, MEET)
        found = sorted(map(orjson.loads, await _outputs(client, namespace, made, 2)), key=lambda one: one["number"])
    assert [one["number"] for one in found] == [0, 1]
    assert [one["found"] for one in found] == [[one["mine"] for one in found]] * 2
    assert found[0]["mine"] != found[1]["mine"]


async def _create(
    client: Kubernetes, job: Job, options: KubernetesOptions, archive: bytes, namespace: str, program: str
) -> manifest.JobObjects:
    """As the target does it; but the trial runs that program of Python, and the keeper goes at once."""
    run = await client.create(manifest.run_object(job.run, 600.0, options, namespace))
    owner = manifest.owner(JOBS, run.metadata.name, run.metadata.uid)
    configs = manifest.input_configs(job.run, archive, owner, namespace)
    (agent,) = manifest.agent_configs(job.run, b"agent", owner, namespace)
    for config in [agent, *configs]:
        await client.create(config)
    made = manifest.make(
        job,
        options,
        namespace=namespace,
        run_owner=owner,
        agent=agent["metadata"]["name"],
        inputs=[config["metadata"]["name"] for config in configs],
        secrets={"TOKEN": SECRET},
    )
    root = copy.deepcopy(made.root)
    container(root)["command"] = ["python3", "-c", program.replace("$", "$$")]
    container(root, "keeper")["command"] = ["true"]
    found = await client.create(root)
    reference = manifest.owner(JOBS, found.metadata.name, found.metadata.uid)
    for one in (made.config, made.secret, made.service):
        if one is not None:
            await client.create(manifest.owned_by(one, reference))
    await client.patch(JOBS, found.metadata.name, manifest.RELEASE, namespace=namespace)
    return made


async def _outputs(client: Kubernetes, namespace: str, made: manifest.JobObjects, count: int) -> list[bytes]:
    """The output of each trial, once so many have ended well."""
    labels = f"seatrial/job={made.root['metadata']['name']}"

    def ended(pods: list[PodObject]) -> bool:
        return len([pod for pod in pods if pod.status.phase in ("Succeeded", "Failed")]) == count

    outputs = []
    for pod in await seen(client, PODS, ended, into=PodObject, namespace=namespace, labels=labels):
        logs = client.pod(pod.metadata.name, "trial", namespace=namespace).log()
        outputs.append(b"".join([line async for line in logs]))
        assert pod.status.phase == "Succeeded", outputs[-1]
    return outputs


async def test_the_end_of_the_run_object_is_the_end_of_everything(cluster: Cluster, fake_namespace: str) -> None:
    """It is complete without ever having had a pod, and goes by itself when its time is over."""
    job, options = changed(hosts=2, secrets={"TOKEN": "t"}), options_of("{}")
    async with Kubernetes(load_access(cluster.kubeconfig)) as client:
        await _create(client, job, options, b"archive", fake_namespace, "")
        name = manifest.run_object(job.run, 1.0, options, fake_namespace)["metadata"]["name"]
        await client.patch(JOBS, name, {"spec": {"ttlSecondsAfterFinished": 1}}, namespace=fake_namespace)
        for resource in (JOBS, CONFIG_MAPS, SECRETS, SERVICES, PODS):
            await seen(client, resource, lambda there: not there, namespace=fake_namespace, labels=selector())
