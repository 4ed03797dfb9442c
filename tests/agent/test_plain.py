"""A pod whose image has no Python: a shell runs its steps, and leaves exit codes and the end of each output."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pods import WAIT_S, PodProcesses, until

from seatrial.job import Environment, Input, Job, Limits, Step
from seatrial.job.observation import Records, read_records
from seatrial.target.kubernetes.plain import plain_script, script

ROOT = os.geteuid() == 0
BUSYBOX = Path("/bin/busybox")
SHELLS = [["/bin/busybox", "sh"], ["/bin/sh"]]
pytestmark = pytest.mark.skipif(not BUSYBOX.exists(), reason="needs busybox")
LIMITS = Limits(grace_s=1)


def run(*commands: str, timeout_s: float | None = None) -> tuple[Step, ...]:
    return tuple(Step(f"run {command}", "run", {"command": command}, timeout_s) for command in commands)


def job(steps: tuple[Step, ...], **fields: Any) -> Job:
    return Job("job", "run", "cell", 1, "title", steps, **{"limits": LIMITS, **fields})


class Plain:
    """The program of a job, in a place of its own."""

    def __init__(self, pod: PodProcesses, shell: list[str]) -> None:
        self.pod = pod
        self.shell = shell
        self.steps: tuple[Step, ...] = ()

    def write(self, given: Job) -> None:
        self.steps = given.steps
        (self.pod.root / "job/plain.sh").write_text(plain_script(given))

    def start(self, **options: Any) -> "subprocess.Popen[bytes]":
        argv = [*self.shell, str(self.pod.root / "job/plain.sh")]
        env = self.pod.env(SEATRIAL_FILES=str(self.pod.out / "files"))
        given = {"stdout": subprocess.DEVNULL, "env": env, **options}
        return subprocess.Popen(argv, start_new_session=True, **given)

    def run(self, given: Job, **options: Any) -> dict[str, Any]:
        self.write(given)
        return self.pod.ended(self.start(**options))

    def records(self) -> Records:
        found = read_records((self.pod.out / "records.jsonl").read_bytes().splitlines(), self.steps)
        assert found.broken == 0
        return found


@pytest.fixture(params=SHELLS, ids=["busybox", "sh"])
def plain(request: pytest.FixtureRequest, tmp_path: Path, agent: Path) -> Plain:
    return Plain(PodProcesses(tmp_path / "place", agent), request.param)


class TestAnEnd:
    def test_is_told_as_the_agent_tells_it(self, plain: Plain, tmp_path: Path) -> None:
        with (tmp_path / "shown").open("wb") as shown:
            end = plain.run(
                job(run("echo one; pwd; echo kept > $SEATRIAL_FILES/kept", "exit 3", "exit 4")), stdout=shown
            )
        assert (end["exit"], end["seatrial"], end["outcome"], end["code"]) == (3, 1, "exited", 3)
        assert end["steps"] == [["exited", 0], ["exited", 3], ["exited", 4]]
        assert end["wall_s"] == pytest.approx(time.time(), abs=60)
        seen = plain.records()
        assert [(step.outcome, step.code) for step in seen.steps] == [("exited", 0), ("exited", 3), ("exited", 4)]
        assert seen.steps[0].output == f"one\n{plain.pod.root}/volume/work\n"
        assert all(step.seconds is not None and 0 <= step.seconds < WAIT_S for step in seen.steps)
        assert (seen.outcome, seen.message, seen.log_bytes) == ("exited", "", len(plain.pod.log()))
        assert plain.pod.end()["code"] == 3
        assert (plain.pod.out / "files/kept").read_text() == "kept\n"
        assert (tmp_path / "shown").read_text() == plain.pod.log()
        assert plain.pod.log().startswith("--- [1/3] run echo one; pwd; echo kept > $SEATRIAL_FILES/kept\none\n")

    def test_of_a_step_over_its_time_is_not_that_of_the_job(self, plain: Plain) -> None:
        stubborn = "trap '' TERM; echo slow; while :; do sleep 0.1; done"
        end = plain.run(job((*run(stubborn, timeout_s=0.5), *run("echo next"))))
        assert (end["exit"], end["steps"]) == (0, [["timeout", None], ["exited", 0]])
        assert [step.output for step in plain.records().steps] == ["slow\n", "next\n"]

    def test_over_the_run_limit_is_124(self, plain: Plain) -> None:
        end = plain.run(job(run("sleep 1000", "echo never"), limits=Limits(run_s=1, grace_s=1)))
        assert (end["exit"], end["outcome"], end["message"]) == (124, "timeout", "not done after 1 s")
        assert end["steps"] == [["timeout", None]]

    @pytest.mark.parametrize("how", ["file", "signal", "before"])
    def test_that_is_asked_for_is_143(self, plain: Plain, how: str) -> None:
        plain.write(job(run("trap 'echo polite; exit' TERM; echo ready; while :; do sleep 0.1; done", "echo never")))
        if how == "before":
            plain.pod.out.mkdir(parents=True)
            (plain.pod.out / "cancel").touch()
        trial = plain.start()
        if how != "before":
            until(lambda: (plain.pod.out / "log.txt").exists() and "ready\n" in plain.pod.log())
            (plain.pod.out / "cancel").touch() if how == "file" else trial.terminate()
        end = plain.pod.ended(trial)
        assert (end["exit"], end["outcome"]) == (143, "cancelled")
        assert ("SIGTERM" in end["message"]) == (how == "signal")
        assert plain.records().outcome == "cancelled"
        assert ("polite" in plain.pod.log().replace("echo polite", "")) == (how != "before")
        assert "\nnever" not in plain.pod.log()


def test_a_second_start_runs_no_step_again(plain: Plain) -> None:
    plain.write(job(run("echo x >> ../count")))
    assert plain.pod.ended(plain.start())["exit"] == 0
    end = plain.pod.ended(plain.start())
    assert (end["exit"], end["outcome"]) == (1, "lost")
    assert (plain.pod.root / "volume/count").read_text() == "x\n"


def test_output_of_any_bytes_is_told_in_json_and_its_last_part_where_it_is_long(plain: Plain) -> None:
    octets = "".join(f"\\{number:03o}" for number in range(1, 256))
    lines = "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done"
    plain.write(job(run(f"printf '{octets}'; echo; echo 'back\\slash \"quoted\"'; printf unended", lines)))
    trial = plain.start(stdout=subprocess.PIPE)
    assert trial.stdout is not None
    trial.stdout.close()  # its reader went away
    assert plain.pod.ended(trial)["exit"] == 0
    first, step = plain.records().steps
    assert first.output.endswith('back\\slash "quoted"\nunended\n')
    assert "?" * 128 in first.output
    assert step.output.endswith("line 1999\n")
    assert len(step.output) + step.output_omitted_bytes == sum(len(f"line {n}\n") for n in range(2000))


class TestKinds:
    def test_a_command_is_found_with_its_path(self, plain: Plain) -> None:
        plain.run(job((Step("a", "command", {"command": "tar"}), Step("b", "command", {"command": "no-such-command"}))))
        found, missing = plain.records().steps
        assert found.result["path"].endswith("tar")
        assert missing.result == {"path": None, "version": None}

    @pytest.mark.parametrize(
        "step",
        [
            Step("i", "import", {"module": "json"}),
            Step("x", 'no "such" kind\n', {}),
            Step("r", "run", {"command": "echo \0"}),
            Step("r", "run", {}),
        ],
        ids=lambda step: step.kind.split()[0],
    )
    def test_one_that_needs_more_is_refused_and_the_next_runs(self, plain: Plain, step: Step) -> None:
        end = plain.run(job((step, *run("echo next"))))
        assert (end["exit"], end["steps"]) == (0, [["refused", None], ["exited", 0]])
        refused = plain.records().steps[0]
        assert refused.outcome == "refused"
        assert refused.result["error"]


class TestAJobThatNeedsMore:
    @pytest.mark.parametrize(
        ("fields", "says"),
        [
            ({"secrets": {"TOKEN": "token"}}, "secrets"),
            ({"environment": Environment(python="3.11", packages=("numpy",))}, "packages"),
            ({"environment": Environment(interpreter="/no/such/python")}, "interpreter"),
            ({"hosts": 2}, "several hosts"),
            ({"inputs": (Input("here", "."),)}, "files of the machine"),
        ],
    )
    def test_is_refused(self, plain: Plain, fields: dict[str, Any], says: str) -> None:
        end = plain.run(job(run("echo never"), **fields))
        assert (end["exit"], end["outcome"], end["steps"]) == (1, "refused", [])
        assert says in end["message"]
        assert "Python" in end["message"]
        assert plain.pod.end()["outcome"] == "refused"
        assert plain.records().outcome == "refused"

    def test_but_names_a_python_that_is_there_is_handed_to_the_agent(self, plain: Plain) -> None:
        steps = run("echo by the agent")
        plain.pod.write("echo by the agent")
        end = plain.run(job(steps, environment=Environment(interpreter=sys.executable)))
        assert end["exit"] == 0
        assert plain.pod.records("begin")[0]["hardware"]["cores"]


HOSTILE = [
    "it's; touch PWNED #", "$(touch PWNED)", "`touch PWNED`", "'; touch PWNED; '", '"; touch PWNED; "',
    "a\ntouch PWNED", "\\'; touch PWNED", "-e -n", "END_OF_TABLE\ntouch PWNED", "%s%s%n\\c\\0101",
    "\x1b[2J\x07", "ünïcode 🚀", "\ud800",
]  # fmt: skip


def test_names_and_commands_do_not_break_out_of_the_program(plain: Plain, tmp_path: Path) -> None:
    steps = [Step(name, "run", {"command": f"cat <<'E'\n{name}\nE\n"}) for name in HOSTILE]
    steps += [Step(name, "import", {"module": name}) for name in HOSTILE]
    steps += [Step(name, "command", {"command": name}) for name in HOSTILE]
    steps += [Step(name, name, {}) for name in HOSTILE]
    end = plain.run(job(tuple(steps)), cwd=tmp_path)
    assert (end["outcome"], len(plain.records().steps)) == ("exited", len(steps))
    assert all(step.outcome is not None for step in plain.records().steps)
    assert not list(tmp_path.rglob("PWNED"))
    assert [step.code for step in plain.records().steps[: len(HOSTILE)]] == [0] * len(HOSTILE)


@pytest.mark.skipif(not ROOT, reason="needs root: a root folder and a process namespace of its own")
class TestAnImageOfBusyboxAlone:
    """The container itself: the shell is process 1, and there is no other program than busybox."""

    @pytest.fixture
    def image(self, tmp_path: Path, agent: Path) -> PodProcesses:
        image = tmp_path / "image"
        (image / "bin").mkdir(parents=True)
        (image / "bin/busybox").write_bytes(BUSYBOX.read_bytes())
        (image / "bin/busybox").chmod(0o755)
        for name in subprocess.check_output([BUSYBOX, "--list"], text=True).split():
            if name != "busybox":
                (image / "bin" / name).symlink_to("busybox")
        for name in ("proc", "dev", "sys"):
            (image / name).mkdir()
        os.mknod(image / "dev/null", 0o20666, os.makedev(1, 3))
        os.mknod(image / "dev/zero", 0o20666, os.makedev(1, 5))
        (image / "dev/termination-log").touch()
        pod = PodProcesses(image / "seatrial", agent)
        for name in ("start", "keep"):
            (pod.root / f"agent/{name}.sh").write_text(script(name))
        return pod

    def container(self, pod: PodProcesses, program: str, **env: str) -> "subprocess.Popen[bytes]":
        inside = f"mount -t proc proc /proc && exec /bin/sh /seatrial/agent/{program}"
        argv = ["unshare", "--pid", "--fork", "--mount", "--kill-child", "chroot", str(pod.root.parent), "/bin/sh"]
        given = {"PATH": "/bin:/usr/bin:/usr/sbin:/sbin", **env}
        return subprocess.Popen([*argv, "-c", inside], env=given, stdout=subprocess.DEVNULL)

    def test_runs_its_steps_and_ends_what_they_leave(self, image: PodProcesses) -> None:
        steps = run("sleep 1000 & echo $! > ../pid", "sleep 1001", "kill -0 $(cat ../pid) && echo there", timeout_s=2)
        (image.root / "job/plain.sh").write_text(plain_script(job(steps)))
        trial = self.container(image, "start.sh")
        kept = self.container(image, "keep.sh", SEATRIAL_KEEP_S="1")
        assert trial.wait(WAIT_S) == 0
        end = json.loads((image.root.parent / "dev/termination-log").read_text())
        assert end["outcome"] == "exited"
        assert end["steps"] == [["exited", 0], ["timeout", None], ["exited", 0]]
        seen = read_records((image.out / "records.jsonl").read_bytes().splitlines(), steps)
        assert (seen.broken, seen.steps[2].output, seen.steps[1].output) == (0, "there\n", "")
        assert kept.wait(WAIT_S) == 0
