"""The contract of every target, by the numbers in `target/protocol.py`. A target's tests subclass `Contract`."""

import asyncio
import contextlib
import os
import shutil
import signal
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from seatrial.job import Event, Input, Job, Limits, Outcome, Port, Ready, Resources, Stage, Step
from seatrial.targets import DiagnosticLevel, Target, TargetError

WAIT_S = 600.0


@dataclass
class Site:
    """Where a target's contract is tested. `shared` is a folder that the test and its jobs both see."""

    open: Callable[[], Target]
    shared: Path
    submitter: list[str]  # a command that submits the job given as JSON in its first argument, prints the handle, waits
    most_log_bytes: int = 12 << 20
    long_s: float = 0.6  # of a step that lasts long enough to be seen from here
    watcher_is_marked: bool = False  # who watches over a job's processes carries the job's mark, too
    run: str = field(default_factory=lambda: "run-" + uuid.uuid4().hex[:8])
    names: list[str] = field(default_factory=list)
    hosts_apart: bool = False  # several hosts of a job have each a place of their own
    listen_on: str = "0.0.0.0"  # where a job's server listens, so that it is reached and nobody else's is
    servers: int = 3  # that run side by side
    jobs_reach_endpoints: bool = False  # the address that is given here works inside the jobs of the target, too

    def job(self, *commands: str, name: str = "cell-1", run: str = "", **fields: object) -> Job:
        run = run or self.run
        name = f"{run}-{name}"
        self.names.append(name)
        steps = tuple(Step(f"run {command}", "command", {"command": command}) for command in commands)
        return Job(name=name, run=run, cell="69b56f04", attempt=1, title=name, steps=steps, **fields)  # type: ignore[arg-type]

    def server(self, name: str, before: str = "", ready: Ready | None = None, **fields: object) -> Job:
        """Serves a page with its own name, until it is ended."""
        serve = f'echo {name} > index.html; exec python3 -u -m http.server --bind {self.listen_on} "$SEATRIAL_PORT"'
        fields = {"ports": (Port("http"),), "ready": ready or Ready("http"), "limits": Limits(grace_s=0.5), **fields}
        return self.job(before + serve, name=name, **fields)

    def lines(self, name: str) -> list[str]:
        path = self.shared / name
        return path.read_text().split() if path.exists() else []

    def living(self) -> list[str]:
        """Command lines of all processes that carry the mark of a job of this site."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                marks = (entry / "environ").read_bytes().split(b"\0")
                if any(f"SEATRIAL_JOB={name}".encode() in marks for name in self.names):
                    found.append((entry / "cmdline").read_text())
            except OSError:
                continue
        return found


@asynccontextmanager
async def opened(site: Site) -> AsyncIterator[Target]:
    target = site.open()
    await target.open()
    try:
        yield target
    finally:
        await target.close()


async def until_exit(target: Target, handle: str) -> list[Event]:
    """All events of the job up to its exit."""
    seen: list[Event] = []
    async with asyncio.timeout(WAIT_S):
        async for event in target.watch():
            if event.handle == handle:
                seen.append(event)
                if event.exit is not None:
                    return seen
    raise AssertionError("the stream of events ended")


@asynccontextmanager
async def watching(target: Target) -> AsyncIterator[list[Event]]:
    """The events so far, while the block does something else."""
    events: list[Event] = []

    async def take() -> None:
        async for event in target.watch():
            events.append(event)

    task = asyncio.create_task(take())
    try:
        yield events
    finally:
        task.cancel()
        await asyncio.wait([task])


def stages(events: list[Event], handle: str) -> list[Stage]:
    return [event.time.stage for event in events if event.time and event.handle == handle]


async def until_ready(target: Target, *handles: str) -> None:
    await until_stage(target, Stage.READY, *handles)


async def until_stage(target: Target, stage: Stage, *handles: str) -> None:
    async with watching(target) as events:
        await until(lambda: all(stage in stages(events, handle) for handle in handles))


async def page(address: str) -> str:
    """What a server of `Site.server` says."""
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(WAIT_S):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    return answer.decode().rpartition("\r\n\r\n")[2].strip()


async def log_of(target: Target, handle: str) -> bytes:
    return b"".join([block async for block in target.logs(handle)])


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - what happens, happens in other processes
            await asyncio.sleep(0.02)


async def lose_folder(site: Site, supervisor: int) -> None:
    """Kill a job's supervisor and delete its folder, where what the job started may still write."""
    folder = site.shared.parent / "state" / "jobs"
    os.kill(supervisor, signal.SIGSTOP)
    await until(lambda: shutil.rmtree(folder, ignore_errors=True) or not folder.exists())
    os.kill(supervisor, signal.SIGKILL)


class Contract:
    async def test_1_a_handle_is_a_url_that_another_process_can_take_up(self, site: Site) -> None:
        async with opened(site) as first:
            handle = await first.submit(site.job("echo said; sleep 0.3"), {})
        assert urlsplit(handle).scheme
        assert urlsplit(handle).path
        async with opened(site) as second:
            await second.adopt(handle)
            assert (await until_exit(second, handle))[-1].exit.code == 0  # type: ignore[union-attr]
            assert b"said" in await log_of(second, handle)
            await second.remove(handle)

    async def test_2_the_same_name_again_is_the_same_job(self, site: Site) -> None:
        job = site.job(f"echo start >> {site.shared}/starts; sleep 0.2")
        async with opened(site) as one, opened(site) as two:
            handles = await asyncio.gather(one.submit(job, {}), two.submit(job, {}), one.submit(job, {}))
            assert len(set(handles)) == 1
            await until_exit(one, handles[0])
            assert await two.submit(job, {}) == handles[0]
            assert len(site.lines("starts")) == 1
            await one.remove(handles[0])

    async def test_2_and_3_a_submitter_killed_at_any_instant_loses_nothing_and_doubles_nothing(
        self, site: Site
    ) -> None:
        for number in range(8):
            starts = f"starts{number}"
            job = site.job(f"echo start >> {site.shared}/{starts}; sleep 0.2", name=f"kill-{number}")
            submitter = await asyncio.create_subprocess_exec(
                *site.submitter, job.run, job.name, job.steps[0].args["command"], stdout=asyncio.subprocess.PIPE
            )
            assert submitter.stdout is not None
            await submitter.stdout.readline()  # it is about to submit
            await asyncio.sleep(number * 0.02)
            submitter.kill()
            await submitter.wait()
            async with opened(site) as target:
                handle = await target.submit(job, {})
                assert (await until_exit(target, handle))[-1].exit.outcome is Outcome.EXITED  # type: ignore[union-attr]
                assert len(site.lines(starts)) == 1
                await target.remove(handle)
        assert site.living() == []

    async def test_3_a_job_goes_on_when_its_submitter_is_gone(self, site: Site) -> None:
        async with opened(site) as target:
            handle = await target.submit(site.job("sleep 0.5", f"echo end >> {site.shared}/ends"), {})
        await until(lambda: site.lines("ends"))
        async with opened(site) as target:
            await target.adopt(handle)
            assert (await until_exit(target, handle))[-1].exit.outcome is Outcome.EXITED  # type: ignore[union-attr]
            await target.remove(handle)

    async def test_3_a_job_ends_by_its_own_limit_when_nobody_is_there(self, site: Site) -> None:
        async with opened(site) as target:
            handle = await target.submit(site.job("sleep 1000", limits=Limits(run_s=0.5)), {})
        await until(lambda: not site.living())
        async with opened(site) as target:
            await target.adopt(handle)
            assert (await until_exit(target, handle))[-1].exit.outcome is Outcome.TIMEOUT  # type: ignore[union-attr]
            await target.remove(handle)

    async def test_4_events_come_in_order_and_the_exit_is_the_last(self, site: Site) -> None:
        async with opened(site) as target:
            job = site.job(f"while ! test -e {site.shared}/go; do sleep 0.05; done", "exit 3")
            handle = await target.submit(job, {})
            events = []
            async with asyncio.timeout(WAIT_S):
                async for event in target.watch():
                    events.append(event)
                    if event.progress == job.steps[0].name:
                        (site.shared / "go").touch()
                    if event.exit is not None:
                        break
            stages = [event.time.stage for event in events if event.time]
            assert stages == sorted(stages, key=list(Stage).index)
            assert stages[0] is Stage.CREATED
            assert stages[-1] is Stage.FINISHED
            times = [event.time.wall_s for event in events if event.time]
            assert times == sorted(times)
            assert {event.handle for event in events} == {handle}
            assert [event for event in events if event.exit] == [events[-1]]
            assert events[-1].exit.code == 3  # type: ignore[union-attr]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(target.watch()), 0.5)
            await target.remove(handle)

    async def test_4_a_job_that_ended_before_anybody_watched_still_gives_its_events(self, site: Site) -> None:
        async with opened(site) as target:
            handle = await target.submit(site.job("true"), {})
        await until(lambda: not site.living())
        async with opened(site) as target:
            await target.adopt(handle)
            await target.adopt(handle)
            stages = [event.time.stage for event in await until_exit(target, handle) if event.time]
            assert stages.count(Stage.FINISHED) == stages.count(Stage.CREATED) == 1
            await target.remove(handle)

    async def test_5_nothing_runs_after_the_exit_event(self, site: Site) -> None:
        job = site.job(
            "sleep 1001 & echo child",
            "setsid sleep 1002 & echo session",
            "(setsid sh -c 'sleep 1003 & sleep 1004' >/dev/null 2>&1 &) ; echo twice",
            "trap '' TERM; (trap '' TERM HUP; while :; do sleep 1; done) & echo stubborn",
            limits=Limits(grace_s=0.3),
        )
        async with opened(site) as target:
            handle = await target.submit(job, {})
            await until_exit(target, handle)
            assert site.living() == []
            log = await log_of(target, handle)
            for word in (b"child", b"session", b"twice", b"stubborn"):
                assert b"\n" + word + b"\n" in log
            await target.remove(handle)

    async def test_5_logs_and_files_are_complete_after_the_exit_event(self, site: Site) -> None:
        job = site.job("seq 1 20000", "mkdir -p $SEATRIAL_FILES/deep/er && seq 1 5 > $SEATRIAL_FILES/deep/er/kept")
        async with opened(site) as target:
            handle = await target.submit(job, {})
            await until_exit(target, handle)
            log = (await log_of(target, handle)).split()
            assert log[-1] != b""
            assert b"20000" in log
            into = site.shared / "into"
            assert await target.fetch(handle, "files", into / "all")
            assert (into / "all/deep/er/kept").read_text() == "1\n2\n3\n4\n5\n"
            assert await target.fetch(handle, "files/deep/er/kept", into / "one")
            assert (into / "one").read_text() == "1\n2\n3\n4\n5\n"
            assert await target.fetch(handle, "log.txt", into / "log.txt")
            assert await target.fetch(handle, "records.jsonl", into / "records.jsonl")
            assert b'"event":"end"' in (into / "records.jsonl").read_bytes()
            assert not await target.fetch(handle, "files/nothing", into / "nothing")
            await target.remove(handle)
        assert (into / "one").read_text() == "1\n2\n3\n4\n5\n"

    async def test_6_what_a_job_wrote_before_it_was_killed_is_there(self, site: Site) -> None:
        async with opened(site) as target:
            handle = await target.submit(site.job("echo before; kill -9 $$", "echo after"), {})
            await until_exit(target, handle)
            log = await log_of(target, handle)
            assert b"\nbefore\n" in log
            assert b"\nafter\n" in log
            await target.remove(handle)

    async def test_6_a_log_is_bounded_with_both_ends_kept(self, site: Site) -> None:
        command = "echo the start; head -c 42000000 /dev/zero | tr '\\0' x; echo; echo the end"
        async with opened(site) as target:
            handle = await target.submit(site.job(command), {})
            events = await until_exit(target, handle)
            assert events[-1].exit.code == 0  # type: ignore[union-attr]
            log = await log_of(target, handle)
            assert len(log) < site.most_log_bytes
            assert b"the start\n" in log[:1000]
            assert log.endswith(b"x\nthe end\n")
            assert b"bytes left out here" in log
            await target.remove(handle)

    async def test_6_a_follower_gets_a_log_while_it_grows(self, site: Site) -> None:
        job = site.job(f"echo first; while ! test -e {site.shared}/go; do sleep 0.05; done; echo second")
        async with opened(site) as target:
            handle = await target.submit(job, {})
            seen = b""
            async with asyncio.timeout(WAIT_S):
                async for block in target.logs(handle, follow=True):
                    seen += block
                    if b"first" in seen:
                        (site.shared / "go").touch()
            assert seen.endswith(b"first\nsecond\n")
            await until_exit(target, handle)
            await target.remove(handle)

    async def test_6_who_has_nothing_to_do_with_a_run_can_follow_a_log_of_it(self, site: Site) -> None:
        job = site.job(f"echo first; while ! test -e {site.shared}/go; do sleep 0.05; done; echo second")
        async with opened(site) as target, opened(site) as bystander:
            handle = await target.submit(job, {})
            seen = b""
            async with asyncio.timeout(WAIT_S):
                async for block in bystander.logs(handle, follow=True):
                    seen += block
                    if b"\nfirst\n" in seen and not (site.shared / "go").exists():
                        assert b"\nfirst\n" in await log_of(bystander, handle)
                        async with opened(site) as late:
                            assert b"\nfirst\n" in await log_of(late, handle)
                        (site.shared / "go").touch()
            assert seen.endswith(b"first\nsecond\n")
            ended = (await until_exit(target, handle))[-1].exit
            assert ended is not None
            assert ended.outcome is Outcome.EXITED
            await target.remove(handle)

    async def test_7_cancel_is_polite_first(self, site: Site) -> None:
        command = f"trap 'echo bye; exit 0' TERM; echo up > {site.shared}/up; while :; do sleep 0.05; done"
        job = site.job(command, limits=Limits(grace_s=60))
        async with opened(site) as target:
            handle = await target.submit(job, {})
            await until_stage(target, Stage.STARTED, handle)  # known to run: else it is deleted, with its files
            await until(lambda: site.lines("up"))
            await target.cancel(handle)
            ended = (await until_exit(target, handle))[-1].exit
            assert ended is not None
            assert ended.outcome is Outcome.CANCELLED
            assert b"\nbye\n" in await log_of(target, handle)
            await target.cancel(handle)
            await target.remove(handle)

    async def test_7_cancel_of_what_was_just_taken_up_is_polite_and_its_files_are_there(
        self, site: Site, tmp_path: Path
    ) -> None:
        command = "trap 'echo kept > $SEATRIAL_FILES/kept; exit 0' TERM; echo up >> {}/up; while :; do sleep 0.1; done"
        async with opened(site) as target:
            handle = await target.submit(site.job(command.format(site.shared), limits=Limits(grace_s=60)), {})
            await until_stage(target, Stage.STARTED, handle)  # known to run: else it is deleted, with its files
            await until(lambda: site.lines("up"))
        async with opened(site) as target:
            await target.adopt(handle)
            await target.cancel(handle)
            await until_exit(target, handle)
            assert await target.fetch(handle, "files/kept", tmp_path / "kept")
            await target.remove(handle)

    async def test_7_cancel_is_forceful_after_the_grace(self, site: Site) -> None:
        job = site.job(
            f"trap '' TERM; echo up > {site.shared}/up; while :; do sleep 0.05; done",
            "true",
            limits=Limits(grace_s=0.2),
        )
        async with opened(site) as target:
            handle = await target.submit(job, {})
            await until(lambda: site.lines("up"))
            await target.cancel(handle)
            assert (await until_exit(target, handle))[-1].exit.outcome is Outcome.CANCELLED  # type: ignore[union-attr]
            assert site.living() == []
            await target.remove(handle)

    async def test_8_remove_leaves_nothing_even_of_a_job_that_runs(self, site: Site) -> None:
        job = site.job(f"setsid sleep 1005 & echo up > {site.shared}/up; sleep 1006", limits=Limits(grace_s=0.2))
        async with opened(site) as target:
            handle = await target.submit(job, {})
            await until(lambda: site.lines("up"))
            await target.remove(handle)
            assert site.living() == []
            assert await target.list() == []
            await target.remove(handle)
            with pytest.raises(TargetError):
                await target.adopt(handle)

    async def test_9_list_finds_by_label_from_anywhere(self, site: Site) -> None:
        async with opened(site) as target:
            one = await target.submit(site.job("sleep 1000", labels={"color": "red"}, limits=Limits(grace_s=0.1)), {})
            two = await target.submit(site.job("true", run=site.run + "-2"), {})
        async with opened(site) as other:
            found = {entry.handle: entry for entry in await other.list()}
            assert set(found) == {one, two}
            assert found[one].alive
            assert found[one].labels == {"color": "red"}
            assert (found[one].run, found[one].name) == (site.run, f"{site.run}-cell-1")
            assert [entry.handle for entry in await other.list(site.run + "-2")] == [two]
            assert await other.list(site.run + "-3") == []
            for handle in found:
                await other.remove(handle)

    async def test_10_an_input_that_is_missing_is_refused_and_leaves_nothing(self, site: Site) -> None:
        async with opened(site) as target:
            with pytest.raises(TargetError, match=r"no-such-file.ipynb") as caught:
                await target.submit(site.job("true", inputs=(Input("/no-such-file.ipynb", "a.ipynb"),)), {})
            assert caught.value.outcome is Outcome.REFUSED
            assert await target.list() == []

    async def test_10_an_unknown_handle_is_a_target_error(self, site: Site) -> None:
        async with opened(site) as target:
            for handle in ("", "elsewhere://x/y/z", "local://no-such-host/run/name"):
                with pytest.raises(TargetError):
                    await target.adopt(handle)

    async def test_11_what_would_be_taken_is_verified_and_nothing_is_created(self, site: Site) -> None:
        async with opened(site) as target:
            await target.verify(site.job(f"touch {site.shared}/ran"))
            assert await target.list() == []
        assert not (site.shared / "ran").exists()

    async def test_11_what_would_never_be_taken_is_refused_and_nothing_is_created(self, site: Site) -> None:
        never = Resources(select={"no such label!": "here"})
        async with opened(site) as target:
            with pytest.raises(TargetError) as caught:
                await target.verify(site.job("true", resources=never))
            assert caught.value.outcome is Outcome.REFUSED
            assert str(caught.value)
            assert await target.list() == []

    async def test_12_a_run_that_somebody_works_on_is_not_told_as_free(self, site: Site) -> None:
        async with opened(site) as target, opened(site) as other:
            handle = await target.submit(site.job("sleep 1000", limits=Limits(grace_s=0.1)), {})
            (found,) = await other.list(site.run)
            assert found.in_use is not False
            await target.remove(handle)

    async def test_13_a_target_that_works_has_no_problem_and_is_left_as_it_was(self, site: Site) -> None:
        diagnostics = await site.open().examine()
        assert diagnostics
        assert all(diagnostic.what for diagnostic in diagnostics)
        assert [diagnostic for diagnostic in diagnostics if diagnostic.level is DiagnosticLevel.PROBLEM] == []
        assert all(diagnostic.fix for diagnostic in diagnostics if diagnostic.level is DiagnosticLevel.WARNING)
        async with opened(site) as target:
            assert await target.list() == []

    async def test_14_what_each_host_of_several_left_can_be_fetched(self, site: Site) -> None:
        job = site.job('echo said; echo kept > "$SEATRIAL_FILES/mine"', hosts=2)
        async with opened(site) as target:
            handle = await target.submit(job, {})
            assert (await until_exit(target, handle))[-1].exit.code == 0  # type: ignore[union-attr]
            into = site.shared / "into"
            assert await target.fetch(handle, "files", into / "0")
            assert await target.fetch(handle, "hosts/1/records.jsonl", into / "records.jsonl") is site.hosts_apart
            assert await target.fetch(handle, "hosts/1/files", into / "1") is site.hosts_apart
            assert not await target.fetch(handle, "hosts/2/records.jsonl", into / "2")
            for host in range(2 if site.hosts_apart else 1):
                assert (into / str(host) / "mine").read_text() == "kept\n"
            log = await log_of(target, handle)
            assert (b"[0] said\n" in log and b"[1] said\n" in log) is site.hosts_apart
            await target.remove(handle)

    async def test_15_a_job_learns_its_ports_by_variables(self, site: Site) -> None:
        names = "$SEATRIAL_PORT $SEATRIAL_PORT_HTTP $SEATRIAL_PORT_METRICS_2"
        job = site.job(f"echo {names} > {site.shared}/ports", ports=(Port("http"), Port("metrics-2", 9100)))
        async with opened(site) as target:
            handle = await target.submit(job, {})
            await until_exit(target, handle)
            first, http, metrics = map(int, site.lines("ports"))
            assert first == http != metrics
            assert all(0 < number < 65536 for number in (http, metrics))
            await target.remove(handle)

    async def test_15_a_job_is_ready_once_when_its_port_accepts_and_not_before(self, site: Site) -> None:
        before = f"echo up > {site.shared}/up; while ! test -e {site.shared}/go; do sleep 0.05; done; "
        async with opened(site) as target, watching(target) as events:
            handle = await target.submit(site.server("late", before), {})
            await until(lambda: site.lines("up"))
            await asyncio.sleep(site.long_s)
            assert Stage.READY not in stages(events, handle)
            (site.shared / "go").touch()
            await until(lambda: Stage.READY in stages(events, handle))
            async with target.endpoint(handle, "http") as address:
                assert await page(address) == "late"
            await target.cancel(handle)
            await until(lambda: Stage.FINISHED in stages(events, handle))
            found = stages(events, handle)
            assert found == sorted(found, key=list(Stage).index)
            assert found.count(Stage.READY) == 1
            await target.remove(handle)

    async def test_15_a_job_with_a_path_is_ready_when_that_is_answered_well(self, site: Site) -> None:
        command = f"""cat > server.py <<'END'
import http.server, os, pathlib
shared = pathlib.Path("{site.shared}")
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        with open(shared / "asked", "a") as file:
            print(self.path, file=file)
        self.send_response(204 if (shared / "good").exists() else 503)
        self.end_headers()
http.server.HTTPServer(("{site.listen_on}", int(os.environ["SEATRIAL_PORT"])), Answer).serve_forever()
END
exec python3 server.py"""
        fields = {"ports": (Port("http"),), "ready": Ready("http", "/health?deep=1"), "limits": Limits(grace_s=0.5)}
        async with opened(site) as target, watching(target) as events:
            handle = await target.submit(site.job(command, **fields), {})
            await until(lambda: len(site.lines("asked")) >= 3)
            assert Stage.READY not in stages(events, handle)
            (site.shared / "good").touch()
            await until(lambda: Stage.READY in stages(events, handle))
            assert set(site.lines("asked")) == {"/health?deep=1"}
            await target.remove(handle)

    async def test_15_a_job_that_ends_before_it_listens_is_never_ready(self, site: Site) -> None:
        for name, ready in (("tcp", Ready("http")), ("path", Ready("http", "/"))):
            async with opened(site) as target:
                job = site.job(f"sleep {site.long_s:g}; exit 3", name=name, ports=(Port("http"),), ready=ready)
                handle = await target.submit(job, {})
                events = await until_exit(target, handle)
                assert events[-1].exit.code == 3  # type: ignore[union-attr]
                assert Stage.READY not in stages(events, handle)
                await target.remove(handle)

    async def test_15_that_a_job_was_ready_is_known_to_who_takes_it_up_later(self, site: Site) -> None:
        async with opened(site) as first:
            handle = await first.submit(site.server("taken-up"), {})
            await until_ready(first, handle)
        async with opened(site) as second:
            await second.adopt(handle)
            await until_ready(second, handle)
            await second.cancel(handle)
            await until_exit(second, handle)
        async with opened(site) as third:
            await third.adopt(handle)
            found = stages(await until_exit(third, handle), handle)
            assert found.count(Stage.READY) == 1
            assert found == sorted(found, key=list(Stage).index)
            await third.remove(handle)

    async def test_15_and_16_servers_side_by_side_are_each_reached_by_their_own_address(self, site: Site) -> None:
        names = [f"server-{number}" for number in range(site.servers)]
        async with opened(site) as target, AsyncExitStack() as addresses:
            handles = await asyncio.gather(*(target.submit(site.server(name), {}) for name in names))
            await until_ready(target, *handles)
            given = [await addresses.enter_async_context(target.endpoint(handle, "http")) for handle in handles]
            assert len(set(given)) == site.servers
            assert await asyncio.gather(*map(page, given)) == names
            if site.jobs_reach_endpoints:
                get = "import sys, urllib.request as r; [print(r.urlopen(a).read().decode()) for a in sys.argv[1:]]"
                urls = " ".join(f"http://{address}/" for address in given)
                asking = await target.submit(site.job(f"python3 -c '{get}' {urls}", name="asks"), {})
                assert (await until_exit(target, asking))[-1].exit.code == 0  # type: ignore[union-attr]
                assert (await log_of(target, asking)).decode().split()[-site.servers :] == names
                await target.remove(asking)
            await asyncio.gather(*map(target.remove, handles))

    async def test_16_and_17_a_port_is_reached_from_a_process_that_knows_no_more_than_the_handle(
        self, site: Site
    ) -> None:
        async with opened(site) as target:
            handle = await target.submit(site.server("known"), {})
            await until_ready(target, handle)
            assert await target.addresses(handle, {}) == {}  # for who is elsewhere
        async with opened(site) as other:
            async with other.endpoint(handle, "http") as one, other.endpoint(handle, "http") as two:
                assert await page(one) == await page(two) == "known"
            await other.remove(handle)

    async def test_16_a_port_that_a_job_does_not_have_is_refused(self, site: Site) -> None:
        async with opened(site) as target:
            for job in (site.server("one"), site.job("sleep 1000", name="none", limits=Limits(grace_s=0.1))):
                handle = await target.submit(job, {})
                with pytest.raises(TargetError, match="metrics") as caught:
                    async with target.endpoint(handle, "metrics"):
                        pass
                assert caught.value.outcome is Outcome.REFUSED
                await target.remove(handle)

    async def test_16_a_port_of_a_job_that_has_ended_is_a_target_error(self, site: Site) -> None:
        async with opened(site) as target:
            handle = await target.submit(site.job("true", ports=(Port("http"),)), {})
            await until_exit(target, handle)
            with pytest.raises(TargetError):
                async with target.endpoint(handle, "http"):
                    pass
            await target.remove(handle)

    async def test_secrets_reach_the_job_and_nothing_else(self, site: Site) -> None:
        secret = "hunter2-Zx9"
        job = site.job(
            'echo "$TOKEN"; printf hunter2; sleep 0.3; printf -- -Zx9; echo', 'echo "$TOKEN" > $SEATRIAL_FILES/kept',
            f'test "$TOKEN" = "{secret[:4]}""{secret[4:]}"', f"cat /proc/$PPID/cmdline > {site.shared}/cmdline",
            secrets={"TOKEN": "API_KEY"},
        )  # fmt: skip
        async with opened(site) as target:
            handle = await target.submit(job, {"TOKEN": secret})
            assert (await until_exit(target, handle))[-1].exit.code == 0  # type: ignore[union-attr]
            into = site.shared / "into"
            for path in ("log.txt", "records.jsonl", "files/kept"):
                assert await target.fetch(handle, path, into / os.path.basename(path))
                assert secret.encode() not in (into / os.path.basename(path)).read_bytes()
            assert (into / "kept").read_text() == "•••\n"
            assert secret not in (site.shared / "cmdline").read_text()
            await target.remove(handle)

    async def test_a_job_whose_watcher_was_killed_is_lost_and_leaves_nothing(self, site: Site) -> None:
        job = site.job(f"setsid sleep 1007 & echo up > {site.shared}/up; env -i /bin/sleep 1008")
        async with opened(site) as target:
            handle = await target.submit(job, {})
            await until(lambda: site.lines("up"))
            os.kill(supervisor_of(site), signal.SIGKILL)
            ended = (await until_exit(target, handle))[-1].exit
            assert ended is not None
            assert ended.outcome is Outcome.LOST
            assert site.living() == []
            await target.remove(handle)


def supervisor_of(site: Site) -> int:
    """The job's oldest process, or the parent of it. By its start: numbers begin anew when all were given out."""
    mark = f"SEATRIAL_JOB={site.names[-1]}".encode()
    found: list[tuple[int, int, int]] = []  # start, number, parent
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (entry / "environ").read_bytes():
                fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
                found.append((int(fields[19]), int(entry.name), int(fields[1])))
    numbers = {number for _, number, _ in found}
    _, oldest, parent = min(one for one in found if one[2] not in numbers)
    return oldest if site.watcher_is_marked else parent
