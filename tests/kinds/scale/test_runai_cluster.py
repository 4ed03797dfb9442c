"""The three commands of Run:ai's scale test tool against a real API server, with an operator of theirs at work."""

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.cluster import Cluster
from cluster.fixtures import FAKE_NODES, cluster
from kinds.scale.runai_cluster import project_of
from kinds.scale.runai_reader import run_theirs, seconds_between
from kinds.scale.scale_world import ScaleWorld, wait_for
from record.postgres_server import PostgresServer, postgres
from seatrial.migrate.runai.times import DONE, read_folder
from world import World

__all__ = ["cluster", "postgres"]
pytestmark = pytest.mark.timeout(1200)
TEMPLATES = Path(__file__).parent / "runai"
CREATED = ("workloadCreated", "jobCreated", "firstPodCreated", "lastPodCreated", "podGroupCreated")


class RunaiWorld(ScaleWorld):
    project: str

    def scale(self, command: str, *args: str, check: int = 0) -> str:
        done = self.seatrial("scale", command, *args, check=check, KUBECONFIG=str(self.cluster.kubeconfig))
        return done.stdout + done.stderr

    def submit(self, *args: str, check: int = 0) -> str:
        return self.scale("submit", "--project", self.project, *args, check=check)

    def sample(self, *args: str) -> list[dict[str, Any]]:
        self.scale("sample", "-p", self.project, *args)
        return self.read("sampled-all.json", *args[args.index("-o") + 1 : args.index("-o") + 2] if "-o" in args else ())

    def sample_until_decided(self, *args: str) -> list[dict[str, Any]]:
        wait_for(lambda: all(one["podSchedulingDecisionTimestamp"] for one in self.sample(*args)))
        return self.sample(*args)

    def read(self, name: str, folder: str = "logs") -> Any:
        return json.loads((self.folder / folder / name).read_text())

    def workloads(self) -> list[str]:
        kinds = "trainingworkloads,interactiveworkloads,distributedworkloads,runaijobs,pods"
        return self.cluster.kubectl("get", kinds, "-n", self.namespace, "-o", "name").stdout.split()


@pytest.fixture
def runai(world: World, cluster: Cluster) -> Iterator[RunaiWorld]:
    with project_of(cluster) as project:
        made = RunaiWorld(world.folder, world.env)
        made.cluster, made.project, made.namespace = cluster, project, f"runai-{project}"
        shutil.copytree(TEMPLATES, made.folder / "yaml")
        yield made


def test_all_three_commands_with_what_is_left_of_waves_volumes_and_foreign_pods(runai: RunaiWorld) -> None:
    runai.cluster.kubectl("run", "foreign", "-n", runai.namespace, "--image=none")
    assert "11 of 11 workloads submitted" in runai.submit("-n", "11", "-p", "4", "-g", "0.5", "--pvc")
    submitted = runai.read("submitted.json")
    assert len({one["jobName"] for one in submitted}) == 11
    assert {one["jobNamespace"] for one in submitted} == {runai.namespace}
    sampled = runai.sample_until_decided()
    assert sorted(one["jobName"] for one in sampled) == sorted(one["jobName"] for one in submitted)
    wait_for(lambda: all(one["firstPVCBindTimestamp"] for one in runai.sample()))
    # With microseconds once the scheduler's event is there, which may come after the condition of the pod.
    wait_for(lambda: all("." in one["podSchedulingDecisionTimestamp"] for one in runai.sample()))
    for one in runai.sample():
        assert one["podSchedulingDecision"] == "scheduled"
        assert one["firstPVCBindRequestTimestamp"] < one["firstPVCBindTimestamp"]
        assert one["firstEvictionTimestamp"] is one["backendJobCreatedTimestamp"] is None
    assert [len(one) for one in runai.read("sampled.json")] == [13] * 11, "what their plotter needs, and nothing else"
    told = runai.scale("plot", "--plot", "detailed")
    assert "11 done" in told
    assert "First PVC Bind from First PVC Bind Request (11)" in told
    assert [row.state for row in read_folder(runai.folder / "logs").rows] == [DONE] * 11
    assert "deleted all workloads of submission-" in runai.scale("clean")
    wait_for(lambda: runai.workloads() == ["pod/foreign"])


def test_their_plotter_reads_what_sample_writes(runai: RunaiWorld) -> None:
    runai.submit("-n", "5", "-p", "2", "--pvc")
    done = {one["jobName"] for one in runai.read("submitted.json")}
    submitted = runai.read("submitted.json")
    runai.submit("-n", "1", "-g", "64", "-o", "stuck")  # no node has so many
    both = [*submitted, *runai.read("submitted.json", "stuck")]
    (runai.folder / "logs/submitted.json").write_text(json.dumps(both))
    wait_for(lambda: all(one["podSchedulingDecisionTimestamp"] for one in runai.sample()))
    wait_for(lambda: {one["jobName"] for one in runai.read("sampled.json")} >= done)
    folder = runai.folder / "logs"
    read = seconds_between(folder)
    assert {*read} >= done
    for name in done:
        times = read[name]
        assert all(times[f"{event}Timestamp"] >= -1 for event in CREATED), "whole seconds of several clocks"
    for plot in ("general", "detailed"):
        told = run_theirs(folder, plot)
        if told is not None:
            assert (folder / f"{plot}.png").stat().st_size > 1000
            assert "missing submit time" not in told
            rows = (folder / "times.csv").read_text().splitlines()
            assert {row.partition(",")[0] for row in rows[1:]} == {*read}


def test_a_sample_is_taken_from_another_machine_at_any_time_and_again(runai: RunaiWorld) -> None:
    runai.submit("-n", "2")
    elsewhere = runai.folder / "elsewhere"
    elsewhere.mkdir()
    first = runai.sample("-o", "elsewhere")
    second = runai.sample_until_decided("-o", "elsewhere")
    names = {one["jobName"] for one in runai.read("submitted.json")}
    assert {one["jobName"] for one in first} == {one["jobName"] for one in second} == names
    shutil.copy(runai.folder / "logs/submitted.json", elsewhere)
    assert "2 done" in runai.scale("plot", "-o", "elsewhere")
    assert "3 of 3" in runai.submit("-n", "3")  # a second test in the same folder
    assert len(runai.read("submitted.json")) == 3
    assert len(list((runai.folder / "logs").glob("submitted-*.json"))) == 1


def test_all_pods_of_a_distributed_workload_count(runai: RunaiWorld) -> None:
    runai.submit("-t", "distributed", "-n", "2", "--num-workers", "3", "-p", "1")
    sampled = runai.sample_until_decided("-t", "distributed")
    assert len(sampled) == 2
    pods = runai.cluster.kubectl("get", "pods", "-n", runai.namespace, "-o", "name").stdout.split()
    assert len(pods) == 8
    assert all(one["firstPodCreatedTimestamp"] <= one["lastPodCreatedTimestamp"] for one in sampled)
    assert all(one["jobCreatedTimestamp"] for one in sampled)


def test_who_was_given_room_by_an_eviction_has_its_time(runai: RunaiWorld) -> None:
    node = f"fake-{FAKE_NODES - 1}"
    for name in ("training", "interactive"):
        path = runai.folder / f"yaml/{name}.yaml"
        path.write_text(path.read_text().replace("status:", f"  nodeType: {{value: {node}}}\nstatus:"))
    runai.submit("-n", "1", "-g", "8")
    wait_for(lambda: runai.sample()[0]["podSchedulingDecision"] == "scheduled")
    runai.submit("-t", "interactive", "-n", "1", "-g", "8", "-o", "two")
    wait_for(lambda: runai.sample("-t", "interactive", "-o", "two")[0]["firstEvictionTimestamp"])
    wait_for(lambda: runai.sample("-t", "interactive", "-o", "two")[0]["podSchedulingDecision"] == "scheduled")
    assert "First Eviction from Pod Group Creation (1)" in runai.scale("plot", "--plot", "detailed", "-o", "two")
    assert runai.sample()[0]["firstEvictionTimestamp"] is None  # it was evicted, for another


@pytest.mark.postgres
def test_when_the_control_plane_knew_of_a_job_is_sampled_and_plotted(
    runai: RunaiWorld, postgres: PostgresServer
) -> None:
    runai.submit("-n", "2")
    first, second = [one["jobName"] for one in runai.read("submitted.json")]
    columns = "name text, project text, kind text, exists_in_cluster boolean, cluster_uuid uuid, time_created bigint"
    row = f"'{first}', '{runai.project}', 'RunaiJob', true, NULL, 3786912000123"  # after the pod group is there
    database = postgres.database()
    name = database.partition("@/")[2].partition("?")[0]
    postgres.sql(f"CREATE TABLE jobs ({columns}); INSERT INTO jobs VALUES ({row})", name)
    runai.sample_until_decided()
    assert "1 known to the control plane, 1 unknown" in runai.scale(
        "sample", "-p", runai.project, "--backend", database
    )
    known = {one["jobName"]: one["backendJobCreatedTimestamp"] for one in runai.read("sampled-all.json")}
    assert known == {first: "2090-01-01T00:00:00.123+00:00", second: None}
    assert "Backend Job Creation from Pod Group Creation (1)" in runai.scale("plot", "--plot", "detailed")


def test_what_the_server_refuses_is_in_the_file_with_the_reason(runai: RunaiWorld) -> None:
    quota = ("create", "quota", "q", "-n", runai.namespace, "--hard=count/trainingworkloads.run.ai=3")
    runai.cluster.kubectl(*quota)
    counted = ("get", "quota", "q", "-n", runai.namespace, "-o", "jsonpath={.status.used}")
    wait_for(lambda: runai.cluster.kubectl(*counted).stdout)  # until then the server refuses everything
    told = runai.submit("-n", "5", "-p", "1", check=1)
    assert "3 of 5 workloads submitted" in told
    assert "exceeded quota" in told
    submitted = runai.read("submitted.json")
    assert [bool(one.get("error")) for one in submitted].count(True) == 2
    runai.sample_until_decided()
    assert "2 refused" in runai.scale("plot")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("kind: TrainingWorkload", "kind: TrainingWorkloads"), "did you mean run.ai/v2alpha1 TrainingWorkload"),
        (("image: {value", "image: {vaule"), "the server rejected the TrainingWorkload"),
        (("namespace: runai-PROJECT_PLACEHOLDER", "namespace: runai-nowhere"), "runai-nowhere"),
    ],
)
def test_a_template_that_the_server_refuses_is_told_before_anything_is_made(
    runai: RunaiWorld, change: tuple[str, str], told: str
) -> None:
    path = runai.folder / "yaml/training.yaml"
    path.write_text(path.read_text().replace(*change))
    assert told in runai.submit("-n", "5", check=3)
    assert not (runai.folder / "logs").exists()
    assert runai.workloads() == []


def test_an_interrupt_leaves_a_file_of_all_that_was_submitted(runai: RunaiWorld) -> None:
    process = runai.start(
        "scale", "submit", "--project", runai.project, "-n", "5000", "-p", "2", KUBECONFIG=str(runai.cluster.kubeconfig)
    )
    wait_for(lambda: len(runai.workloads()) > 5)
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130
    made = {name.rpartition("/")[2] for name in runai.workloads() if name.startswith("trainingworkload")}
    assert {one["jobName"] for one in runai.read("submitted.json")} == made
    runai.scale("clean")


def test_after_a_kill_everything_is_found_and_removed(runai: RunaiWorld) -> None:
    process = runai.start(
        "scale", "submit", "--project", runai.project, "-n", "5000", "-p", "2", KUBECONFIG=str(runai.cluster.kubeconfig)
    )
    wait_for(lambda: len(runai.workloads()) > 20)
    process.kill()
    process.communicate()
    runai.scale("clean")
    wait_for(lambda: not runai.workloads())


def test_a_suite_takes_their_template_as_it_is(runai: RunaiWorld) -> None:
    values = {"PROJECT_PLACEHOLDER": runai.project, "NUM_GPUS": 1}
    workload = {"template": "yaml/training.yaml", "values": values, "claim": "yaml/pvc.yaml"}
    runai.trial(workload=workload, count=5, until="created", bounds={"created.p99": "10m"})
    runai.seatrial("run", "suite.yaml", check=0)
    wait_for(lambda: not runai.workloads())
