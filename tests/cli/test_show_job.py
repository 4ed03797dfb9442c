"""`seatrial plan --show-job`: the jobs of a cell and their Kubernetes objects, as YAML and nothing else."""

from typing import Any

import pytest
import yaml

from world import World

SUITE = """
name: shown
targets:
  cluster: {kind: kubernetes, kubeconfig: nowhere/config, context: none, env: {PROXY: "http://me:hunter2-Zx9@proxy"}}
machines:
  big: {target: cluster, cpu: 2, memory: 1Gi, gpu: {count: 1}}
  small: {cpu: 1}
runtimes:
  image: {image: "registry.example/base:1", workspace: {path: files}, needs: {cpu: ">=1"}}
  bare: {needs: {cpu: ">=2"}}
trials:
  t:
    kind: runtime
    matrix: {runtime: all, machine: all}
    run: ["echo first\\necho second"]
    env: {TOKEN: {secret: TOKEN}}
"""


@pytest.fixture
def shown(world: World) -> World:
    world.suite(SUITE)
    (world.folder / "files").mkdir()
    (world.folder / "files" / "data.txt").write_text("x")
    world.env["TOKEN"] = "hunter2-Zx9"
    return world


def documents(world: World, *options: str) -> list[Any]:
    done = world.seatrial("plan", "suite.yaml", "--show-job", *options, check=0)
    assert done.stderr == ""
    assert "hunter2" not in done.stdout
    assert not (world.folder / "runs").exists()
    return list(yaml.safe_load_all(done.stdout))


def test_the_objects_of_a_job_are_those_that_a_run_creates(shown: World) -> None:
    part, *objects = documents(shown, "t[runtime=image,machine=big]")
    assert part["target"] == "cluster"
    assert part["job"]["secrets"] == {"TOKEN": "TOKEN"}
    kinds = ["Job", "ConfigMap", "ConfigMap", "Job", "ConfigMap", "Secret"]
    assert [one["kind"] for one in objects] == kinds, "run, agent, inputs, then the job's own"
    root, secret = objects[3], objects[5]
    trial = root["spec"]["template"]["spec"]["containers"][0]
    assert trial["image"] == "registry.example/base:1"
    assert trial["resources"]["limits"] == {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}
    assert {"name": "PROXY", "value": "http://me:•••@proxy"} in trial["env"]
    assert secret["stringData"] == {"TOKEN": "•••"}
    assert "echo first\necho second" in objects[4]["data"]["plain.sh"]
    mounted = {one["configMap"]["name"] for one in root["spec"]["template"]["spec"]["volumes"] if "configMap" in one}
    assert mounted <= {one["metadata"]["name"] for one in objects}
    assert all("namespace" not in one["metadata"] for one in objects), "only the kubeconfig knows it"
    assert objects[2]["binaryData"]["part"].endswith("characters of base64)")


def test_options_that_change_the_cell_count(shown: World) -> None:
    options = ("--target", "kubernetes:namespace=trials", "--set", "runtimes.image.image=other:2")
    _, *objects = documents(shown, "runtime=image,machine=small", *options)
    assert {one["metadata"]["namespace"] for one in objects} == {"trials"}
    assert objects[3]["spec"]["template"]["spec"]["containers"][0]["image"] == "other:2"


def test_a_job_of_this_machine_has_no_objects_and_several_cells_may_match(shown: World) -> None:
    (part,) = documents(shown, "machine=small")
    assert [step["name"] for step in part["job"]["steps"]] == ["facts", "run echo first\necho second"]
    everything = documents(shown, "*", "--set", "runtimes.bare.image=b:1")
    assert [one["job"]["title"] for one in everything if "job" in one] == [
        "t[runtime=image,machine=big]",
        "t[runtime=image,machine=small]",
        "t[runtime=bare,machine=big]",
    ]


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("t[runtime=imag,machine=big]", "did you mean 't[runtime=image,machine=big]'?"),
        ("t[runtime=bare,machine=small]", "excluded (runtime bare needs cpu >=2, machine small has 1)"),
        ("runtime=imag", "no runtime 'imag'; did you mean 'image'?"),
        ("/00000000", "use a hash of 8 hex digits"),
        (
            "t[runtime=bare,machine=big]",
            "target cluster would reject t[runtime=bare,machine=big]: runtime",
        ),
    ],
)
def test_a_cell_that_has_no_job_is_an_error(shown: World, cell: str, message: str) -> None:
    done = shown.seatrial("plan", "suite.yaml", "--show-job", cell, check=2)
    assert message in done.stderr
    assert done.stdout == ""


def test_a_missing_input_is_an_error_as_in_a_run(shown: World) -> None:
    done = shown.seatrial(
        "plan", "suite.yaml", "--show-job", "machine=big,runtime=image", "--set", "runtimes.image.workspace.path=gone"
    )
    assert (done.returncode, "workspace not found: 'gone'" in done.stderr) == (2, True)
