"""The Python of a pod's steps: as the image has it, as it is named, or with packages; and why it cannot be had."""

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from pods import PodProcesses, until

BASE = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
HAS_PIP = subprocess.run([BASE, "-c", "import pip, venv"], capture_output=True).returncode == 0
needs_pip = pytest.mark.skipif(not HAS_PIP, reason=f"{BASE} has no pip")
VENV = str(Path(sys.executable).parent)
NOW = "{}.{}".format(*sys.version_info)


@pytest.fixture
def pod(tmp_path: Path, agent: Path) -> PodProcesses:
    """In an image whose Python is this one, without the packages of these tests."""
    return PodProcesses(tmp_path / "place", agent, str(BASE))


def wheel(folder: Path, version: str = "1.0") -> None:
    folder.mkdir(exist_ok=True)
    info = f"seatrial_probe-{version}.dist-info"
    with zipfile.ZipFile(folder / f"seatrial_probe-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr("seatrial_probe.py", f"version = {version!r}\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: seatrial-probe\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def index(tmp_path: Path) -> dict[str, str]:
    """Where packages come from, without a network."""
    wheel(tmp_path / "wheels")
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "wheels")}


WHERE = "python -c 'import sys, seatrial_probe as p; print(p.version, sys.prefix)'; echo $VIRTUAL_ENV"


def asking(*packages: str, python: str = NOW) -> dict[str, Any]:
    return {"name": "made", "python": python, "packages": list(packages)}


@needs_pip
class TestPackages:
    def test_are_installed_beside_what_the_image_has(self, pod: PodProcesses, index: dict[str, str]) -> None:
        end = pod.run(WHERE, "python -c 'import pip'", environment=asking("seatrial-probe>=1"), env=index)
        assert (end["exit"], end["steps"]) == (0, [["exited", 0], ["exited", 0]])
        made = pod.root / "volume/env"
        assert pod.records("done")[0]["output"] == f"1.0 {made}\n{made}\n"
        assert "--- [1/1] install seatrial-probe>=1" in pod.log()
        assert "Successfully installed seatrial-probe-1.0" in pod.log()
        assert pod.records("begin")[0]["at_s"] < pod.records("step")[0]["at_s"] - 0.1  # its time is the job's

    def test_that_are_there_already_need_no_installer(self, pod: PodProcesses) -> None:
        dead = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/nowhere"}
        end = pod.run("echo $VIRTUAL_ENV", environment=asking("pip"), env=dead)
        assert end["exit"] == 0
        assert pod.records("done")[0]["output"] == f"{pod.root / 'volume/env'}\n"
        assert "install" not in pod.log()

    def test_that_do_not_exist_are_refused(self, pod: PodProcesses, index: dict[str, str]) -> None:
        end = pod.run("echo never", environment=asking("seatrial-probe==2.0"), env=index)
        assert (end["exit"], end["outcome"], end["steps"]) == (1, "refused", [])
        assert "cannot install seatrial-probe==2.0: " in end["message"]
        assert "No matching distribution found" in end["message"]
        assert pod.records("end")[0]["outcome"] == "refused"
        assert pod.end()["message"] == end["message"]

    def test_from_an_index_that_cannot_be_reached_are_infra(self, pod: PodProcesses) -> None:
        env = {"PIP_INDEX_URL": "http://user:hidden@127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_NO_INDEX": "0"}
        end = pod.run("echo never", environment=asking("seatrial-probe"), env=env)
        assert (end["exit"], end["outcome"]) == (1, "infra")
        assert "hidden" not in json.dumps(end)

    def test_are_installed_from_a_python_that_is_itself_an_environment(
        self, tmp_path: Path, agent: Path, index: dict[str, str]
    ) -> None:
        image = tmp_path / "image"
        subprocess.run([BASE, "-m", "venv", "--without-pip", image], check=True)
        (image / f"lib/python{NOW}/site-packages/of_the_image.py").write_text("")
        pod = PodProcesses(tmp_path / "place", agent, str(image / "bin/python"))
        end = pod.run(WHERE, "python -c 'import of_the_image'", environment=asking("seatrial-probe"), env=index)
        assert (end["exit"], end["steps"]) == (0, [["exited", 0], ["exited", 0]])

    def test_take_of_the_run_limit(self, pod: PodProcesses, tmp_path: Path) -> None:
        pod.python = str(slow_pip(tmp_path))
        end = pod.run("echo never", environment=asking("seatrial-probe"), limits={"run_s": 3, "grace_s": 0.2})
        assert (end["exit"], end["outcome"]) == (124, "timeout")
        assert end["message"].startswith("still running after 3 s; while creating its environment")
        assert end["steps"] == []

    def test_are_not_waited_for_when_the_end_is_asked_for(self, pod: PodProcesses, tmp_path: Path) -> None:
        pod.python = str(slow_pip(tmp_path))
        pod.write("echo never", environment=asking("seatrial-probe"))
        trial = pod.start()
        until(lambda: (pod.out / "log.txt").exists() and "slow pip" in pod.log())
        (pod.out / "cancel").touch()
        end = pod.ended(trial)
        assert (end["exit"], end["outcome"], end["steps"]) == (143, "cancelled", [])

    def test_are_refused_where_nothing_can_install_them(self, pod: PodProcesses, tmp_path: Path) -> None:
        hidden = tmp_path / "hidden"
        hidden.mkdir()
        for name in ("pip", "ensurepip"):
            (hidden / f"{name}.py").write_text("raise ImportError")
        env = {"PYTHONPATH": str(hidden), "PATH": "/usr/bin:/bin"}
        end = pod.run("echo never", environment=asking("seatrial-probe"), env=env)
        assert (end["outcome"], "no pip, uv or ensurepip" in end["message"]) == ("refused", True)

    @pytest.mark.skipif(shutil.which("uv", path=VENV) is None, reason="needs uv")
    def test_are_installed_by_uv_where_there_is_no_pip(self, pod: PodProcesses, tmp_path: Path) -> None:
        wheel(tmp_path / "wheels")
        (tmp_path / "hidden").mkdir()
        (tmp_path / "hidden/pip.py").write_text("raise ImportError")
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin/uv").symlink_to(Path(VENV) / "uv")
        env = {"PYTHONPATH": str(tmp_path / "hidden"), "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
        index = {"UV_OFFLINE": "1", "UV_FIND_LINKS": str(tmp_path / "wheels")}
        end = pod.run(WHERE, environment=asking("seatrial-probe"), env={**env, **index})
        assert (end["exit"], end["steps"]) == (0, [["exited", 0]]), end
        end = PodProcesses(tmp_path / "other", pod.root / "agent/agent.pyz", pod.python).run(
            WHERE, environment=asking("seatrial-probe==9"), env={**env, **index}
        )
        assert (end["outcome"], "No solution found" in end["message"]) == ("refused", True)

    @pytest.mark.parametrize("package", ["-r/etc/passwd", "--index-url=http://x", "a\n-rb", ""])
    def test_that_are_options_are_refused(self, pod: PodProcesses, package: str) -> None:
        end = pod.run("echo never", environment=asking(package))
        assert (end["outcome"], "invalid package requirement" in end["message"]) == ("refused", True)


def slow_pip(folder: Path) -> Path:
    """The Python of an image whose pip takes for ever."""
    image = folder / "image"
    subprocess.run([BASE, "-m", "venv", "--without-pip", image], check=True)
    package = image / f"lib/python{NOW}/site-packages/pip"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text("import time\nprint('slow pip', flush=True)\ntime.sleep(1000)\n")
    # Also before the one that the environment below it may have.
    (image / f"lib/python{NOW}/site-packages/first.pth").write_text("")
    hook = f"import sys; sys.path.insert(0, {str(package.parent)!r})\n"
    (image / f"lib/python{NOW}/site-packages/first.pth").write_text(hook)
    return image / "bin/python"


class TestPython:
    def test_of_another_version_is_refused_and_both_are_told(self, pod: PodProcesses) -> None:
        end = pod.run("echo never", environment=asking(python="3.1"))
        assert (end["exit"], end["outcome"]) == (1, "refused")
        assert "(expected 3.1)" in end["message"]
        assert "{}.{}.{}".format(*sys.version_info) in end["message"]

    def test_of_no_version_at_all_is_refused(self, pod: PodProcesses) -> None:
        end = pod.run("echo never", environment=asking(python="snake"))
        assert (end["outcome"], "python: invalid version" in end["message"]) == ("refused", True)

    def test_that_is_named_is_the_one_of_the_steps(self, pod: PodProcesses, tmp_path: Path) -> None:
        made = tmp_path / "named"
        subprocess.run([BASE, "-m", "venv", "--without-pip", made], check=True)
        steps = [
            {"name": "where", "kind": "command", "args": {"command": "command -v python; echo $VIRTUAL_ENV"}},
            {"name": "import", "kind": "import", "args": {"module": "json"}},
        ]
        end = pod.run(steps=steps, environment={"interpreter": str(made / "bin/python")})
        assert end["exit"] == 0
        assert pod.records("done")[0]["output"] == f"{made}/bin/python\n{made}\n"
        assert pod.records("done")[1]["result"]["state"] == "imported"

    @pytest.mark.parametrize("text", [None, "#!/bin/sh\necho no Python here; exit 3\n"])
    def test_that_is_named_and_is_none_is_refused(self, pod: PodProcesses, tmp_path: Path, text: str | None) -> None:
        named = tmp_path / "python"
        if text is not None:
            named.write_text(text)
            named.chmod(0o755)
        end = pod.run("echo never", environment={"interpreter": str(named)})
        assert (end["exit"], end["outcome"]) == (1, "refused")
        assert str(named) in end["message"]

    def test_of_the_image_is_used_as_it_is(self, pod: PodProcesses) -> None:
        pod.run("echo none $VIRTUAL_ENV", environment={"name": "image"})
        assert pod.records("done")[0]["output"] == "none\n"
        assert not (pod.root / "volume/env").exists()


NOTEBOOK = {
    "nbformat": 4,
    "nbformat_minor": 5,
    "metadata": {"kernelspec": {"name": "python3", "display_name": "x"}},
    "cells": [
        {"id": "a", "cell_type": "code", "source": "1 + 1", "metadata": {}, "outputs": [], "execution_count": None}
    ],
}


@needs_pip
def test_a_notebook_without_an_nbclient_to_be_had_says_so_and_other_steps_run(pod: PodProcesses) -> None:
    if subprocess.run([BASE, "-c", "import nbclient"], capture_output=True).returncode == 0:
        pytest.skip(f"{BASE} has an nbclient")
    (pod.root / "volume/work").mkdir(parents=True)
    (pod.root / "volume/work/a.ipynb").write_text(json.dumps(NOTEBOOK))
    steps = [
        {"name": "notebook", "kind": "notebook", "args": {"path": "a.ipynb"}},
        {"name": "other", "kind": "command", "args": {"command": "echo other"}},
    ]
    end = pod.run(steps=steps, env={"PIP_NO_INDEX": "1"})
    assert end["steps"] == [["exited", 1], ["exited", 0]]
    assert "add nbclient to the runtime" in pod.records("done")[0]["output"]
    assert "install nbclient" in pod.log()


def test_a_notebook_is_run_by_an_image_that_has_nbclient(tmp_path: Path, agent: Path) -> None:
    pod = PodProcesses(tmp_path / "place", agent)
    (pod.root / "volume/work").mkdir(parents=True)
    (pod.root / "volume/work/a.ipynb").write_text(json.dumps(NOTEBOOK))
    end = pod.run(steps=[{"name": "notebook", "kind": "notebook", "args": {"path": "a.ipynb"}}])
    assert end["steps"] == [["exited", 0]], pod.log()
    assert not (pod.root / "volume/driver").exists()
    assert (pod.out / "files/notebooks/a.fresh.ipynb").exists()
