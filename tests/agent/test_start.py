"""Which program the container of a trial starts: the agent by a Python of the image, else the plain shell."""

import subprocess
import sys
from pathlib import Path

import pytest
from pods import WAIT_S, PodProcesses

from seatrial.targets.kubernetes.manifest.pod import script


class TestStart:
    @pytest.fixture
    def pod(self, tmp_path: Path, agent: Path) -> PodProcesses:
        pod = PodProcesses(tmp_path / "place", agent)
        text = script("start").replace("/usr/", "/nowhere/").replace("/opt/", "/nowhere/")
        (pod.root / "agent/start.sh").write_text(text)
        (pod.root / "job/plain.sh").write_text("echo plain\n")
        return pod

    def start(self, pod: PodProcesses, path: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
        argv = ["/bin/sh", str(pod.root / "agent/start.sh"), *arguments]
        return subprocess.run(argv, env=pod.env(PATH=str(path)), capture_output=True, text=True, timeout=WAIT_S)

    def test_runs_the_agent_by_the_first_python_that_is_new_enough(self, pod: PodProcesses, tmp_path: Path) -> None:
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "python3").write_text("#!/bin/sh\nexit 1\n")  # as one that is too old answers
        (folder / "python3").chmod(0o755)
        (folder / "python").symlink_to(sys.executable)
        pod.write("echo by the agent")
        done = self.start(pod, folder)
        assert (done.returncode, "by the agent\n" in done.stdout) == (0, True)
        assert self.start(pod, folder, "find").stdout == f"{folder}/python\n"

    def test_runs_the_agent_by_the_python_that_the_job_names(self, pod: PodProcesses, tmp_path: Path) -> None:
        (pod.root / "job/python").write_text(sys.executable)
        pod.write("echo by the agent")
        busybox = tmp_path / "bin"
        busybox.mkdir()
        (busybox / "cat").symlink_to("/bin/cat")
        assert "by the agent\n" in self.start(pod, busybox).stdout

    def test_without_one_leaves_it_to_the_shell(self, pod: PodProcesses, tmp_path: Path) -> None:
        assert self.start(pod, tmp_path).stdout == "plain\n"
        assert self.start(pod, tmp_path, "find").returncode == 1
