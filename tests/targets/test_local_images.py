"""`image:` on the local target: real containers, with and without a Python in the image."""

import asyncio
import io
import os
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from contract import WAIT_S, Site, log_of, lose_folder, opened, page, stages, until, until_exit, watching

from seatrial.job import (
    Environment,
    Job,
    Limits,
    ObservedStep,
    Outcome,
    Port,
    Ready,
    Resources,
    Stage,
    Step,
    Verdict,
    read_records,
)
from seatrial.targets import DiagnosticLevel, Target, TargetError
from seatrial.targets.local import doctor, kind
from seatrial.targets.local.programs import run_program
from world import World

BUSYBOX = next((path for path in ("/bin/busybox", "/usr/bin/busybox") if os.path.exists(path)), None)
TOOLS = ("sh", "sleep", "tail", "echo", "cat", "tr", "kill", "ls", "dd", "test")
LEFT_OUT = {"test", "site-packages", "idlelib", "tkinter", "__pycache__", "ensurepip", "turtledemo", "lib2to3"}

pytestmark = [
    pytest.mark.container,
    pytest.mark.skipif(shutil.which("podman") is None, reason="podman is not installed"),
    pytest.mark.skipif(shutil.which("runc") is None or os.geteuid() != 0, reason="needs root and runc"),
    pytest.mark.skipif(BUSYBOX is None, reason="busybox-static, of which the images are made, is not installed"),
]


@pytest.fixture(scope="module", autouse=True)
def podman_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Where raising limits is not allowed, podman's own defaults do not start anything."""
    path = tmp_path_factory.mktemp("podman") / "containers.conf"
    path.write_text('[containers]\ndefault_ulimits = []\n[engine]\nruntime = "runc"\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTAINERS_CONF", str(path))
        yield


def imported(archive: Path) -> str:
    name = f"localhost/seatrial-test:{uuid.uuid4().hex[:8]}"
    subprocess.run(["podman", "import", str(archive), name], check=True, capture_output=True)
    return name


def add_tools(archive: tarfile.TarFile) -> None:
    assert BUSYBOX is not None
    archive.add(BUSYBOX, "bin/busybox")
    for tool in TOOLS:
        link = tarfile.TarInfo(f"bin/{tool}")
        link.type, link.linkname = tarfile.SYMTYPE, "busybox"
        archive.addfile(link)
    archive.addfile(tarfile.TarInfo("etc/passwd"), io.BytesIO())


@pytest.fixture(scope="module")
def bare(podman_settings: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("image") / "bare.tar"
    with tarfile.open(path, "w") as archive:
        add_tools(archive)
    name = imported(path)
    yield name
    subprocess.run(["podman", "rmi", "--force", name], check=True, capture_output=True)


@pytest.fixture(scope="module")
def with_python(podman_settings: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("image") / "python.tar"
    base, version = Path(sys.base_prefix), "python{}.{}".format(*sys.version_info)
    binary = base / "bin" / version
    extensions = [binary, *(base / "lib" / version / "lib-dynload").glob("*.so")]
    linked = subprocess.run(["ldd", *map(str, extensions)], capture_output=True, text=True, check=True).stdout.split()
    with tarfile.open(path, "w") as archive:
        add_tools(archive)
        for library in {word for word in linked if word.startswith("/") and not word.endswith(":")}:
            archive.add(os.path.realpath(library), library)
        for name in ("python3", version):
            archive.add(binary, f"usr/bin/{name}")
        standard = base / "lib" / version
        archive.add(
            standard, f"usr/lib/{version}",
            filter=lambda info: None if LEFT_OUT & set(Path(info.name).parts) or "config-" in info.name else info,
        )  # fmt: skip
    name = imported(path)
    path.unlink()
    yield name
    subprocess.run(["podman", "rmi", "--force", name], check=True, capture_output=True)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("SEATRIAL_STATE", str(tmp_path / "state"))
    (tmp_path / "shared").mkdir()
    return Site(lambda: kind.open("here", kind.options()), tmp_path / "shared", [])


def containers(site: Site) -> list[str]:
    listing = ["podman", "ps", "--all", "--quiet", "--filter", f"label=seatrial.run={site.run}"]
    return subprocess.run(listing, capture_output=True, text=True, check=True).stdout.split()


async def seen(
    site: Site, job: Job, secrets: dict[str, str] | None = None
) -> tuple[Outcome, list[ObservedStep], bytes]:
    async with opened(site) as target:
        handle = await target.submit(job, secrets or {})
        ended = (await until_exit(target, handle))[-1].exit
        assert ended is not None
        into = site.shared / "records.jsonl"
        steps: list[ObservedStep] = []
        if await target.fetch(handle, "records.jsonl", into):
            steps = list(read_records(into.read_bytes().splitlines(), job.steps).steps)
        log = await log_of(target, handle)
        await target.fetch(handle, "files", site.shared / "files")
        assert containers(site) == [], ended
        await target.remove(handle)
        return ended.outcome, steps, log


@pytest.fixture(params=["bare", "with_python"])
def image(request: pytest.FixtureRequest) -> str:
    name: str = request.getfixturevalue(request.param)
    return name


async def test_plain_commands_run_with_and_without_a_python_in_the_image(site: Site, image: str) -> None:
    commands = (
        "echo hello from $HOME; cat",
        "exit 3",
        "echo kept > $SEATRIAL_FILES/kept; ls /bin/busybox",
        "echo $TOKEN",
    )
    job = site.job(*commands, environment=Environment(image=image), secrets={"TOKEN": "KEY"})
    outcome, steps, log = await seen(site, job, {"TOKEN": "very-secret-value"})
    assert outcome is Outcome.EXITED
    assert [step.code for step in steps] == [0, 3, 0, 0]
    assert steps[0].output == "hello from /seatrial/home\n"
    assert steps[3].output == "•••\n"
    assert b"/bin/busybox" in log
    assert b"very-secret-value" not in log
    assert (site.shared / "files/kept").read_text() == "kept\n"


async def test_a_step_over_its_time_is_ended_inside_and_the_next_runs(site: Site, image: str) -> None:
    steps = (
        Step("run slow", "command", {"command": "sleep 1401 & sleep 1402"}, timeout_s=1.5),
        Step("run next", "command", {"command": "for p in /proc/[0-9]*; do cat $p/cmdline | tr '\\0' ' '; echo; done"}),
    )
    job = msgspec.structs.replace(
        site.job(environment=Environment(image=image), limits=Limits(grace_s=0.5)), steps=steps
    )
    outcome, found, _ = await seen(site, job)
    assert outcome is Outcome.EXITED
    assert [step.outcome for step in found] == [Outcome.TIMEOUT, Outcome.EXITED]
    assert "sleep 140" not in found[1].output


async def test_out_of_memory_in_a_container_is_seen(site: Site, image: str) -> None:
    eat = "dd if=/dev/zero of=/dev/null bs=200M count=1 && echo ate"
    job = site.job(eat, "echo next", environment=Environment(image=image), resources=Resources(memory_bytes=96 << 20))
    outcome, steps, _ = await seen(site, job)
    assert outcome is Outcome.EXITED
    assert [step.outcome for step in steps] == [Outcome.MEMORY, Outcome.EXITED]


async def until_up(target: Target, handle: str) -> None:
    """Until the job in the container says that it is."""
    said = b""
    async with asyncio.timeout(WAIT_S):
        async for block in target.logs(handle, follow=True):
            said += block
            if b"\nup\n" in said:
                return


async def test_a_cancelled_job_leaves_no_container(site: Site, image: str) -> None:
    job = site.job("echo up; sleep 1403", environment=Environment(image=image), limits=Limits(grace_s=0.3))
    async with opened(site) as target:
        handle = await target.submit(job, {})
        await until_up(target, handle)
        await target.cancel(handle)
        assert (await until_exit(target, handle))[-1].exit.outcome is Outcome.CANCELLED  # type: ignore[union-attr]
        assert containers(site) == []
        await target.remove(handle)


async def test_a_container_is_removed_after_its_supervisor_was_killed(site: Site, image: str) -> None:
    job = site.job("echo up; sleep 1404", environment=Environment(image=image))
    async with opened(site) as target:
        handle = await target.submit(job, {})
        await until_up(target, handle)
        pid = supervisor_from_folder(site)
        os.kill(pid, signal.SIGKILL)
        assert (await until_exit(target, handle))[-1].exit.outcome is Outcome.LOST  # type: ignore[union-attr]
        await until(lambda: not containers(site))
        await target.remove(handle)


async def test_a_container_whose_job_has_lost_its_folder_is_found_by_its_label(site: Site, bare: str) -> None:
    job = site.job("echo up; sleep 1405", environment=Environment(image=bare))
    async with opened(site) as target:
        handle = await target.submit(job, {})
        await until_up(target, handle)
    await lose_folder(site, supervisor_from_folder(site))
    async with opened(site) as target:
        assert containers(site)
        assert [found.handle for found in await target.list()] == [handle]
        await target.remove(handle)
        assert containers(site) == []
        assert await target.list() == []


def supervisor_from_folder(site: Site) -> int:
    (path,) = (site.shared.parent / "state").glob("jobs/*/*/supervisor.json")
    pid: int = msgspec.json.decode(path.read_bytes())["pid"]
    return pid


async def test_an_import_in_an_image_without_python_says_what_is_missing(site: Site, bare: str) -> None:
    step = Step("import numpy", "import", {"module": "numpy"})
    job = msgspec.structs.replace(site.job(environment=Environment(image=bare)), steps=(step,))
    _, steps, _ = await seen(site, job)
    assert "needs Python" in steps[0].result["error"]


async def test_a_server_in_a_container_is_ready_when_it_listens_there_and_is_reached_from_here(
    site: Site, image: str
) -> None:
    """What forwards its port accepts connections all the time; that alone makes nobody ready."""
    wait = "echo up > up; while ! test -e go; do sleep 0.05; done; echo served > index.html"
    serve = '/bin/busybox httpd -f -p "$SEATRIAL_PORT_HTTP"'
    job = site.job(
        f"{wait}; exec {serve}", environment=Environment(image=image), limits=Limits(grace_s=0.5),
        ports=(Port("http"), Port("other")), ready=Ready("http"),
    )  # fmt: skip
    async with opened(site) as target, watching(target) as events:
        handle = await target.submit(job, {})
        (work,) = (site.shared.parent / "state").glob("jobs/*/*/work")
        await until(lambda: (work / "up").exists())
        await asyncio.sleep(0.5)
        assert Stage.READY not in stages(events, handle)
        (work / "go").touch()
        await until(lambda: Stage.READY in stages(events, handle))
        async with target.endpoint(handle, "http") as address:
            assert await page(address) == "served"
        await target.remove(handle)
        assert containers(site) == []


async def test_an_import_runs_in_the_python_of_the_image(site: Site, with_python: str) -> None:
    step = Step("import json", "import", {"module": "json"})
    job = msgspec.structs.replace(site.job(environment=Environment(image=with_python)), steps=(step,))
    _, steps, _ = await seen(site, job)
    assert steps[0].result["state"] == "imported"
    assert steps[0].result["file"].startswith("/usr/lib/python3")


async def test_an_image_that_does_not_exist_is_no_job(site: Site) -> None:
    async with opened(site) as target:
        with pytest.raises(TargetError, match="no-such-image"):
            await target.submit(site.job("true", environment=Environment(image="localhost/no-such-image:1")), {})
        assert await target.list() == []


async def test_a_client_without_an_engine_does_not_count(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2\nexit 1\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(docker.parent))
    async with opened(site) as target:
        with pytest.raises(TargetError, match="Cannot connect to the Docker daemon") as caught:
            await target.submit(site.job("true", environment=Environment(image="localhost/any:1")), {})
        assert caught.value.outcome is Outcome.REFUSED


def images_there() -> list[str]:
    """By their names: other tests have some, too, that come and go."""
    listing = ["podman", "images", "--format", "{{.Repository}}:{{.Tag}}"]
    return subprocess.check_output(listing, text=True).split()


async def test_the_doctor_starts_a_container_and_leaves_nothing(tmp_path: Path) -> None:
    diagnostics = {
        one.what.partition(",")[0]: one for one in await doctor.examine_machine(tmp_path, tmp_path, "podman")
    }
    assert (diagnostics["containers"].level, diagnostics["containers"].why) == (
        DiagnosticLevel.OK,
        f"{shutil.which('podman')} works",
    )
    assert f"localhost/seatrial-doctor:{os.getpid()}" not in images_there()


async def test_where_podman_may_not_set_its_own_limits_jobs_have_the_highest_allowed(
    site: Site, bare: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "containers.conf").write_text('[engine]\nruntime = "runc"\n')
    monkeypatch.setenv("CONTAINERS_CONF", str(tmp_path / "containers.conf"))
    _, _, error = await run_program("podman", "run", "--rm", "--network", "none", bare, "/bin/sh", "-c", ":")
    if "rlimit" not in error:
        pytest.skip("podman may set its own limits here")
    outcome, steps, _ = await seen(site, site.job("ulimit -n", environment=Environment(image=bare)))
    assert (outcome, steps[0].code) == (Outcome.EXITED, 0)
    assert int(steps[0].output) == resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    found = (await doctor.examine_machine(tmp_path, tmp_path, "podman"))[5]
    assert (found.level, "jobs use --ulimit nofile=" in found.why) == (DiagnosticLevel.WARNING, True)
    assert "CAP_SYS_RESOURCE" in found.fix


def test_an_image_with_little_but_a_shell_passes(world: World, bare: str) -> None:
    world.suite(
        f"name: bare\nmachines: {{here: {{target: here, cpu: 1}}}}\nruntimes: {{bare: {{image: '{bare}'}}}}\n"
        "trials: {a: {kind: runtime, matrix: {runtime: all, machine: all}, commands: [cat], run: ['echo on']}}\n"
    )
    world.seatrial("run", "suite.yaml", check=0)
    (cell,) = world.results().cells
    assert cell.verdict is Verdict.PASSED
    (facts,) = [one for one in cell.findings if one.step == "facts"]
    assert (facts.verdict, "needs Python" in facts.message) == (Verdict.SKIPPED, True)
