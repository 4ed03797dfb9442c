"""What is the local target's own: its folders, its environment, its CPUs, and what it does when things break."""

import asyncio
import contextlib
import os
import signal
import stat
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from contract import WAIT_S, Site, log_of, lose_folder, opened, until, until_exit

from seatrial.job import Environment, Input, Limits, Outcome, Resources
from seatrial.targets import TargetError
from seatrial.targets.local import kind
from seatrial.targets.local.folders import JobFolder
from seatrial.targets.local.supervisors import SpawnAnswer, alive
from seatrial.targets.local.target import LocalTarget


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("SEATRIAL_STATE", str(tmp_path / "state"))
    (tmp_path / "shared").mkdir()
    return Site(lambda: kind.open("here", kind.options()), tmp_path / "shared", [])


def folder_of(site: Site) -> Path:
    (path,) = (site.shared.parent / "state").glob("jobs/*/*")
    return path


async def output(site: Site, *commands: str, **fields: Any) -> list[str]:
    """The lines of the log that are not the agent's."""
    async with opened(site) as target:
        handle = await target.submit(site.job(*commands, **fields), {})
        await until_exit(target, handle)
        lines = (await log_of(target, handle)).decode().splitlines()
        await target.remove(handle)
        return [line for line in lines if not line.startswith("--- ")]


async def test_a_job_has_its_own_world_and_nothing_of_the_callers(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLERS_PASSWORD", "x")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    lines = await output(site, "env", env={"OWN": "a b"})
    found = dict(line.split("=", 1) for line in lines if "=" in line)
    state = str(site.shared.parent / "state")
    assert "CALLERS_PASSWORD" not in found
    assert "PYTHONPATH" not in found
    assert found["https_proxy"] == "http://proxy.example:3128"
    assert found["OWN"] == "a b"
    for name in ("HOME", "TMPDIR", "SEATRIAL_FILES", "PWD"):
        assert found[name].startswith(state)
    assert (found["SEATRIAL_RUN"], found["SEATRIAL_ATTEMPT"], found["SEATRIAL_CELL"]) == (site.run, "1", "69b56f04")


async def test_seatrials_own_programs_are_not_on_the_path_of_a_job(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its environment is activated, also by another name; the job finds the machine's Python, and no seatrial."""
    own = Path(sys.prefix, "bin")
    (tmp_path / "link").symlink_to(own)
    monkeypatch.setenv("PATH", f"{own}:{tmp_path / 'link'}:{own}/:{os.environ['PATH']}")
    lines = await output(site, "command -v seatrial pytest uv || echo none; python3 -c 'import sys; print(sys.prefix)'")
    assert lines[0] == "none"
    assert lines[1] != sys.prefix
    named = await output(site, "command -v python3", environment=Environment(interpreter="python3"))
    assert Path(named[0]).parent != own
    chosen = await output(site, "command -v pytest", environment=Environment(interpreter=sys.executable))
    assert chosen == [str(own / "pytest")]  # a runtime that is this very environment has its programs
    async with opened(site) as target:
        with pytest.raises(TargetError, match=f"seatrial is only in Seatrial's own environment.*use {own}/seatrial"):
            await target.submit(site.job("true", environment=Environment(interpreter="seatrial")), {})


async def test_the_jobs_folder_is_the_users_alone_and_holds_no_secret(site: Site) -> None:
    async with opened(site) as target:
        handle = await target.submit(site.job("sleep 0.2", secrets={"TOKEN": "KEY"}), {"TOKEN": "very-secret-value"})
        path = folder_of(site)
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        await until_exit(target, handle)
        for file in path.rglob("*"):
            assert not file.is_file() or b"very-secret-value" not in file.read_bytes()
        await target.remove(handle)
    assert not list((site.shared.parent / "state" / "jobs").iterdir())


async def test_inputs_are_copied_with_folders_and_links(site: Site) -> None:
    source = site.shared / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep/file").write_text("content")
    (source / "link").symlink_to("deep/file")
    inputs = (Input(str(source), "data"), Input(str(source / "deep/file"), "a/b/c.txt"))
    lines = await output(
        site, "cat a/b/c.txt data/link; echo; readlink data/link; echo x > data/deep/file", inputs=inputs
    )
    assert lines == ["contentcontent", "deep/file"]
    assert (source / "deep/file").read_text() == "content"


async def test_an_input_may_not_leave_the_work_folder(site: Site) -> None:
    async with opened(site) as target:
        for path in ("../escaped", "/tmp/escaped"):
            with pytest.raises(TargetError, match="outside") as caught:
                await target.submit(site.job("true", inputs=(Input(__file__, path),)), {})
            assert caught.value.outcome is Outcome.REFUSED


async def test_a_name_that_would_leave_the_folder_of_jobs_is_refused(site: Site) -> None:
    async with opened(site) as target:
        for name in ("../x", "a/b", "", "."):
            with pytest.raises(TargetError) as caught:
                await target.submit(msgspec.structs.replace(site.job("true"), name=name), {})
            assert caught.value.outcome is Outcome.REFUSED


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is only one CPU")
async def test_jobs_get_different_cpus_and_share_when_there_are_too_few(site: Site) -> None:
    count = len(os.sched_getaffinity(0))
    async with opened(site) as target:
        handles = []
        for number in range(2 * count):
            job = site.job("sleep 1000", name=f"c-{number}", resources=Resources(cpu=1), limits=Limits(grace_s=0.1))
            handles.append(await target.submit(job, {}))
        cpus = [JobFolder(path).submission().cpus for path in (site.shared.parent / "state").glob("jobs/*/*")]  # type: ignore[union-attr]
        assert sorted(cpu for (cpu,) in cpus) == sorted([*os.sched_getaffinity(0)] * 2)
        await asyncio.gather(*map(target.remove, handles))


async def test_a_submit_that_is_cancelled_leaves_nothing_that_runs(site: Site) -> None:
    async with opened(site) as target:
        for number in range(10):
            job = site.job("sleep 1000", name=f"c-{number}", limits=Limits(grace_s=0.1))
            task = asyncio.create_task(target.submit(job, {}))
            await asyncio.sleep(number * 0.002)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await target.remove(await task)  # it was quicker
        await until(lambda: not site.living())
        assert await target.list() == []


async def test_a_job_that_another_was_just_about_to_start_is_started(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two submit the same job: while one makes its folder, the supervisor of the other is refused."""
    async with opened(site) as target:
        assert isinstance(target, LocalTarget)
        assert target._zygote is not None
        spawn, refused = target._zygote.spawn, []

        async def while_another_makes_it(job: dict[str, object]) -> SpawnAnswer:
            with JobFolder(folder_of(site)).locked() if not refused else contextlib.nullcontext():
                answer = await spawn(job)
            refused.append(answer.taken)
            return answer

        monkeypatch.setattr(target._zygote, "spawn", while_another_makes_it)
        handle = await target.submit(site.job("true"), {})
        assert refused == [True, False]
        assert (await until_exit(target, handle))[-1].exit.code == 0  # type: ignore[union-attr]
        await target.remove(handle)


async def test_a_job_that_is_removed_while_others_are_listed_is_none_of_them(site: Site) -> None:
    """A link that leads nowhere is to whoever looks what a folder is that goes before it is looked into."""
    async with opened(site) as target:
        handle = await target.submit(site.job("true"), {})
        folder_of(site).with_name("gone").symlink_to("nowhere")
        assert [found.handle for found in await target.list(site.run)] == [handle]
        await target.remove(handle)


async def test_a_lost_zygote_is_replaced(site: Site) -> None:
    async with opened(site) as target:
        assert isinstance(target, LocalTarget)
        first = await target.submit(site.job("sleep 0.5"), {})
        process = target._zygote._process  # type: ignore[union-attr]
        assert process is not None
        process.kill()
        await process.wait()
        second = await target.submit(site.job("true", name="second"), {})
        exits = {}
        async for event in target.watch():
            if event.exit:
                exits[event.handle] = event.exit.outcome
            if len(exits) == 2:
                break
        assert exits == {first: Outcome.EXITED, second: Outcome.EXITED}
        for handle in exits:
            await target.remove(handle)


async def test_the_end_of_a_lost_zygote_is_none_of_the_next_ones_requests(site: Site) -> None:
    """It may be heard only when the next one has been asked: by whatever still had the pipe of its answers."""
    async with opened(site) as target:
        assert isinstance(target, LocalTarget)
        first = await target.submit(site.job("true"), {})
        zygote = target._zygote
        assert zygote is not None
        lost = zygote._process
        assert lost is not None
        answers = os.open(f"/proc/{lost.pid}/fd/1", os.O_WRONLY)
        lost.kill()
        await until(lambda: lost.returncode is not None)
        submitting = asyncio.create_task(target.submit(site.job("true", name="second"), {}))
        await until(lambda: zygote._process is not lost and zygote._waiting)
        os.close(answers)
        for handle in (first, await submitting):
            await target.remove(handle)


async def test_files_leave_a_job_only_as_files(site: Site) -> None:
    hostile = (
        "cd $SEATRIAL_FILES && mkfifo pipe && ln -s /etc/passwd out && ln -s good in && echo good > good && "
        "ln -s ../../.. up && echo dark > dark && chmod 000 dark && mkdir empty && ln -s loop loop"
    )
    async with opened(site) as target:
        handle = await target.submit(site.job(hostile), {})
        assert (await until_exit(target, handle))[-1].exit.code == 0  # type: ignore[union-attr]
        into = site.shared / "into"
        async with asyncio.timeout(WAIT_S):
            assert await target.fetch(handle, "files", into)
            assert not await target.fetch(handle, "files/out", into / "out")
            assert not await target.fetch(handle, "files/pipe", into / "pipe")
        assert sorted(path.name for path in into.iterdir()) == ["dark", "empty", "good", "in"]
        assert (into / "in").read_text() == "good\n"
        for path in ("../job.json", "files/../../x", "/etc/passwd", "job.json"):
            with pytest.raises(TargetError):
                await target.fetch(handle, path, into / "x")
        await target.remove(handle)


async def test_a_number_that_another_process_has_now_is_not_the_supervisor(site: Site) -> None:
    async with opened(site) as target:
        handle = await target.submit(site.job("true"), {})
        await until_exit(target, handle)
        path = folder_of(site)
        identity = JobFolder(path).identity()
        assert identity is not None
        assert not alive(msgspec.structs.replace(identity, pid=os.getpid()))
        (path / "end.json").unlink()
        stolen = msgspec.json.decode((path / "supervisor.json").read_bytes()) | {"pid": os.getpid()}
        (path / "supervisor.json").write_bytes(msgspec.json.encode(stolen))
    async with opened(site) as target:
        await target.adopt(handle)
        ended = (await until_exit(target, handle))[-1].exit
        assert ended is not None
        assert ended.outcome is Outcome.LOST
        await target.cancel(handle)
        await target.remove(handle)


async def test_a_job_of_another_boot_is_lost_and_says_so(site: Site) -> None:
    async with opened(site) as target:
        handle = await target.submit(site.job("true"), {})
        await until_exit(target, handle)
        path = folder_of(site)
        (path / "end.json").unlink()
        other = msgspec.json.decode((path / "supervisor.json").read_bytes()) | {"boot_id": "another"}
        (path / "supervisor.json").write_bytes(msgspec.json.encode(other))
    async with opened(site) as target:
        await target.adopt(handle)
        ended = (await until_exit(target, handle))[-1].exit
        assert ended is not None
        assert ended.outcome is Outcome.LOST
        assert "the machine rebooted" in ended.message
        await target.remove(handle)


async def test_a_supervisor_that_was_stopped_is_woken_to_end_its_job(site: Site) -> None:
    async with opened(site) as target:
        handle = await target.submit(site.job("echo said; kill -STOP $PPID; sleep 1405"), {})
        identity = JobFolder(folder_of(site)).identity()
        assert identity is not None
        stat_file = Path(f"/proc/{identity.pid}/stat")
        await until(lambda: stat_file.read_bytes().rpartition(b")")[2].split()[0] == b"T")
        await target.cancel(handle)
        ended = (await until_exit(target, handle))[-1].exit
        assert ended is not None
        assert (ended.outcome, ended.message) == (Outcome.CANCELLED, "cancelled")  # its own words: it was not killed
        assert b"said" in await log_of(target, handle)
        await target.remove(handle)


async def test_processes_whose_job_has_lost_its_folder_are_found_by_their_mark_and_ended(site: Site) -> None:
    job = site.job("setsid sleep 1406 & sleep 1407")
    target = site.open()
    await target.open()
    handle = await target.submit(job, {})
    await until(lambda: len(site.living()) >= 3)
    (submission,) = (site.shared.parent / "state").glob("jobs/*/*/supervisor.json")
    supervisor = msgspec.json.decode(submission.read_bytes())["pid"]
    await target.close()
    await lose_folder(site, supervisor)
    async with opened(site) as later:
        assert [(found.handle, found.alive) for found in await later.list()] == [(handle, True)]
        await later.remove(handle)
        assert site.living() == []
        assert await later.list() == []


# Leaves the job's control groups, where the tests may do that.
OTHERS = "-path '*/seatrial-*'"  # jobs of other tests
LEAVE = (
    f"for group in $(find /sys/fs/cgroup -maxdepth 2 -name cgroup.procs ! {OTHERS}); "
    'do echo $$ 2>/dev/null >"$group"; done'
)


@pytest.mark.parametrize(
    ("keeping", "found"),
    [("true", True), ("exec 7>$SEATRIAL_FILES/x; cd /", True), ("cd /", False)],
    ids=["its working directory", "a file that it writes", "nothing"],
)
async def test_a_daemon_that_outlived_its_supervisor_is_found_by_what_it_still_has(
    site: Site, keeping: str, found: bool
) -> None:
    seconds = f"14{os.getpid()}"
    (site.shared / "daemon").write_text(f"{LEAVE}\n{keeping}\nexec env -i setsid sleep {seconds}\n")
    start = f"sh {site.shared}/daemon </dev/null >/dev/null 2>&1 &"
    async with opened(site) as target:
        handle = await target.submit(site.job(f"{start} sleep 1403"), {})
        await until(lambda: bool(sleeping(seconds)))
        identity = JobFolder(folder_of(site)).identity()
        assert identity is not None
        os.kill(identity.pid, signal.SIGKILL)
        ended = (await until_exit(target, handle))[-1].exit
        assert ended is not None
        assert "processes that left its folder, environment and control group" in ended.message
        left = sleeping(seconds)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert bool(left) is not found
        await target.remove(handle)


def sleeping(seconds: str) -> list[int]:
    """Processes that sleep for just so long."""
    wanted = f"sleep\0{seconds}\0"
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (entry / "cmdline").read_text(errors="replace") == wanted:
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize("supervised", [False, True], ids=["whose supervisor was killed", "with its supervisor"])
async def test_a_job_that_lost_the_name_of_its_supervisor_is_removed_with_its_processes(
    site: Site, supervised: bool
) -> None:
    target = site.open()
    await target.open()
    handle = await target.submit(site.job("setsid sleep 1408 & sleep 1409", limits=Limits(grace_s=0.5)), {})
    await until(lambda: len(site.living()) >= 3)
    path = folder_of(site)
    identity = JobFolder(path).identity()
    assert identity is not None
    await target.close()
    os.kill(identity.pid, signal.SIGSTOP)  # else it would put the file back
    (path / "supervisor.json").unlink()
    os.kill(identity.pid, signal.SIGCONT if supervised else signal.SIGKILL)
    await until(lambda: supervised or not alive(identity))
    async with opened(site) as later:
        await later.remove(handle)
        assert site.living() == []
        assert not alive(identity)
        assert [group for group in identity.cgroups if Path(group).exists()] == []
        assert not path.exists()


def test_a_folder_that_cannot_be_removed_is_told_whatever_goes_from_it_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something removes a file of it at each try, so that none comes to its end: once an UnboundLocalError."""

    def vanishing(path: Path) -> None:
        raise FileNotFoundError(2, "No such file or directory", str(path / "file"))

    monkeypatch.setattr("seatrial.targets.local.folders.remove_tree", vanishing)
    with pytest.raises(TargetError, match=rf"cannot remove {tmp_path}: .*No such file"):
        JobFolder(tmp_path).remove()
