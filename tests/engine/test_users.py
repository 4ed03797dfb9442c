"""Other users of the machine, and the limits of this one. Tests that need root to become another user say so."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from asking import WAIT_S, until
from click.testing import CliRunner

from seatrial.cli import main
from world import SEATRIAL, World

OTHER = 50_000 + os.getpid() % 10_000  # a user without any other process
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


def output_as(user: int, work: Callable[[], str]) -> str:
    """What `work` returns in a process of that user. It can import nothing that was not imported before."""
    reader, writer = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            os.write(writer, work().encode()[:60_000])
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as file:
        text = file.read()
    os.waitpid(pid, 0)
    return text


@pytest.fixture
def shared(world: World) -> Iterator[World]:
    """A world whose state all users share; pytest's own folders are for root alone."""
    with tempfile.TemporaryDirectory(prefix="seatrial-shared-") as folder:
        os.chmod(folder, 0o755)
        for name in ("state", "cache"):
            Path(folder, name).mkdir()
            os.chmod(Path(folder, name), 0o777)
        env = {"SEATRIAL_STATE": f"{folder}/state", "SEATRIAL_CACHE": f"{folder}/cache"}
        shared = World(Path(folder), {**world.env, **env})
        yield shared
        shared.reap()


@as_root
def test_reap_does_not_call_a_running_job_of_another_user_ended(shared: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def reap() -> str:
        names = ("SEATRIAL_STATE", "SEATRIAL_CACHE")
        return CliRunner(env={name: shared.env[name] for name in names}).invoke(main, ["reap"]).output

    monkeypatch.chdir("/")
    assert "nothing to delete" in reap()  # imports what it needs
    shared.suite("name: s\ntrials: {t: {kind: runtime, facts: false, run: ['touch up; sleep 1000']}}\n")
    with shared.start("run", "suite.yaml") as process:
        until(lambda: list(shared.state.glob("jobs/*/*/work/up")) and shared.started())
        told = output_as(OTHER, reap)
        assert "(job of user root, " in told
        assert "kept: only that user can see whether it is running, and delete it" in told
        assert "ended" not in told
        assert process.poll() is None
        shared.seatrial("cancel", "last")
        process.communicate(timeout=WAIT_S)


def test_reap_deletes_the_folder_of_a_run_that_was_killed_before_its_first_job(world: World) -> None:
    empty = world.state / "jobs" / "night-20261118-000000-abcd"
    empty.mkdir(parents=True)
    assert f"{empty.name}/ (ended, " in world.seatrial("reap", "--dry-run", check=0).stdout
    assert "nothing to delete" in world.seatrial("reap", "--older-than", "1h", check=0).stdout
    assert empty.exists()
    assert "deleted" in world.seatrial("reap", check=0).stdout
    assert not empty.exists()
    assert "nothing to delete" in world.seatrial("reap", check=0).stdout


@as_root
@pytest.mark.skipif(not shutil.which("setpriv") or not shutil.which("prlimit"), reason="no setpriv or prlimit")
@pytest.mark.parametrize("processes", [2, 5, 7])
def test_a_process_limit_stops_the_run_or_a_cell_and_nothing_else(world: World, processes: int) -> None:
    """2: not even a thread. More: jobs, or their steps; which of them depends on the version of Python."""
    world.env["SEATRIAL_CACHE"] = str(world.folder / "cache")
    world.suite(
        "name: s\ntrials: {t: {kind: runtime, facts: false, retries: 0, matrix: {n: [1, 2, 3]}, run: [echo fine]}}\n"
    )
    os.chown(world.folder, OTHER, OTHER)
    # It may read the checkout, wherever that is, and has no other privilege.
    caps = "-all,+dac_read_search"
    as_user = ["setpriv", f"--reuid={OTHER}", "--clear-groups", f"--inh-caps={caps}", f"--ambient-caps={caps}"]
    options = {"cwd": world.folder, "env": world.env, "capture_output": True, "text": True, "timeout": WAIT_S}
    limited = ["prlimit", f"--nproc={processes}", SEATRIAL]
    done = subprocess.run([*as_user, *limited, "run", "suite.yaml"], **options)
    assert "Traceback" not in done.stdout + done.stderr
    if processes == 2:
        assert done.returncode == 3
        assert f"resume with `seatrial attach {world.run().run}`" in done.stderr
    if done.returncode:
        assert done.returncode == 3
        assert "cannot start a " in done.stdout + done.stderr
        assert "the process limit of this user" in done.stdout + done.stderr
    if not world.run().results.exists():
        attached = subprocess.run([*as_user, SEATRIAL, "attach", "last"], **options)
        assert attached.returncode in (0, 3), attached.stderr
    assert set(world.verdicts().values()) <= ({"passed"} if processes == 2 else {"passed", "infra"})
