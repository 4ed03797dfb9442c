"""The trial of a pod: it runs its steps once, tells all of it in its volume and by its end, and ends when asked to."""

import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from pods import PodProcesses, until
from reads import LOSS, STEP, pattern

from seatrial.job import Step
from seatrial.job.observation import read_records

ROOT = os.geteuid() == 0


@pytest.fixture
def pod(tmp_path: Path, agent: Path) -> PodProcesses:
    return PodProcesses(tmp_path / "place", agent)


RANKS = "$RANK $NODE_RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT"


class TestAnEnd:
    def test_is_told_by_message_code_records_log_and_file(self, pod: PodProcesses) -> None:
        end = pod.run("echo hello > $SEATRIAL_FILES/kept; echo out; pwd", "exit 3", "exit 4")
        assert end["exit"] == 3
        told = (end["seatrial"], end["outcome"], end["code"], end["message"], end["left"])
        assert told == (1, "exited", 3, "", 0)
        assert end["steps"] == [["exited", 0], ["exited", 3], ["exited", 4]]
        assert end["wall_s"] == pytest.approx(time.time(), abs=60)
        assert (pod.out / "files/kept").read_text() == "hello\n"
        assert "--- [1/3] run echo hello" in pod.log()
        assert pod.log().count(f"out\n{pod.root}/volume/work\n") == 1
        assert [record["event"] for record in pod.records() if record["event"] != "sample"] == [
            "begin", "step", "done", "step", "done", "step", "done", "end",
        ]  # fmt: skip
        assert (pod.end()["outcome"], pod.end()["code"], pod.end()["version"]) == ("exited", 3, 1)

    def test_is_0_when_all_steps_ended_so(self, pod: PodProcesses) -> None:
        end = pod.run("true")
        assert (end["exit"], end["outcome"], end["code"]) == (0, "exited", 0)

    def test_over_the_run_limit_is_124(self, pod: PodProcesses) -> None:
        end = pod.run("sleep 1000", "echo never", limits={"run_s": 0.5, "grace_s": 0.2})
        assert (end["exit"], end["outcome"], end["message"]) == (124, "timeout", "still running after 0.5 s")
        assert [record["outcome"] for record in pod.records("done")] == ["timeout"]

    def test_by_silence_is_124(self, pod: PodProcesses) -> None:
        end = pod.run("sleep 1000", limits={"stall_s": 0.4, "grace_s": 0.2})
        assert (end["exit"], end["outcome"]) == (124, "stall")

    def test_counts_what_outlived_its_step(self, pod: PodProcesses) -> None:
        assert pod.run("setsid sleep 1000 & true")["left"] == 1

    def test_fits_into_a_message_with_a_thousand_steps(self, pod: PodProcesses) -> None:
        steps = [{"name": "nothing", "kind": "which", "args": {"command": "no-such-command"}}] * 1000
        end = pod.run(steps=steps)
        assert (end["outcome"], "steps" in end) == ("exited", False)
        assert len(pod.records("done")) == 1000


class TestWhatIsHanded:
    @pytest.mark.parametrize(
        "text", ["", "{", "[]", '{"version": 1}', '{"version": 7, "steps": []}', '{"version": 1, "steps": [{}]}',
                 '{"version": 1, "steps": 5}', "\x00\xff"]
    )  # fmt: skip
    def test_in_vain_is_told_as_infra(self, pod: PodProcesses, text: str) -> None:
        (pod.root / "job/job.json").write_text(text)
        end = pod.ended(pod.start())
        assert (end["exit"], end["outcome"]) == (1, "infra")
        assert "invalid job file" in end["message"]
        assert pod.end()["outcome"] == "infra"

    def test_not_at_all_is_told_as_infra(self, pod: PodProcesses) -> None:
        assert "No such file" in pod.ended(pod.start())["message"]

    def test_of_secrets_is_in_nothing_that_is_left(self, pod: PodProcesses, tmp_path: Path) -> None:
        secret = "correct-horse-battery"
        shown = tmp_path / "shown"
        pod.write("echo token $TOKEN; echo $TOKEN > $SEATRIAL_FILES/kept; exit 1", secret_variables=["TOKEN", "OTHER"])
        with shown.open("wb") as file:
            pod.ended(pod.start(env={"TOKEN": secret}, stdout=file))
        assert shown.read_text().count("token •••") == 1
        for path in [shown, *filter(Path.is_file, pod.root.rglob("*"))]:
            assert secret.encode() not in path.read_bytes(), path

    def test_into_a_box_that_cannot_be_written_is_told_as_infra(self, pod: PodProcesses) -> None:
        pod.write("true")
        (pod.root / "volume").rmdir()
        (pod.root / "volume").write_text("a file")
        end = pod.ended(pod.start())
        assert (end["exit"], end["outcome"]) == (1, "infra")
        assert "Not a directory" in end["message"]


class TestTheEndThatIsAskedFor:
    def test_by_a_file_is_cancelled(self, pod: PodProcesses) -> None:
        polite = "trap 'echo polite; exit' TERM; echo ready; while :; do sleep 0.1; done"
        pod.write(polite, "echo never", limits={"grace_s": 300})
        trial = pod.start()
        until(lambda: (pod.out / "log.txt").exists() and "ready\n" in pod.log())
        (pod.out / "cancel").touch()
        end = pod.ended(trial)
        assert (end["exit"], end["outcome"], len(end["steps"])) == (143, "cancelled", 1)
        assert "polite" in pod.log()
        assert pod.records("end")[0]["outcome"] == "cancelled"

    def test_by_sigterm_says_so(self, pod: PodProcesses) -> None:
        pod.write("echo ready; sleep 1000")
        trial = pod.start()
        until(lambda: (pod.out / "log.txt").exists() and "ready\n" in pod.log())
        trial.terminate()
        end = pod.ended(trial)
        assert (end["exit"], end["outcome"]) == (143, "cancelled")
        assert "SIGTERM" in end["message"]

    def test_before_the_start_runs_no_step(self, pod: PodProcesses) -> None:
        pod.out.mkdir(parents=True)
        (pod.out / "cancel").touch()
        end = pod.run("echo never")
        assert (end["outcome"], end["steps"]) == ("cancelled", [])
        assert pod.records("step") == []

    def test_is_heard_by_a_step_that_deleted_the_folder(self, pod: PodProcesses) -> None:
        pod.write("rm -rf ../out; echo gone; sleep 1000")
        trial = pod.start()
        until(lambda: "gone\n" in pod.log())
        (pod.out / "cancel").touch()
        assert pod.ended(trial)["outcome"] == "cancelled"
        assert pod.records()[0]["event"] == "begin"


class TestASecondStart:
    def test_says_what_the_first_said(self, pod: PodProcesses) -> None:
        pod.run("echo x >> ../count; exit 7")
        (pod.root / "termination").write_bytes(b"")
        end = pod.ended(pod.start())
        assert (end["exit"], end["outcome"], end["code"]) == (7, "exited", 7)
        assert (pod.root / "volume/count").read_text() == "x\n"

    @pytest.mark.parametrize("after_s", [0.0, 0.05, 0.1, 0.2, 0.4, 0.8])
    def test_after_a_kill_at_any_time_runs_no_step_again(self, pod: PodProcesses, after_s: float) -> None:
        pod.write(*["echo x >> ../count; sleep 0.4"] * 3)
        first = pod.start()
        time.sleep(after_s)
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
        started = (pod.out / "started").exists()
        until(lambda: not left(pod))
        count = (pod.root / "volume/count").read_text() if (pod.root / "volume/count").exists() else ""
        end = pod.ended(pod.start())
        if started:
            assert (end["exit"], end["outcome"]) == (1, "lost")
            assert "restarted" in end["message"]
            assert not count or (pod.root / "volume/count").read_text() == count
            lines = (
                (pod.out / "records.jsonl").read_bytes().splitlines() if (pod.out / "records.jsonl").exists() else []
            )
            assert read_records(lines, [Step("run", "command")] * 3).broken_records == 0
        else:
            assert end["outcome"] == "exited"
            assert (pod.root / "volume/count").read_text() == "x\n" * 3

    def test_beside_a_first_that_lives_is_lost(self, pod: PodProcesses) -> None:
        pod.write("echo ready; sleep 1000")
        first = pod.start()
        until(lambda: (pod.out / "log.txt").exists() and "ready\n" in pod.log())
        assert pod.ended(pod.start())["outcome"] == "lost"
        first.terminate()
        assert pod.ended(first)["outcome"] == "cancelled"


def left(pod: PodProcesses) -> list[str]:
    """Processes whose working directory is in its volume."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.readlink(entry / "cwd").startswith(str(pod.root)):
                found.append(entry.name)
        except OSError:
            continue
    return found


class TestOutput:
    def test_is_the_log(self, pod: PodProcesses) -> None:
        pod.write("for n in $(seq 3000); do echo line $n; done")  # which fit into a pipe, whenever they are taken
        trial = pod.start(stdout=subprocess.PIPE)
        shown, _ = trial.communicate()
        assert shown.decode() == pod.log()
        assert shown.count(b"\n") == 3001

    def test_that_nobody_takes_holds_nobody_up(self, pod: PodProcesses) -> None:
        pod.write("head -c 12000000 /dev/zero | tr '\\0' '\\053'", "echo after", log={"segments": 20})
        trial = pod.start(stdout=subprocess.PIPE)
        end = pod.ended(trial)
        assert trial.stdout is not None
        trial.stdout.close()
        assert (end["outcome"], end["code"]) == ("exited", 0)
        parts = [pod.out / "log.txt", *(pod.out / f"log.txt.{number}" for number in range(1, 9))]
        assert sum(path.read_bytes().count(b"+") for path in parts) == 12000000
        assert pod.end()["log_omitted_bytes"] == 0

    def test_whose_reader_went_away_does_not_end_the_job(self, pod: PodProcesses) -> None:
        pod.write("echo one; sleep 0.3", "echo two")
        trial = pod.start(stdout=subprocess.PIPE)
        assert trial.stdout is not None
        trial.stdout.close()
        assert pod.ended(trial)["exit"] == 0
        assert "two\n" in pod.log()

    def test_that_came_too_fast_is_said_to_be_missing_where_it_is(self, pod: PodProcesses) -> None:
        flood = "head -c 9000000 /dev/zero | tr '\\0' x; echo; touch ../written"
        pod.write(f"{flood}; while [ ! -e ../read ]; do echo more; sleep 0.02; done; echo after")
        trial = pod.start(stdout=subprocess.PIPE, pipesize=1 << 20)
        assert trial.stdout is not None
        until(lambda: (pod.root / "volume/written").exists())
        shown = trial.stdout.read(9 << 19)  # what is left of 4 MiB that waited, and of the pipe, fits into the pipe
        (pod.root / "volume/read").touch()
        shown += trial.stdout.read()
        trial.stdout.close()
        assert pod.ended(trial)["exit"] == 0
        assert b"bytes not shown" in shown
        assert shown.endswith(b"after\n")

    def test_of_a_log_is_as_long_as_asked_for(self, pod: PodProcesses) -> None:
        pod.run("head -c 9437184 /dev/zero", log={"segments": 2})
        kept = sorted(path.name for path in pod.out.glob("log.txt*"))
        assert kept == ["log.txt", "log.txt.4", "log.txt.5", "log.txt.6"]
        assert pod.end()["log_omitted_bytes"] == 3 << 20


@pytest.mark.skipif(not ROOT, reason="needs root: a small disk")
class TestAFullDisk:
    def mounted(self, pod: PodProcesses, size: str) -> Path:
        disk = pod.root / "volume"
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk], check=True)
        return disk

    def test_while_it_runs_is_told_as_infra(self, pod: PodProcesses) -> None:
        disk = self.mounted(pod, "512k")
        try:
            end = pod.run("cat /dev/zero > fill; seq 1 5000", "echo never")
            assert (end["exit"], end["outcome"]) == (1, "infra")
            assert "No space left on device" in end["message"]
            assert pod.end()["outcome"] == "infra"
        finally:
            subprocess.run(["umount", "-l", disk], check=True)

    def test_before_it_begins_is_told_as_infra(self, pod: PodProcesses) -> None:
        disk = self.mounted(pod, "64k")
        try:
            (disk / "fill").write_bytes(bytes(60 << 10))
            end = pod.run("echo never")
            assert (end["exit"], end["outcome"]) == (1, "infra")
            assert "No space left on device" in end["message"]
        finally:
            subprocess.run(["umount", "-l", disk], check=True)


class TestHosts:
    TRAIN: dict[str, Any] = {  # noqa: RUF012 - never written to
        "command": 'echo "step: $SEATRIAL_HOST loss: 0.5 host $SEATRIAL_HOST of $SEATRIAL_HOSTS"; echo bad; exit 5',
        "hosts": 3,
        "follow": {
            "values": {"step": STEP, "loss": LOSS},
            "must": [pattern("of 3", "of 3")],
            "never": [pattern("never said", "never said")],
        },
    }

    def steps(self) -> list[dict[str, Any]]:
        return [
            {"name": "train", "kind": "command", "args": self.TRAIN},
            {"name": "say", "kind": "command", "args": {"command": f"echo $SEATRIAL_HOST/$SEATRIAL_HOSTS {RANKS}"}},
        ]

    @pytest.mark.parametrize("env", [{"JOB_COMPLETION_INDEX": "2", "RANK": "1"}, {"RANK": "2"}])
    def test_each_is_one_process_and_all_of_it_says_which(self, pod: PodProcesses, env: dict[str, str]) -> None:
        end = pod.run(steps=self.steps(), hosts=3, env=env)
        assert end["code"] == 5
        done = pod.records("done")
        assert done[0]["output"] == "step: 2 loss: 0.5 host 2 of 3\nbad\n"
        assert done[1]["output"].split()[:4] == ["2/3", env["RANK"], "2", "3"]
        assert done[0]["result"]["must"]["of 3"]["host"] == {"2": 1}
        assert list(done[0]["result"]["values"]["loss"]) == ["2"]
        notes = [record["data"] for record in pod.records("note")]
        assert [note for note in notes if note["note"] == "host"] == [{"note": "host", "host": 2, "code": 5}]
        assert {note["host"] for note in notes if note["note"] == "values"} == {2}

    def test_one_alone_starts_several_processes_as_on_this_machine(self, pod: PodProcesses) -> None:
        ranks = {"name": "ranks", "kind": "command", "args": {"command": f"echo {RANKS}", "hosts": 3}}
        pod.run(steps=[*self.steps(), ranks])
        done = pod.records("done")
        assert {f"[{n}] step: {n} loss: 0.5 host {n} of 3" for n in range(3)} <= set(done[0]["output"].splitlines())
        assert done[1]["output"] == "0/1\n"
        lines = sorted(done[2]["output"].splitlines())
        assert [line.split()[1:5] for line in lines] == [[str(n), str(n), "3", "127.0.0.1"] for n in range(3)]
        assert len({line.split()[5] for line in lines}) == 1

    @pytest.mark.parametrize("number", ["3", "-1", "x", ""])
    def test_without_a_number_of_their_own_are_infra(self, pod: PodProcesses, number: str) -> None:
        end = pod.run(steps=self.steps(), hosts=3, env={"JOB_COMPLETION_INDEX": number})
        assert (end["exit"], end["outcome"]) == (1, "infra")
        assert "cannot determine the host number (3 hosts)" in end["message"]

    def test_may_be_known_by_the_name_of_the_pod(self) -> None:
        from seatrial.agent.pod.pod import host_number

        assert host_number(3, {}, "trial-worker-2") == 2


def version(path: Path) -> tuple[int, ...]:
    return tuple(map(int, path.parts[-3].split(".")))


PYTHONS = sorted(
    (path for path in Path.home().glob(".pyenv/versions/3.*/bin/python") if version(path) >= (3, 8)), key=version
)


@pytest.mark.skipif(not PYTHONS, reason="there are no other Pythons below ~/.pyenv")
@pytest.mark.parametrize("python", PYTHONS or [Path(sys.executable)], ids=lambda path: path.parts[-3])
def test_it_runs_with_every_python_from_3_8(tmp_path: Path, agent: Path, python: Path) -> None:
    pod = PodProcesses(tmp_path / "place", agent, str(python))
    with tarfile.open(pod.root / "inputs/part-0000", "w:gz") as tar:
        tar.add(__file__, "here.py")
    environment = {"python": ".".join(map(str, version(python)[:2])), "packages": []}
    steps = [
        {"name": "look", "kind": "command", "args": {"command": "test -s here.py && python --version"}},
        {"name": "train", "kind": "command", "args": {"command": "echo step: 1", "follow": {"values": {"step": STEP}}}},
        {"name": "import", "kind": "import", "args": {"module": "json"}},
    ]
    end = pod.run(steps=steps, inputs=True, environment=environment, memory_bytes=1 << 30)
    assert (end["exit"], end["steps"]) == (0, [["exited", 0]] * 3), end
    assert pod.records("done")[0]["output"] == f"Python {python.parts[-3]}\n"


@pytest.mark.skipif(not ROOT, reason="needs root: to be somebody else")
def test_it_runs_as_a_user_without_a_name(tmp_path: Path, agent: Path) -> None:
    with tempfile.TemporaryDirectory() as open_to_all:
        os.chmod(open_to_all, 0o755)
        pod = PodProcesses(Path(open_to_all), agent, "/usr/bin/python3")
        for path in (pod.root / "volume", pod.root / "termination"):
            path.chmod(0o777)
        pod.write("id -u; echo $USER; touch $HOME/mine", "echo two")
        trial = pod.start(user=54321, group=54321, extra_groups=[], stdout=subprocess.PIPE)
        assert trial.stdout is not None
        shown = trial.stdout.read()
        trial.stdout.close()
        end = pod.ended(trial)
        assert (end["exit"], pod.records("done")[0]["output"]) == (0, "54321\nseatrial\n")
        assert b"two\n" in shown


def test_a_message_of_signs_that_json_writes_long_still_fits() -> None:
    from seatrial.agent.job_file import Ending
    from seatrial.agent.pod.pod import TERMINATION_BYTES
    from seatrial.agent.pod.pod import termination_message as message

    data = message(Ending("infra", None, "\x01" * 5000), [("exited", 0)] * 500)
    assert len(data) <= TERMINATION_BYTES
    assert json.loads(data)["message"].startswith("\x01")
