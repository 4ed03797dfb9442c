"""The container beside a trial stays as long as there may be something to fetch, and no longer."""

import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pods import WAIT_S, PodProcesses, until

from seatrial.targets.kubernetes.manifest.pod import script


@pytest.fixture
def pod(tmp_path: Path, agent: Path) -> PodProcesses:
    place = PodProcesses(tmp_path / "place", agent)
    for name in ("start", "keep"):
        (place.root / f"agent/{name}.sh").write_text(script(name))
    return place


BUSYBOX = shutil.which("busybox")
Keeper = Callable[[PodProcesses, int], "subprocess.Popen[bytes]"]


def by_agent(pod: PodProcesses, seconds: int) -> "subprocess.Popen[bytes]":
    return pod.keep(seconds)


def by_shell(pod: PodProcesses, seconds: int) -> "subprocess.Popen[bytes]":
    """In an image that has no Python."""
    assert BUSYBOX is not None
    bare = pod.root / "bare"
    bare.mkdir(exist_ok=True)
    for name in ("cat", "sleep", "sh"):
        if not (bare / name).exists():
            (bare / name).symlink_to(BUSYBOX)
    text = (pod.root / "agent/start.sh").read_text()
    (pod.root / "agent/start.sh").write_text(text.replace("/usr/", "/nowhere/").replace("/opt/", "/nowhere/"))
    return subprocess.Popen(
        [bare / "sh", pod.root / "agent/keep.sh"], env=pod.env(PATH=str(bare), SEATRIAL_KEEP_S=str(seconds))
    )


def catches_sigterm(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(next(line for line in status.splitlines() if line.startswith("SigCgt:")).split()[1], 16)
    return bool(caught & 1 << signal.SIGTERM - 1)


needs_busybox = pytest.mark.skipif(BUSYBOX is None, reason="needs busybox")
both = pytest.mark.parametrize("keeper", [by_agent, pytest.param(by_shell, marks=needs_busybox)])


@both
def test_it_stays_while_the_trial_runs_and_leaves_when_nobody_came(pod: PodProcesses, keeper: Keeper) -> None:
    kept = keeper(pod, 1)
    time.sleep(0.5)
    assert kept.poll() is None  # there is no trial yet
    pod.write("while [ ! -e ../go ]; do sleep 0.1; done")
    trial = pod.start()
    until(lambda: (pod.out / "alive").exists())
    time.sleep(1.2)  # longer than it waits for whoever fetches
    assert kept.poll() is None
    (pod.root / "volume/go").touch()
    assert pod.ended(trial)["exit"] == 0
    assert kept.wait(WAIT_S) == 0


@both
def test_it_leaves_at_once_when_it_is_told_to(pod: PodProcesses, keeper: Keeper) -> None:
    kept = keeper(pod, 1000)
    until(lambda: catches_sigterm(kept.pid))
    kept.terminate()
    assert kept.wait(WAIT_S) == 0


def test_a_trial_that_was_killed_has_ended(pod: PodProcesses) -> None:
    pod.write("echo ready; while [ ! -e ../go ]; do sleep 0.1; done")
    trial = pod.start()
    kept = pod.keep(0.5)
    until(lambda: (pod.out / "log.txt").exists() and "ready\n" in pod.log())
    assert kept.poll() is None
    trial.send_signal(signal.SIGKILL)
    trial.wait()
    assert kept.wait(WAIT_S) == 0
    assert not (pod.out / "end.json").exists()
    (pod.root / "volume/go").touch()


def test_a_keeper_never_keeps_a_trial_from_its_lock(pod: PodProcesses) -> None:
    keepers = [pod.keep(1000) for _ in range(3)]
    assert pod.run("true")["exit"] == 0
    for kept in keepers:
        kept.terminate()
        kept.wait(WAIT_S)


def test_without_seconds_it_says_how_it_is_called(pod: PodProcesses) -> None:
    argv = [pod.python, str(pod.root / "agent/agent.pyz"), "keep"]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert (done.returncode, "keep SECONDS" in done.stderr) == (2, True)
