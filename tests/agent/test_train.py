"""A training is read while it runs: it is ended for what it says, and for not getting on; and all of it is told."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from reads import LOSS, STEP, STEP_TIME, pattern, values
from supervised import Supervised, Zygote, attempts


def version(path: Path) -> tuple[int, ...]:
    return tuple(map(int, path.parts[-3].split(".")))


PYTHONS = sorted(
    (path for path in Path.home().glob(".pyenv/versions/3.*/bin/python") if version(path) >= (3, 8)), key=version
)
VALUES = {"loss": LOSS, "step": STEP, "step_time": STEP_TIME}
TRAIN = """
import time, sys
for step in range({steps}):
    time.sleep({every_s})
    print(f"step: {{step}} loss: {{3 / (step + 1):.4f}} step_time: {every_s}", flush=True)
{then}
"""


def program(job: Supervised, then: str, steps: int = 10, every_s: float = 0.02) -> str:
    (job.folder / "work").mkdir(parents=True, exist_ok=True)
    (job.folder / "work/train.py").write_text(TRAIN.format(steps=steps, every_s=every_s, then=then))
    return f"{sys.executable} train.py"


def train(job: Supervised, command: str, **args: Any) -> dict[str, Any]:
    """Its record `done`; a step after it runs in any case."""
    fields = {key: args.pop(key) for key in ("limits", "secrets") if key in args}
    followed = {"command": command, "hosts": args.pop("hosts", 1), "follow": {"values": VALUES, **args}}
    steps = [
        {"name": "train", "kind": "command", "args": followed},
        {"name": "after", "kind": "command", "args": {"command": "echo after"}},
    ]
    job.run(steps=steps, **fields)
    done, after = job.records("done")
    assert after["output"] == "after\n"
    return dict(done, notes=[record["data"] for record in job.records("note")])


def test_metrics_patterns_and_progress_are_told(job: Supervised) -> None:
    done = train(job, program(job, "print('Finished training run', end='')"), must=[pattern("Finished training run")])
    assert (done["outcome"], done["code"]) == ("exited", 0)
    assert done["result"]["must"]["Finished training run"]["count"] == 1
    assert done["result"]["stopped"] is None
    assert done["result"]["steps"] == 10
    assert values(done["notes"], "step") == list(range(10))
    assert values(done["notes"], "loss")[0] == 3
    arrived = values(done["notes"], "loss", field="at")
    assert arrived == sorted(arrived)
    assert [note["text"] for note in done["notes"] if note["note"] == "progress"]


def test_a_loss_that_goes_nan_ends_it_at_once(job: Supervised) -> None:
    done = train(job, program(job, "print('step: 10 loss: nan', flush=True); time.sleep(1000)"), finite=["loss"])
    assert done["outcome"] == "stopped"
    stopped = done["result"]["stopped"]
    assert (stopped["what"], stopped["name"], stopped["line"], stopped["step"]) == ("value", "loss", 11, 10)
    assert stopped["text"] == "step: 10 loss: nan"


def test_a_forbidden_line_ends_it_with_all_that_it_started_and_the_lines_behind_are_kept(job: Supervised) -> None:
    then = "import subprocess; subprocess.Popen(['sleep', '61']); raise_later()"
    late = "def raise_later():\n print('Traceback:', flush=True); time.sleep(0.1); print('ValueError: why'); " \
        "sys.stdout.flush(); time.sleep(1000)\n"  # fmt: skip
    for one in attempts(job):
        done = train(one, program(one, late + then), never=[pattern("Traceback", "Traceback")])
        assert done["outcome"] == "stopped"
        assert done["result"]["stopped"]["what"] == "never"
        if "ValueError: why" in done["output"]:
            break
    assert "ValueError: why" in done["output"]
    assert [note["pattern"] for note in done["notes"] if note["note"] == "never"] == ["Traceback"]
    assert one.wait()["left"] == 0


def test_one_that_will_not_end_politely_is_ended_soon_when_it_said_what_it_never_should(job: Supervised) -> None:
    then = "import signal; signal.signal(15, signal.SIG_IGN); print('loss: inf', flush=True); time.sleep(1000)"
    done = train(job, program(job, then), finite=["loss"], limits={"grace_s": 1000.0})  # for another reason
    assert done["outcome"] == "stopped"
    assert json.loads((job.folder / "end.json").read_text())["left"] == 0


def test_one_that_fails_by_itself_was_not_stopped(job: Supervised) -> None:
    for one in attempts(job):  # a busy machine may not let it end before it is stopped
        done = train(one, program(one, "raise SystemError('own end')"), never=[pattern("Traceback", "Traceback")])
        if done["outcome"] == "exited":
            break
    assert (done["outcome"], done["code"]) == ("exited", 1)
    assert done["result"]["stopped"] is None
    assert done["result"]["never"]["Traceback"]["count"] == 1
    assert "SystemError: own end" in done["output"]


def test_no_new_step_is_a_stall_although_it_goes_on_talking(job: Supervised) -> None:
    then = "while True:\n    print('still here', flush=True)\n    time.sleep(0.05)"
    done = train(job, program(job, then), stall={"factor": 5, "least_s": 1.0, "steps": 3})
    assert done["outcome"] == "stall"
    assert done["result"]["stopped"]["what"] == "stall"
    assert "no new step" in done["result"]["stopped"]["text"]


def test_first_steps_that_take_long_are_no_stall(job: Supervised) -> None:
    command = "for n in 1 2 3 4 5 6; do echo step: $n; sleep 0.1; done; sleep 0.4; echo step: 7"
    done = train(job, command, stall={"factor": 1.01, "least_s": 0.1, "steps": 8})
    assert done["outcome"] == "exited"


def test_secrets_are_in_no_metric_and_no_line_that_is_told(job: Supervised) -> None:
    never = [pattern("password", "password")]
    done = train(job, "echo step: 1 password hunter22; sleep 60", never=never, secrets=["hunter22"])
    assert done["result"]["never"]["password"]["text"] == "step: 1 password •••"
    assert b"hunter22" not in (job.folder / "records.jsonl").read_bytes()


def test_a_pattern_that_does_not_end_does_not_hold_the_job(job: Supervised) -> None:
    command = f"{program(job, '')}; head -c 5000 /dev/zero | tr '\\0' x; echo '!'; echo loss: nan; sleep 60"
    done = train(job, command, never=[pattern(r"(x+x+)+y")], finite=["loss"])
    assert done["outcome"] == "stopped"
    assert [dropped["pattern"] for dropped in done["result"]["dropped"]] == [r"(x+x+)+y"]


# ---- several hosts

HOST = 'echo "step: 1 loss: $SEATRIAL_HOST of $SEATRIAL_HOSTS"; '


def test_each_host_knows_which_it_is_and_its_lines_are_told_apart(job: Supervised) -> None:
    done = train(job, HOST + "printf 'no end'", hosts=3, must=[pattern("no end", "no end")])
    assert (done["outcome"], done["code"]) == ("exited", 0)
    assert [values(done["notes"], "loss", host) for host in range(3)] == [[0], [1], [2]]
    assert done["result"]["must"]["no end"]["host"] == {"0": 1, "1": 1, "2": 1}
    assert sorted(done["output"].splitlines()) == sorted(
        f"[{host}] {line}" for host in range(3) for line in (f"step: 1 loss: {host} of 3", "no end")
    )


def test_a_host_alone_knows_that_too(job: Supervised) -> None:
    assert train(job, HOST)["output"] == "step: 1 loss: 0 of 1\n"


def test_when_one_host_fails_its_code_counts_and_the_others_are_ended(job: Supervised) -> None:
    command = "test $SEATRIAL_HOST = 0 && exit 0; test $SEATRIAL_HOST = 1 && exit 7; exec sleep 55"
    done = train(job, command, hosts=3)
    assert (done["outcome"], done["code"]) == ("exited", 7)
    assert "[1] --- host 1 ended with code 7" in done["output"]


def test_what_any_host_says_ends_all(job: Supervised) -> None:
    done = train(job, "echo loss: $((SEATRIAL_HOST * 2)); test $SEATRIAL_HOST = 2 && echo loss: nan; exec sleep 60",
                 hosts=4, finite=["loss"])  # fmt: skip
    assert done["outcome"] == "stopped"
    assert done["result"]["stopped"]["host"] == 2
    assert json.loads((job.folder / "end.json").read_text())["left"] == 0


STEPS = "for i in $(seq 1 {steps}); do echo step: $i; sleep 0.05; done; "
STALL = {"factor": 2, "least_s": 1.0, "steps": 3}


def test_a_host_that_hangs_while_others_go_on_is_a_stall_of_that_host(job: Supervised) -> None:
    hang = "[ $SEATRIAL_HOST = 1 ] && exec sleep 55; "
    for one in attempts(job):
        done = train(one, STEPS.format(steps=10) + hang + STEPS.format(steps=10_000), hosts=2, stall=STALL)
        assert done["outcome"] == "stall"
        if (done["result"]["stopped"]["host"], done["result"]["stopped"]["step"]) == (1, 10):
            break
    assert (done["result"]["stopped"]["host"], done["result"]["stopped"]["step"]) == (1, 10)
    assert done["result"]["stopped"]["text"].startswith("host 1: no new step for ")


def test_a_host_that_ends_before_others_is_no_stall(job: Supervised) -> None:
    early = "[ $SEATRIAL_HOST = 1 ] && exit 0; "
    command = STEPS.format(steps=10) + early + STEPS.format(steps=25)
    tried = (train(one, command, hosts=2, stall=STALL) for one in attempts(job))
    done = next(done for done in tried if done["outcome"] == "exited")
    assert done["code"] == 0
    assert done["result"]["steps"] == 45


def test_a_word_is_whole_in_one_of_the_pieces_of_a_very_long_line(job: Supervised) -> None:
    line = "import sys; sys.stdout.write('x' * ((1 << 20) - 3) + ' hunter22 ' + 'y' * 200000)"
    done = train(job, f'{sys.executable} -c "{line}"', hosts=2, never=[pattern("hunter")], secrets=["hunter22"])
    assert (job.folder / "log.txt").read_bytes().count("•••".encode()) == 2
    assert done["result"]["never"]["hunter"]["count"] == 2  # patterns see what was written; what is shown is masked
    assert "•••" in done["result"]["never"]["hunter"]["text"]
    assert "hunter2" not in (job.folder / "records.jsonl").read_text()


def test_a_secret_with_a_space_is_never_cut_in_a_very_long_line(job: Supervised) -> None:
    line = "import sys; sys.stdout.write('correct horse ' * 400000); print(f' end of {sys.argv[1]}')"
    secrets = ["correct horse"]
    done = train(
        job, f'{sys.executable} -c "{line}" $SEATRIAL_HOST', hosts=2, must=[pattern("end of")], secrets=secrets
    )
    log = (job.folder / "log.txt").read_bytes()
    assert "•••".encode() in log
    assert b"horse" not in log
    assert b"correct" not in log
    assert done["result"]["must"]["end of"]["host"] == {"0": 1, "1": 1}
    assert done["result"]["lines"] == 2


def test_a_secret_that_was_cut_by_the_end_or_split_by_colours_is_nowhere(job: Supervised) -> None:
    print_it = r"printf 'loss: 1 hunt\033[0mer2222\nnan hunter2'; exec sleep 55"
    done = train(job, print_it, never=[pattern("nan")], secrets=["hunter2222"])
    assert done["outcome"] == "stopped"
    assert done["output"] == "loss: 1 •••\nnan •••"
    assert done["result"]["never"]["nan"]["text"] == "nan •••"


# ---- every Python


@pytest.mark.skipif(not PYTHONS, reason="there are no other Pythons below ~/.pyenv")
@pytest.mark.parametrize("python", PYTHONS[:1] + PYTHONS[-1:] or [Path(sys.executable)], ids=str)
def test_it_works_with_the_oldest_and_the_newest_python(agent: Path, tmp_path: Path, python: Path) -> None:
    zygote = Zygote(agent, str(python))
    job = Supervised(zygote, tmp_path / "job")
    done = train(
        job, "for n in 1 2 3; do echo step: $n loss: $n; done; echo loss: nan; sleep 60", finite=["loss"], hosts=2
    )
    zygote.close()
    assert done["outcome"] == "stopped"
    assert values(done["notes"], "loss", 1)[:3] == [1, 2, 3]
    (tmp_path / "m.json").write_text('{"a": 1}')
    spec = {
        "logs": [],
        "roots": [str(tmp_path)],
        "entries": {"m": {"match": "*.json", "reader": "json", "keys": ["a"]}},
    }
    told = subprocess.run([python, agent, "read"], input=json.dumps(spec).encode(), capture_output=True, check=True)
    assert json.loads(told.stdout.splitlines()[-2])["result"]["m"]["files"][0]["values"] == {"a": 1}
