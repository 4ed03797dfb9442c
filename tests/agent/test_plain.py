"""A pod whose image has no Python: a shell runs its steps, and leaves exit codes and the end of each output."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from pods import PodProcesses, until

from seatrial.job import Environment, Input, Job, Limits, Step
from seatrial.job.observation import Records, read_records
from seatrial.targets.kubernetes.manifest.pod import plain_script

pytestmark = pytest.mark.skipif(not Path("/bin/busybox").exists(), reason="needs busybox")


def run(*commands: str, timeout_s: float | None = None) -> tuple[Step, ...]:
    return tuple(Step(f"run {command}", "command", {"command": command}, timeout_s) for command in commands)


class Plain(PodProcesses):
    shell: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()

    def begin(self, *steps: Step, stdout: Any = subprocess.DEVNULL, **fields: Any) -> subprocess.Popen[bytes]:
        self.steps = steps
        job = Job(
            name="job",
            run="run",
            cell="cell",
            attempt=1,
            title="title",
            steps=steps,
            limits=Limits(grace_s=1),
            **fields,
        )
        (self.root / "job/plain.sh").write_text(plain_script(job))
        env = self.env(SEATRIAL_FILES=str(self.out / "files"))
        return subprocess.Popen([*self.shell, self.root / "job/plain.sh"], env=env, stdout=stdout, cwd=self.root)

    def read(self) -> Records:
        found = read_records((self.out / "records.jsonl").read_bytes().splitlines(), self.steps)
        assert found.broken_records == 0
        return found


@pytest.fixture(params=[("/bin/busybox", "sh"), ("/bin/sh",)], ids=["busybox", "sh"])
def plain(request: pytest.FixtureRequest, tmp_path: Path, agent: Path) -> Plain:
    pod = Plain(tmp_path / "place", agent)
    pod.shell = request.param
    return pod


def test_steps_run_once_in_order_and_their_ends_are_where_the_agent_leaves_them(plain: Plain, tmp_path: Path) -> None:
    steps = run("echo one; pwd; echo kept >> $SEATRIAL_FILES/kept", "exit 3", "exit 4")
    with (tmp_path / "shown").open("wb") as shown:
        end = plain.ended(plain.begin(*steps, stdout=shown))
    assert (end["exit"], end["seatrial"], end["outcome"], end["code"]) == (3, 1, "exited", 3)
    assert end["steps"] == [["exited", 0], ["exited", 3], ["exited", 4]]
    found = plain.read()
    assert [[step.outcome, step.code] for step in found.steps] == end["steps"]
    assert found.steps[0].output == f"one\n{plain.root}/volume/work\n"
    assert (found.outcome, found.message, found.log_bytes) == ("exited", "", len(plain.log()))
    assert (tmp_path / "shown").read_text() == plain.log()
    assert plain.log().startswith("--- [1/3] run echo one; pwd; echo kept >> $SEATRIAL_FILES/kept\none\n")
    again = plain.ended(plain.begin(*steps))
    assert (again["exit"], again["outcome"]) == (1, "lost")
    assert (plain.out / "files/kept").read_text() == "kept\n"


def test_a_step_over_its_time_is_ended_and_the_next_runs(plain: Plain) -> None:
    slow = run("trap '' TERM; while :; do sleep 0.1; done", timeout_s=0.5)
    end = plain.ended(plain.begin(*slow, *run("echo next")))
    assert (end["exit"], end["steps"]) == (0, [["timeout", None], ["exited", 0]])


@pytest.mark.parametrize("how", ["file", "signal"])
def test_one_that_is_asked_to_end_does_not_pass(plain: Plain, how: str) -> None:
    trial = plain.begin(*run("trap 'echo po''lite; exit' TERM; echo re''ady; while :; do sleep 0.1; done", "echo next"))
    until(lambda: "ready\n" in plain.log())
    (plain.out / "cancel").touch() if how == "file" else trial.terminate()
    end = plain.ended(trial)
    assert (end["exit"], end["outcome"], end["steps"]) == (1, "cancelled", [["cancelled", None]])
    assert (plain.read().outcome, "polite\n" in plain.log()) == ("cancelled", True)


def test_output_of_any_bytes_is_json_and_the_last_part_of_a_long_one(plain: Plain) -> None:
    octets = "".join(f"\\{number:03o}" for number in range(1, 256))
    lines = "i=0; while [ $i -lt 9000 ]; do echo line $i; i=$((i+1)); done"
    plain.ended(plain.begin(*run(f"printf '{octets}'; echo; echo 'back\\slash \"quoted\"'; printf unended", lines)))
    first, step = plain.read().steps
    assert first.output.endswith('back\\slash "quoted"\nunended\n')
    assert "?" * 128 in first.output
    assert step.output.endswith("line 8999\n")
    assert step.output_omitted_bytes > 0
    assert len(step.output) + step.output_omitted_bytes == sum(len(f"line {n}\n") for n in range(9000))


def test_a_job_that_needs_more_is_refused(plain: Plain) -> None:
    more: dict[str, Any] = {"secrets": {"TOKEN": "token"}, "hosts": 2, "inputs": (Input("here", "."),)}
    environments = [Environment(python="3.11", packages=("numpy",)), Environment(interpreter="/no/such/python")]
    for fields in [{name: value} for name, value in more.items()] + [{"environment": one} for one in environments]:
        (plain.out / "started").unlink(missing_ok=True)
        end = plain.ended(plain.begin(*run("echo next"), **fields))
        assert (end["exit"], end["outcome"], end["steps"]) == (1, "refused", []), fields
        assert "needs Python 3.8" in end["message"]


HOSTILE = [
    "it's; touch PWNED #", "$(touch PWNED)", "`touch PWNED`", "'; touch PWNED; '", '"; touch PWNED; "',
    "a\ntouch PWNED", "\\'; touch PWNED", "-e -n", "%s%s%n\\c\\0101", "\x1b[2J\x07", "ünïcode 🚀", "\ud800",
]  # fmt: skip


def test_names_and_commands_do_not_break_out_and_steps_that_need_more_are_refused(plain: Plain) -> None:
    good = [Step(name, "command", {"command": f"cat <<'E'\n{name}\nE\n"}) for name in HOSTILE]
    missing = [Step(name, "which", {"command": name}) for name in HOSTILE]
    refused = [Step(name, name, {}) for name in HOSTILE] + [
        Step("r", "command", {}),
        Step("r", "command", {"command": "\0"}),
    ]
    plain.ended(plain.begin(*good, *missing, *refused, Step("tar", "which", {"command": "tar"})))
    *found, tar = plain.read().steps
    assert [step.code for step in found[: len(good)]] == [0] * len(good)
    assert [step.result["path"] for step in found[len(good) : -len(refused)]] == [None] * len(missing)
    assert all(step.outcome == "refused" and step.result["error"] for step in found[-len(refused) :])
    assert tar.result["path"].endswith("tar")
    assert not list(plain.root.rglob("PWNED"))
