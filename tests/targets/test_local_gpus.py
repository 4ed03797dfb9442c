"""The GPUs that the local target gives out: each to one job at a time. An nvidia-smi that is data tells of two."""

import asyncio
import contextlib
import os
from pathlib import Path

import pytest
from contract import Site, opened, until

from seatrial.job import Gpu as Wanted
from seatrial.job import Job, Limits, Outcome, Resources
from seatrial.targets import TargetError
from seatrial.targets.local import kind
from seatrial.targets.local.containers import Image
from seatrial.targets.local.folders import JobFolder, JobSubmission, job_path
from seatrial.targets.local.job_file import container_request
from seatrial.targets.local.reservations import LocalGpu, locked_gpus, parse, visible
from world import World

# Its lines are its data; of those it tells that `--id` names, as the real one does.
NVIDIA_SMI = """#!/bin/sh
ids=0,1; query=
for word; do case $word in --id=*) ids=${word#--id=};; --query-gpu=*) query=${word#--query-gpu=};; esac; done
for id in $(echo $ids | tr , ' '); do
    case $query in
        index,uuid) echo "$id, GPU-$id";;
        name*) echo "NVIDIA A100-SXM4-40GB, 40960, 550.54.15";;
        index,util*) echo "$id, 50, 1024";;
    esac
done
"""
TWO = [LocalGpu(0, "GPU-0"), LocalGpu(1, "GPU-1")]


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A PATH on which there are two."""
    program = tmp_path / "driver" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(NVIDIA_SMI)
    program.chmod(0o755)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return os.environ["PATH"]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two_gpus: str) -> Site:
    monkeypatch.setenv("SEATRIAL_STATE", str(tmp_path / "state"))
    (tmp_path / "shared").mkdir()
    return Site(lambda: kind.open("here", kind.options()), tmp_path / "shared", [])


def wants(site: Site, name: str, count: int = 1, command: str = "sleep 1000") -> Job:
    tell = f'echo "$CUDA_VISIBLE_DEVICES" > {site.shared}/{name}; '
    return site.job(tell + command, name=name, resources=Resources(gpu=Wanted(count)), limits=Limits(grace_s=0.1))


async def given(site: Site, name: str) -> str:
    await until(lambda: site.lines(name))
    return site.lines(name)[0]


async def test_two_jobs_get_one_each_and_a_third_waits_until_one_is_given_back(site: Site) -> None:
    async with opened(site) as one, opened(site) as two:
        first, second = await one.submit(wants(site, "a"), {}), await two.submit(wants(site, "b"), {})
        assert {await given(site, "a"), await given(site, "b")} == {"0", "1"}
        third = asyncio.create_task(two.submit(wants(site, "c"), {}))
        await asyncio.wait({third}, timeout=1.0)
        assert not third.done()
        await one.cancel(first)
        assert await given(site, "c") == site.lines("a")[0]
        await asyncio.gather(*map(one.remove, (first, second, await third)))


@pytest.mark.parametrize("making", [False, True])
async def test_a_job_that_waits_for_a_gpu_leaves_nothing_when_it_is_cancelled(site: Site, making: bool) -> None:
    async with opened(site) as target:
        both = await target.submit(wants(site, "both", 2), {})
        assert await given(site, "both") == "0,1"
        late = wants(site, "late")
        folder = JobFolder(job_path(Path(target.address()["state"]), late.run, late.name))
        with locked_gpus(folder) if making else contextlib.nullcontext():
            waiting = asyncio.create_task(target.submit(late, {}))
            if making:
                await until(folder.path.exists)
            else:
                await asyncio.wait({waiting}, timeout=0.5)
            waiting.cancel()
            await asyncio.sleep(0)
        await asyncio.wait({waiting})
        assert [found.handle for found in await target.list(site.run)] == [both]
        await target.remove(both)


async def test_a_machine_with_fewer_than_asked_for_gives_all_that_it_has(site: Site) -> None:
    async with opened(site) as target:
        handle = await target.submit(wants(site, "many", 8), {})
        assert await given(site, "many") == "0,1"
        await target.remove(handle)


async def test_a_driver_that_fails_gives_out_nothing_and_says_why(site: Site, tmp_path: Path) -> None:
    (tmp_path / "driver" / "nvidia-smi").write_text("#!/bin/sh\necho 'Driver/library version mismatch' >&2; exit 18\n")
    async with opened(site) as target:
        with pytest.raises(TargetError, match=r"cannot assign GPUs: .*Driver/library version mismatch") as caught:
            await target.submit(wants(site, "any"), {})
        assert caught.value.outcome is Outcome.INFRA
        assert await target.list(site.run) == []


async def test_a_submitter_that_died_before_its_job_began_keeps_no_gpu(site: Site) -> None:
    async with opened(site) as target:
        job = wants(site, "never")
        folder = JobFolder(site.shared.parent / "state" / "jobs" / job.run / job.name)
        folder.path.mkdir(parents=True)
        folder.write(JobSubmission(job, os.uname().nodename, 0.0, gpus=[0, 1]))
        os.utime(folder.path / "job.json", (0, 0))
        handle = await target.submit(wants(site, "next"), {})
        assert await given(site, "next") == "0"
        await target.remove(handle)


def test_a_declared_gpu_holds_on_a_machine_of_two_and_is_what_the_job_sees(world: World, two_gpus: str) -> None:
    world.suite(
        """
        machines: {one: {gpu: {count: 1, model: A100, memory: 40Gi}}}
        trials:
          t:
            kind: runtime
            machine: one
            repeat: 3
            run: [{command: "echo shows=$CUDA_VISIBLE_DEVICES=", matches: "shows=[01]="}]
        """
    )
    world.seatrial("run", "suite.yaml", check=0, PATH=two_gpus)
    counts = [found for cell in world.results().cells for found in cell.findings if found.check == "gpu count"]
    assert [found.verdict.value for found in counts] == ["passed"] * 3


def test_those_that_the_caller_was_given_are_those_that_there_are() -> None:
    assert parse("0, GPU-0\n1, GPU-1\nno line of it\n") == TWO
    assert visible(TWO, {}) == TWO
    assert visible(TWO, {"CUDA_VISIBLE_DEVICES": "1"}) == TWO[1:]
    assert visible(TWO, {"CUDA_VISIBLE_DEVICES": "GPU-1, 0"}) == TWO[::-1]
    assert visible(TWO, {"CUDA_VISIBLE_DEVICES": "0,-1,1"}) == TWO[:1]
    assert visible(TWO, {"CUDA_VISIBLE_DEVICES": ""}) == []


@pytest.mark.parametrize(
    ("engine", "gpus", "options"),
    [
        ("podman", [1], ["--device", "nvidia.com/gpu=1"]),
        ("docker", [0, 1], ["--gpus", '"device=0,1"']),
        ("podman", [], ["--device", "nvidia.com/gpu=all"]),
        ("docker", [], ["--gpus", "2"]),
    ],
)
def test_a_container_gets_the_gpus_of_its_job(
    site: Site, tmp_path: Path, engine: str, gpus: list[int], options: list[str]
) -> None:
    submission = JobSubmission(wants(site, "c", 2), "host", 0.0, gpus=gpus, engine=engine, container="c")
    made = container_request(submission, tmp_path, Image("image", engine, None), {}, "agent.pyz")
    assert made is not None
    at = made["create"].index(options[0])
    assert made["create"][at : at + 2] == options
    assert "CUDA_VISIBLE_DEVICES" not in made["values"]  # inside, they count from 0
