"""Debian packages for the tests are installed where possible; where apt fails, the tests run without them."""

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("debian-packages")
LOCKED = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """The only programs on PATH: none of the packages', and an apt-get that writes down how it is called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("bash", "grep", "mktemp", "rm", "seq", "tail", "cat"):
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    program(folder, "id", "echo 0")
    program(folder, "sleep", "exit 0")
    return folder


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!{shutil.which('bash')}\n{text}\n")
    (folder / name).chmod(0o755)


def install(programs: Path, apt: str) -> tuple[str, list[str]]:
    """What the script prints and each call of apt-get, of which `apt` is what it does."""
    calls = programs.parent / "calls"
    program(programs, "apt-get", f'echo "$@" >>{calls}; calls=$(cat {calls}); {apt}')
    env = {"PATH": str(programs)}
    done = subprocess.run([SCRIPT], env=env, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout, calls.read_text().splitlines()


def test_it_waits_for_another_apt(programs: Path) -> None:
    held = f'case $calls in *update*update*update*) ;; *) echo "{LOCKED}" >&2; exit 100;; esac'
    out, calls = install(programs, held)
    assert "could not install" not in out
    assert [call.split()[0] for call in calls] == ["update", "update", "update", "install"]
    assert "-o DPkg::Lock::Timeout=300" in calls[-1]
    assert "busybox-static" in calls[-1]


@pytest.mark.parametrize("broken", ["update", "install"])
def test_an_apt_that_fails_is_told_and_stops_nothing(programs: Path, broken: str) -> None:
    out, calls = install(programs, f"[ $1 = {broken} ] && echo 'E: no such mirror' >&2 && exit 100; exit 0")
    assert "E: no such mirror\n" in out
    assert "could not install: git podman runc busybox-static" in out
    assert calls[-1].startswith(broken)


def test_an_apt_that_stays_locked_is_given_up(programs: Path) -> None:
    out, calls = install(programs, f'echo "{LOCKED}" >&2; exit 100')
    assert LOCKED in out
    assert "could not install" in out
    assert set(calls) == {"update -qq"}
