"""The ports that the local target gives out: free ones, to one job each, whoever submits."""

import asyncio
import socket
import sys
from pathlib import Path

import msgspec
import pytest
from contract import Site, opened, page, until, until_exit, until_ready

from seatrial.job import Job, Limits, Outcome, Port, Ready
from seatrial.targets import TargetError
from seatrial.targets.local import kind
from seatrial.targets.local import reservations as ports
from seatrial.targets.local.folders import JobFolder


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("SEATRIAL_STATE", str(tmp_path / "state"))
    (tmp_path / "shared").mkdir()
    return Site(lambda: kind.open("here", kind.options()), tmp_path / "shared", [], listen_on="127.0.0.1")


def waits(site: Site, name: str, count: int = 1) -> Job:
    named = tuple(Port(f"port-{number}") for number in range(count))
    return site.job("sleep 1000", name=name, ports=named, limits=Limits(grace_s=0.1))


def given(site: Site) -> list[int]:
    folders = map(JobFolder, (site.shared.parent / "state").glob("jobs/*/*"))
    return [number for folder in folders for number in folder.submission().ports.values()]  # type: ignore[union-attr]


def only(monkeypatch: pytest.MonkeyPatch, count: int) -> list[int]:
    """No more ports than these, which nobody else on this machine looks for."""
    monkeypatch.setattr(ports, "_range", lambda: list(range(10_000, 20_000)))
    free = ports._choose(count, set())
    monkeypatch.setattr(ports, "_range", lambda: free)
    return free


async def test_no_two_jobs_get_the_same_whoever_submits_them(site: Site) -> None:
    async with opened(site) as one, opened(site) as two:
        jobs = [waits(site, f"c-{number}", 3) for number in range(10)]
        handles = await asyncio.gather(*((one, two)[n % 2].submit(job, {}) for n, job in enumerate(jobs)))
        assert len(set(given(site))) == 30
        await asyncio.gather(*map(one.remove, handles))


async def test_processes_that_submit_at_the_same_time_do_not_give_out_the_same(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process of its own, with a lock between them: of as many ports as there are jobs, each gets one."""
    free = only(monkeypatch, 8)
    program = """
import asyncio, msgspec, sys
from seatrial.job import JobSpec, Limits, Port, Step
from seatrial.targets.local import kind, reservations as ports
ports._range = lambda: list(map(int, sys.argv[3:]))
async def main(run, name):
    target = kind.open("here", kind.options())
    await target.open()
    steps = (Step("run sleep", "command", {"command": "sleep 1000"}),)
    spec = JobSpec(name, steps, ports=(Port("http"),), limits=Limits(grace_s=0.1))
    jobs = [msgspec.structs.replace(spec.for_attempt(run, "69b56f04", 1), name=f"{name}-{n}") for n in range(4)]
    await asyncio.gather(*(target.submit(job, {}) for job in jobs))
    await target.close()
asyncio.run(main(*sys.argv[1:3]))
"""

    submitters = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", program, site.run, f"p-{n}", *map(str, free))
        for n in range(2)
    ]
    assert [await submitter.wait() for submitter in submitters] == [0, 0]
    assert sorted(given(site)) == sorted(free)
    async with opened(site) as target:
        await asyncio.gather(*(target.remove(found.handle) for found in await target.list()))


async def test_a_port_comes_free_when_its_job_has_ended_and_not_before(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    (number,) = only(monkeypatch, 1)
    async with opened(site) as target:
        first = await target.submit(waits(site, "first"), {})
        with pytest.raises(TargetError, match=r"not enough free ports .*\(1 needed\)"):
            await target.submit(waits(site, "second"), {})
        assert [found.handle for found in await target.list()] == [first]
        await target.cancel(first)
        await until_exit(target, first)
        second = await target.submit(waits(site, "second"), {})
        assert given(site) == [number, number]
        await asyncio.gather(*map(target.remove, (first, second)))


async def test_a_port_that_another_program_listens_on_is_not_given(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, free = only(monkeypatch, 2)
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with socket.socket(family, socket.SOCK_STREAM) as foreign:
            foreign.bind((address, mine))
            foreign.listen()
            async with opened(site) as target:
                handle = await target.submit(waits(site, "c"), {})
                assert given(site) == [free]
                await target.remove(handle)


async def test_a_job_that_was_submitted_but_never_started_keeps_its_ports_for_who_asks_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its submitter was killed in between: the ports that its request may still name are not given to others."""
    only(monkeypatch, 2)
    job = waits(site, "killed")
    async with opened(site) as target:
        await target.remove(await target.submit(job, {}))
        handle = await target.submit(job, {})
        (path,) = (site.shared.parent / "state").glob("jobs/*/*")
        before = JobFolder(path).submission()
        await target.remove(handle)
        assert before is not None
        path.mkdir(parents=True)
        JobFolder(path).write(before)
        other = await target.submit(waits(site, "other"), {})
        assert await target.submit(job, {}) == handle
        assert JobFolder(path).submission().ports == before.ports  # type: ignore[union-attr]
        assert len(set(given(site))) == 2
        await asyncio.gather(*map(target.remove, (handle, other)))


def test_ports_that_the_kernel_gives_to_outgoing_connections_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "_EPHEMERAL", tmp_path / "range")
    assert ports._range() == list(range(ports.FIRST, ports.LAST + 1))
    for text, expected in (("32768\t60999\n", 10_000), ("25000 60999", 5_000), ("1024 65535", 10_000)):
        (tmp_path / "range").write_text(text)
        assert len(ports._range()) == expected


async def test_names_that_cannot_be_ports_are_refused_before_anything_runs(site: Site) -> None:
    async with opened(site) as target:
        for names in (["Upper"], ["under_score"], ["x" * 16], [""], ["-a"], ["twice", "twice"]):
            with pytest.raises(TargetError, match="invalid port name") as caught:
                await target.verify(site.job("true", ports=tuple(map(Port, names))))
            assert caught.value.outcome is Outcome.REFUSED
        with pytest.raises(TargetError, match="'http'"):
            await target.submit(site.job("true", ready=Ready("http"), ports=(Port("other"),)), {})
        assert await target.list() == []


async def test_a_server_whose_seatrial_is_gone_is_found_ready_all_the_same(site: Site) -> None:
    async with opened(site) as target:
        handle = await target.submit(site.server("alone"), {})
    (folder,) = (site.shared.parent / "state").glob("jobs/*/*")
    records = folder / "records.jsonl"
    await until(lambda: records.exists() and b'"event":"ready"' in records.read_bytes())
    async with opened(site) as target:
        await target.adopt(handle)
        await until_ready(target, handle)
        async with target.endpoint(handle, "http") as address:
            assert await page(address) == "alone"
        await target.remove(handle)


async def test_a_job_of_another_machine_that_shares_the_folder_takes_none_of_this_ones_ports(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, 1)
    async with opened(site) as target:
        handle = await target.submit(waits(site, "here"), {})
        (path,) = (site.shared.parent / "state").glob("jobs/*/*")
        submission = JobFolder(path).submission()
        await target.remove(handle)
        assert submission is not None
        path.mkdir(parents=True)
        JobFolder(path).write(msgspec.structs.replace(submission, host="another"))
        other = await target.submit(waits(site, "other"), {})
        await target.remove(other)
