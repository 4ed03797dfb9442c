"""`seatrial check`: torchprime's layout judged as it lies there, by its five checks, without running anything."""

import json
import shutil
import socket
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from seatrial.cli import main
from seatrial.engine.check_folder import find_logs
from world import World
from xplane_file import host_profile, tpu_profile

SUITE = """
trials:
  sft:
    kind: training
    command: tp run train.py
    log: {must: Finished training run}
    loss: {target: 0.4735, tolerance: 0.001}
    files: {profile: {match: 'profile/*/**/*.xplane.pb', count: 1, valid: xplane, agrees: 5%}}
    metrics: {step_time: {file: 'outputs/*/train_metrics.json', key: step_execution_time, unit: s, better: lower}}
    baseline: step_time_bounds.yaml
    benchmark: llama-3-8b-sft
"""
BOUNDS = """\
benchmarks:
  llama-3-8b-sft:
    name: Llama 3.0 8B SFT
    step_time_lower_bound: 2.4
    step_time_upper_bound: 2.6
    confidence_interval: 0.1
    average: 2.5
    sample_size: 41
    target_loss: 0.4735
    loss_tolerance: 0.001
metadata: {query_start: '2025-07-01T00:00:00-07:00', query_end: '2025-07-23T12:20:48-07:00', confidence_level: 0.999}
"""
LINE = "Epoch: 0.{0}, step: {0}0, loss: {1}, grad_norm: 1.0, lr: 1.00e-05, trace time: 9.00 ms\n"


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """`<dir>/<job>/{profile,outputs}/<slice>-<worker>/` of a job that did well."""
    (tmp_path / "suite.yaml").write_text(SUITE)
    (tmp_path / "step_time_bounds.yaml").write_text(BOUNDS)
    job = tmp_path / "artifacts" / "llama-abc123"
    for host in ("0-0", "0-1"):
        profile = job / "profile" / host / "plugins" / "profile" / "2025_07_23"
        profile.mkdir(parents=True)
        (profile / "vm.xplane.pb").write_bytes(tpu_profile([0.0, 2.5, 5.0, 7.5, 10.0], devices=4))
        outputs = job / "outputs" / host
        outputs.mkdir(parents=True)
        (outputs / "train_metrics.json").write_text(json.dumps({"train_runtime": 60.0, "step_execution_time": 2.5}))
    lines = "".join(LINE.format(n, loss) for n, loss in enumerate(("4.1", "1.2", "0.4741")))
    (job / "pod.log").write_text(f"{lines}***** train metrics *****\nFinished training run\n")
    return job


def judged(folder: Path, place: str, *options: str, check: int) -> dict[str, str]:
    """In this process, which is quicker; the agent that reads is a process all the same."""
    args = [place, "--suite", str(folder / "suite.yaml"), "--trial", "sft", *options, "--json"]
    done = CliRunner().invoke(main, ["check", *args])
    assert done.exit_code == check, done.output
    (cell,) = json.loads(done.stdout)["cells"]
    return {f"{one['step']} {one['check']}": one["verdict"] for one in cell["findings"]}


def test_their_five_checks_pass_on_their_layout(tmp_path: Path, theirs: Path) -> None:
    assert judged(tmp_path, str(theirs), "--exit-code", "0", check=0) == {
        "train exit": "passed",
        "train must Finished training run": "passed",
        "train loss": "passed",
        "files profile count": "passed",
        "files profile fresh": "skipped",
        "files profile valid": "passed",
        "files profile profile": "passed",
        "files profile steps": "passed",
        "files profile agrees": "skipped",
        "train metric step_time": "passed",
        "files profile agrees step_time": "passed",
        "figures bounds step_time": "passed",
        "figures bounds loss": "passed",
    }


def rewrite(path: str, text: str | bytes) -> Callable[[Path], None]:
    data = text.encode() if isinstance(text, str) else text
    return lambda job: [one.write_bytes(data) for one in job.glob(path)] and None  # type: ignore[func-returns-value]


def copy_profile(job: Path) -> None:
    (one,) = (job / "profile" / "0-0").glob("**/*.xplane.pb")
    shutil.copy(one, one.with_name("again.xplane.pb"))


def lose_metrics(job: Path) -> None:
    (job / "outputs" / "0-1" / "train_metrics.json").unlink()


def profiled(seconds: float) -> Callable[[Path], None]:
    return rewrite("profile/*/**/*.pb", tpu_profile([number * seconds for number in range(5)], devices=4))


def slower(seconds: float) -> Callable[[Path], None]:
    def both(job: Path) -> None:
        rewrite("outputs/*/train_metrics.json", json.dumps({"step_execution_time": seconds}))(job)
        profiled(seconds)(job)

    return both


@pytest.mark.parametrize(
    ("breaks", "failed"),
    [
        (rewrite("pod.log", LINE.format(3, "0.4735")), {"train must Finished training run": "failed"}),
        (rewrite("pod.log", LINE.format(3, "nan") + "Finished training run\n"), {"train loss": "failed"}),
        (
            rewrite("pod.log", LINE.format(3, "0.4700") + "Finished training run\n"),
            {"train loss": "failed", "figures bounds loss": "failed"},
        ),
        (rewrite("pod.log", "val_loss: 0.4735\nFinished training run\n"), {"train loss": "failed"}),
        (copy_profile, {"files profile count": "failed"}),
        (profiled(3.0), {"files profile agrees step_time": "failed"}),
        (slower(2.7), {"figures bounds step_time": "slower"}),
        (slower(2.3), {"figures bounds step_time": "faster"}),
        (rewrite("outputs/0-1/*.json", '{"step_execution_time": null}'), {"train metric step_time": "failed"}),
        (rewrite("outputs/0-1/*.json", "{"), {"train metric step_time": "failed"}),
        (rewrite("outputs/0-1/*.json", '{"step_execution_time": NaN}'), {"train metric step_time": "failed"}),
        (lose_metrics, {"train metric step_time": "failed"}),
        (rewrite("profile/0-1/**/*.pb", host_profile([(0, 1.0)])), {"files profile steps": "failed"}),
    ],
)
def test_what_breaks_one_check_is_told_by_that_check_alone(
    tmp_path: Path, theirs: Path, breaks: Callable[[Path], None], failed: dict[str, str]
) -> None:
    breaks(theirs)
    found = judged(tmp_path, str(theirs), check=1)
    assert {name: verdict for name, verdict in found.items() if verdict not in ("passed", "skipped")} == failed


@pytest.mark.parametrize("written", ["", ", agrees: false"])
def test_step_times_are_compared_only_where_the_suite_asks_for_it(tmp_path: Path, theirs: Path, written: str) -> None:
    (tmp_path / "suite.yaml").write_text(SUITE.replace(", agrees: 5%", written))
    profiled(3.0)(theirs)
    found = judged(tmp_path, str(theirs), check=0)
    assert [name for name in found if "agrees" in name] == []


@pytest.mark.parametrize("content", [b"", b"not a profile", bytes(range(256)) * 4])
def test_a_profile_that_is_none_is_rejected_although_it_is_there(tmp_path: Path, theirs: Path, content: bytes) -> None:
    rewrite("profile/0-0/**/*.xplane.pb", content)(theirs)
    found = judged(tmp_path, str(theirs), check=1)
    assert found["files profile count"] == "passed"
    assert "failed" in (found["files profile valid"], found.get("files profile profile"))


def test_an_exit_code_that_nobody_knows_is_skipped_and_a_bad_one_fails(tmp_path: Path, theirs: Path) -> None:
    assert judged(tmp_path, str(theirs), check=0)["train exit"] == "skipped"
    assert judged(tmp_path, str(theirs), "--exit-code", "125", check=1)["train exit"] == "failed"


def test_a_person_reads_every_finding_and_metric(world: World, theirs: Path) -> None:
    slower(2.7)(theirs)
    done = world.seatrial("check", str(theirs), "--suite", "suite.yaml", "--trial", "sft", check=1)
    assert "2.7 s is above 2.6 s" in done.stdout
    assert "step_time 2.7 s" in done.stdout
    assert "add its exit code with `--exit-code`" in done.stdout
    assert "seconds" not in done.stdout  # how long the job took cannot be known
    assert done.stdout.rstrip().endswith("slower")


def test_logs_of_several_hosts_are_all_read(world: World, theirs: Path) -> None:
    log = (theirs / "pod.log").read_text()
    for name, text in {"h0.log": log, "h1.log": log, "h10.log": log.replace("Finished", "Broken")}.items():
        (world.folder / name).write_text(text)
    options = [option for name in ("h0.log", "h1.log", "h10.log") for option in ("--log", name)]
    world.seatrial("check", str(theirs), "--suite", "suite.yaml", "--trial", "sft", *options[:4], check=0)
    done = world.seatrial("check", str(theirs), "--suite", "suite.yaml", "--trial", "sft", *options, check=1)
    assert "only hosts 0, 1 printed it, not host 2" in done.stdout
    (world.folder / "h1.log").write_text(log.replace("0.4741", "0.9"))
    done = world.seatrial("check", str(theirs), "--suite", "suite.yaml", "--trial", "sft", *options[:4], check=1)
    assert "final loss 0.9 on host 1" in done.stdout
    assert "the log of host 1 (last value)" in done.stdout  # the metric that bounds judge is the worst host's


SEVERAL = """
trials:
  sft:
    kind: training
    command: x
    hosts: 2
    log: {never: Traceback, hosts: HOSTS}
    loss: {target: 1.0, tolerance: 0.1}
    steps: {count: ">=3", last: ">=3"}
    metrics: {rate: {log: 'tps: (\\S+)', better: higher, min: 50}}
"""
STEPS = "".join(f"step: {step} loss: 1.0 tps: 100\n" for step in range(1, 4))


@pytest.mark.parametrize(("hosts", "check", "verdict"), [("all", 1, "failed"), ("any", 0, "passed")])
@pytest.mark.parametrize("silent", ["a log", "no line", "no log"])
def test_a_host_that_says_nothing_is_missed_unless_any_will_do(
    tmp_path: Path, silent: str, hosts: str, check: int, verdict: str
) -> None:
    (tmp_path / "suite.yaml").write_text(SEVERAL.replace("HOSTS", hosts))
    (tmp_path / "job").mkdir()
    logs = {"h0.log": STEPS, "h1.log": "hello\n"} if silent == "a log" else {"h0.log": STEPS}
    if silent == "no line":
        logs = {"all.log": "".join(f"[0] {line}\n" for line in STEPS.splitlines()) + "[1] hello\n"}
    for name, text in logs.items():
        (tmp_path / "job" / name).write_text(text)
    found = judged(tmp_path, str(tmp_path / "job"), check=check)
    asked = ("train loss", "train steps", "train last step", "train metric rate")
    assert {found[name] for name in asked} == {verdict}
    assert found.get("train log") == ("failed" if (silent, hosts) == ("no log", "all") else None)


def test_a_log_that_a_link_leads_to_out_of_the_folder_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "other.log").write_text("Finished\n")
    job = tmp_path / "job"
    job.mkdir()
    (job / "linked").symlink_to(tmp_path / "outside")
    (job / "other.log").symlink_to(tmp_path / "outside" / "other.log")
    assert find_logs(job) == ()
    (job / "sub").mkdir()
    (job / "sub" / "own.log").write_text("Finished\n")
    (tmp_path / "alias").symlink_to(job)
    assert find_logs(tmp_path / "alias") == (tmp_path / "alias" / "sub" / "own.log",)


def test_what_was_fetched_is_called_by_its_address(tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text(SUITE.replace("    baseline: step_time_bounds.yaml\n", ""))
    (tmp_path / "job").mkdir()
    address = f"file://{tmp_path}/job"
    args = ["--suite", str(tmp_path / "suite.yaml"), "--trial", "sft"]
    (tmp_path / "job" / "outputs" / "0-0").mkdir(parents=True)
    (tmp_path / "job" / "outputs" / "0-0" / "train_metrics.json").write_text("{}")
    assert f"log not found in {address} (" in CliRunner().invoke(main, ["check", address, *args]).output
    (tmp_path / "job" / "x.log.gz").write_bytes(b"\x1f\x8bbroken")
    done = CliRunner().invoke(main, ["check", address, *args])
    assert "x.log.gz: cannot read the file" in done.output
    assert "seatrial-check-" not in done.output
    one = CliRunner().invoke(main, ["check", f"{address}/x.log.gz", *args])
    assert (one.exit_code, f"{address}/x.log.gz is a file; use its folder" in one.output) == (2, True)


def test_a_place_that_does_not_answer_is_not_an_empty_one(world: World) -> None:
    world.suite("trials: {t: {kind: training, command: x, loss: {}}}")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/x"
        done = world.seatrial("check", address, "--suite", "suite.yaml", "--trial", "t", check=2)
    assert f"cannot read {address}" in done.stderr
    assert "not found" not in done.stderr


def test_an_address_is_read_like_a_folder(tmp_path: Path, theirs: Path) -> None:
    assert judged(tmp_path, f"file://{theirs}", check=0)["train loss"] == "passed"
    (theirs / "huge.bin").write_bytes(b"x")  # no glob means it, so it is not fetched
    with zipfile.ZipFile(tmp_path / "job.zip", "w") as archive:
        for path in theirs.rglob("*"):
            archive.write(path, path.relative_to(theirs))
    zipped = judged(tmp_path, f"zip://::file://{tmp_path}/job.zip", check=0)
    assert (zipped["files profile count"], zipped["train loss"]) == ("passed", "passed")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nowhere"], "folder not found: nowhere"),
        (["file:///no/such/folder"], "folder not found: file:///no/such/folder"),
        (["gopher://x/y"], "cannot access gopher://x/y"),
        (["suite.yaml"], "suite.yaml is a file, not a folder"),
        (["."], "log not found in"),
        ([".", "--log", "none.log"], "log not found: none.log"),
        ([".", "--trial", "stf"], "unknown trial 'stf' in suite.yaml; did you mean 'sft'?"),
        ([".", "--select", "model=x"], "matches nothing"),
    ],
)
def test_what_cannot_be_judged_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], message: str
) -> None:
    (tmp_path / "suite.yaml").write_text(SUITE.replace("    baseline: step_time_bounds.yaml\n", ""))
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["check", args[0], "--suite", "suite.yaml", "--trial", "sft", *args[1:]])
    assert done.exit_code == 2
    assert message in done.output


def test_a_trial_of_several_cells_needs_to_be_told_which(world: World) -> None:
    world.suite("trials: {t: {kind: training, matrix: {model: [a, b]}, command: x, log: {must: 'done ${model}'}}}")
    (world.folder / "job").mkdir()
    (world.folder / "job" / "log.txt").write_text("done b\n")
    done = world.seatrial("check", "job", "--suite", "suite.yaml", "--trial", "t", check=2)
    assert "--select 't[model=b]'" in done.stderr
    world.seatrial("check", "job", "--suite", "suite.yaml", "--trial", "t", "--select", "t[model=b]", check=0)
    world.seatrial("check", "job", "--suite", "suite.yaml", "--trial", "t", "--select", "model=a", check=1)


def test_a_runtime_trial_has_nothing_to_judge_files_by(world: World) -> None:
    world.suite("trials: {t: {kind: runtime, commands: [sh]}}")
    done = world.seatrial("check", ".", "--suite", "suite.yaml", "--trial", "t", check=2)
    assert "which has no files to check" in done.stderr
