"""Training on several hosts of a cluster, from the suite to the verdict: hosts that talk to each other, one that fails,
and artifacts that the job itself writes to an address."""

import json
from pathlib import Path

import pytest
from on_cluster import IMAGE, namespace_of, nothing_left

from cluster.cluster import Cluster
from cluster.fixtures import Wanted, needs_addon, shared
from seatrial.job import CellResult
from world import EVERY, World

pytestmark = pytest.mark.cluster

# Host 0 adds up what the others send, as a step of an all-reduce would: no step without all hosts.
TRAIN = """
import json, os, socket, sys, time
host, hosts = int(os.environ["SEATRIAL_HOST"]), int(os.environ["SEATRIAL_HOSTS"])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
names = os.environ["SEATRIAL_HOSTNAMES"].split(",")
assert len(names) == hosts and names[0].split(".")[0] == address[0].split(".")[0], (names, address)
failing = int(sys.argv[1]) if sys.argv[1:] else None

def connected():
    for _ in range(6000):
        try:
            return socket.create_connection(address, 60)
        except OSError:  # its name is not known yet, or it does not listen yet
            time.sleep(0.1)
    sys.exit("no host 0 at %s:%d" % address)

if host == 0:
    server = socket.create_server(("", address[1]))
    peers = [server.accept()[0] for _ in range(hosts - 1)]
else:
    peers = [connected()]
files = [peer.makefile("rw", buffering=1) for peer in peers]
for step in range(6):
    if failing == host and step == 3:
        sys.exit("host %d has no more memory" % host)
    if host == 0:
        total = host + sum(int(file.readline()) for file in files)
    else:
        print(host, file=files[0], flush=True)
        total = int(files[0].readline())
    print("step: %d, loss: %.3f" % (step, total / (step + 1)), flush=True)
    if host == 0:  # when it has said so itself: the others may fail, and end it, as soon as they hear of it
        for file in files: print(total, file=file, flush=True)
    if failing is not None and failing != host and step == 2:
        time.sleep(600)  # as a collective operation would that waits for a host
with open("metrics.json", "w") as file:
    json.dump({"step_time": 0.25 + host}, file)
with open(os.path.join(os.environ["SEATRIAL_FILES"], "host.txt"), "w") as file:
    print(host, socket.gethostname(), file=file)
print("Finished training run")
"""


def run(world: World, cluster: Cluster, namespace: str, trial: str, check: int, target: str = "") -> CellResult:
    (cell,) = run_all(world, cluster, namespace, trial, check, target)
    return cell


def run_all(
    world: World, cluster: Cluster, namespace: str, trial: str, check: int, target: str = ""
) -> list[CellResult]:
    (world.folder / "code").mkdir()
    (world.folder / "code" / "train.py").write_text(TRAIN)
    world.suite(
        f"""
        name: hosts
        targets:
          cluster:
            {{kind: kubernetes, kubeconfig: {cluster.kubeconfig}, namespace: {namespace}, pull: Never{target}}}
        machines: {{small: {{target: cluster, cpu: 0.2, memory: 128Mi}}}}
        runtimes: {{python: {{image: {IMAGE}, workspace: {{path: code}}}}}}
        trials: {{t: {{kind: training, runtime: python, machine: small, retries: 0, timeout: {{run: 30m}}, {trial}}}}}
        """
    )
    done = world.seatrial("run", "suite.yaml", check=check)
    cells = world.results().cells
    assert {cell.attempts[0].place.host for cell in cells} == {"real-0"}, done.stdout
    return cells


def found(cell: CellResult) -> dict[str, str]:
    return {f"{one.step} {one.check}": str(one.verdict) for one in cell.findings}


async def test_hosts_talk_to_host_0_by_its_name_and_are_judged_each(
    world: World, real_cluster: Cluster, open_namespace: str
) -> None:
    cell = run(
        world,
        real_cluster,
        open_namespace,
        """command: python train.py, hosts: 2, log: {must: Finished training run}, loss: {}, steps: {count: 6},
           files: {m: {match: metrics.json, count: 1, valid: json}},
           metrics: {step_time: {file: metrics.json, key: step_time, unit: s, better: lower}}""",
        check=0,
    )
    assert set(found(cell).values()) == {"passed"}, cell.findings
    assert cell.metrics["step_time"]["value"] == 1.25  # the slowest host's
    attempt = world.run().attempt(cell.hash, 1)
    log = (attempt / "log.txt").read_text().splitlines()
    for host in (0, 1):
        assert log.count(f"[{host}] step: 5, loss: 0.167") == 1  # 1 of host 1, over 6: both heard the sum
        kept = (attempt / "files" / "hosts" / str(host) / "host.txt").read_text().split()
        assert kept[0] == str(host)
        assert kept[1].endswith(f"-{host}")
    await nothing_left(real_cluster, open_namespace)


async def test_a_host_that_fails_ends_the_others_and_the_verdict_names_it(
    world: World, real_cluster: Cluster, open_namespace: str
) -> None:
    cell = run(
        world,
        real_cluster,
        open_namespace,
        "command: python train.py 1, hosts: 2, log: {must: Finished training run}",
        check=1,
    )
    assert str(cell.verdict) == "failed"
    finding = next(one for one in cell.findings if one.check == "exit")
    assert finding.message == "exited 1 on host 1 (expected 0)"
    assert "host 1 has no more memory" in finding.evidence
    assert cell.attempts[0].exit.message.startswith("host 1 on real-0: exit code 1")
    log = (world.run().attempt(cell.hash, 1) / "log.txt").read_text()
    assert "[0] step: 2, loss: " in log
    assert "[0] Finished" not in log
    await nothing_left(real_cluster, open_namespace)


@pytest.mark.every
@pytest.mark.addons
@pytest.mark.skipif(not EVERY, reason="a cluster of its own with addons and a real node, with SEATRIAL_TEST_ALL=1")
async def test_hosts_talk_and_fail_alike_as_a_job_set(world: World) -> None:
    needs_addon("jobset")
    with (
        shared("real-jobset", Wanted(kubelet=True, addons=("jobset",))) as cluster,
        namespace_of(cluster) as namespace,
    ):
        trial = "command: 'python train.py ${failing}', matrix: {failing: ['', 1]}, hosts: 2, steps: {count: 6}"
        passed, failed = run_all(world, cluster, namespace, trial, 1, ", workload: jobset")
        assert str(passed.verdict) == "passed", passed.findings
        assert failed.why == "train: exited 1 on host 1 (expected 0)"
        await nothing_left(cluster, namespace)


def test_artifacts_that_the_job_writes_to_an_address_are_read_there(
    world: World, real_cluster: Cluster, open_namespace: str
) -> None:
    """A folder of the node stands for a bucket: the job writes to it, the checks read it from outside."""
    bucket = world.folder / "bucket"
    for folder in (bucket, *bucket.parents[:3]):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o777)
    write = (
        "mkdir -p /bucket/$SEATRIAL_JOB && "
        """echo "{\\"step_time\\": 0.5}" > /bucket/$SEATRIAL_JOB/train_metrics.json && echo Finished"""
    )
    cell = run(
        world,
        real_cluster,
        open_namespace,
        f"""command: {json.dumps(write)}, artifacts: "file://{bucket}", log: {{must: Finished}},
            files: {{m: {{match: "**/train_metrics.json", count: 1, valid: json}},
                     p: {{match: "**/*.profile"}}}},
            metrics: {{step_time: {{file: "**/train_metrics.json", key: step_time, unit: s, better: lower}}}}""",
        check=1,
        target=f", volumes: [{{host: {bucket}, at: /bucket, read_only: false}}]",
    )
    assert next(Path(bucket).rglob("train_metrics.json")).is_file()
    failed = [f"{one.step} {one.check}" for one in cell.findings if str(one.verdict) == "failed"]
    assert len(failed) == 1, cell.findings
    assert "p" in failed[0]
    assert cell.metrics["step_time"]["value"] == 0.5
