"""Whole runs of training trials on this machine: real processes, their logs read while they run, their files opened."""

import json
import os
import sys
from importlib.util import find_spec

import pytest

from seatrial.extras import install_command
from seatrial.job import CellResult
from world import World
from xplane_file import host_profile

# A job that says what a training job says, step by step, and does what its arguments tell it to at some step.
JOB = """\
import json, os, signal, sys, time
from pathlib import Path
out, host = Path(os.environ["SEATRIAL_FILES"]), os.environ["SEATRIAL_HOST"]
what, at = sys.argv[1:] if len(sys.argv) == 3 else ("", "0")
for step in range(8):
    time.sleep(0.02)
    loss = 4.0 / (step + 1)
    if step >= int(at):
        loss = float("nan") if what == "nan" else loss
        if what == "hang": time.sleep(600)
        if what == "kill": os.kill(os.getpid(), signal.SIGKILL)
        if what == "raise": raise RuntimeError("bad")
        if what == "memory": x = b"x" * 2**30
        if what == "nan" and step > int(at): time.sleep(600)
    print(f"step: {step} loss: {loss} step_time: {0.5 + step / 1000}s", flush=True)
(out / f"train_metrics.{host}.json").write_text(json.dumps({"times": {"step": 0.5}}))
print("Finished", host if what == "hosts" else "")
sys.exit(3 if what == "exit" else 0)
"""


def run_all(world: World, check: int, machine: str = "{}", **trials: str) -> dict[str, CellResult]:
    """The cell of each trial."""
    (world.folder / "code").mkdir(exist_ok=True)
    (world.folder / "code" / "job.py").write_text(JOB)
    (world.folder / "code" / "small.xplane.pb").write_bytes(host_profile([(n, 0.5 + n / 1000) for n in range(2, 6)]))
    common = "kind: training, runtime: r, machine: m, retries: 0"
    written = ", ".join(f"{name}: {{{common}, {trial}}}" for name, trial in trials.items())
    world.suite(
        f"""
        machines: {{m: {machine}}}
        runtimes: {{r: {{interpreter: {sys.executable}, workspace: {{path: code}}}}}}
        trials: {{{written}}}
        """
    )
    world.seatrial("run", "suite.yaml", check=check)
    assert world.left() == []
    return {cell.id.partition("[")[0]: cell for cell in world.results().cells}


def run(world: World, trial: str, check: int, machine: str = "{}") -> CellResult:
    return run_all(world, check, machine, t=trial)["t"]


def found(cell: CellResult) -> dict[str, tuple[str, str]]:
    return {f"{one.step} {one.check}": (str(one.verdict), one.class_) for one in cell.findings}


def test_jobs_that_do_all_they_should_pass(world: World) -> None:
    far = world.folder / "bucket"
    write = 'd="${SEATRIAL_ARTIFACTS#file://}/outputs/0-0"; mkdir -p "$d"; printf 7 > "$d/m.json"\n'
    (world.folder / "code").mkdir()
    (world.folder / "code" / "write.sh").write_text(write)
    curve = world.folder / "good.csv"
    curve.write_text("step,loss\n" + "".join(f"{n},{4.0 / (n + 1)}\n" for n in range(8)))
    cells = run_all(
        world,
        check=0,
        all="""command: 'python job.py && cp small.xplane.pb "$SEATRIAL_FILES"',
           log: {must: Finished, never: Traceback}, loss: {target: 0.5, tolerance: 0}, steps: {count: 8, last: 7},
           files: {metrics: {match: 'train_metrics.*.json', valid: json, size: '>=0.001K'},
                   prof: {match: '*.xplane.pb', valid: xplane, window: [2, 5], agrees: 1%, fresh: false}},
           metrics: {step: {file: '*.json', key: times.step, unit: s, better: lower, max: 0.5},
                     said: {log: 'step_time: ([0-9.]+)s', unit: s}}""",
        hosts="""command: python job.py hosts 0, hosts: 3, log: {must: 'Finished \\d'}, steps: {count: 8},
           loss: {}, files: {m: {match: 'train_metrics.*.json', count: 3}}""",
        curve="command: python job.py, loss: {curve: good.csv, tolerance: 1%}",
        far=f"""command: sh write.sh, artifacts: 'file://{far}',
           files: {{m: {{match: 'outputs/*/m.json', count: 1, valid: json}}}}""",
        dear="command: x, disabled: too dear",
    )
    cell = cells["all"]
    assert {verdict for verdict, _ in found(cell).values()} == {"passed"}
    assert {name: metric["value"] for name, metric in cell.metrics.items() if name in ("loss", "step", "said")} == {
        "loss": 0.5,
        "step": 0.5,
        "said": pytest.approx(0.5045, abs=0.001),
    }
    assert cell.metrics["step_time"]["value"] == pytest.approx(0.5035)
    assert "small.xplane.pb" in cell.metrics["step_time"]["source"]
    kept = world.run().attempt(cell.hash, 1) / "files"
    assert json.loads((kept / "train_metrics.0.json").read_text()) == {"times": {"step": 0.5}}
    # The log and the files of every host count.
    assert set(found(cells["hosts"]).values()) == {("passed", "")}
    assert "[2] Finished 2" in (world.run().attempt(cells["hosts"].hash, 1) / "log.txt").read_text()
    # A recorded curve is compared, and drawn beside the loss.
    drawn = {chart.title: chart for chart in cells["curve"].charts}["Loss by step"]
    assert drawn.columns == ["step", "loss", "recorded"]
    assert [row[0] for row in drawn.rows] == list(range(8))
    assert all(ours == pytest.approx(recorded, rel=0.01) for _, ours, recorded in drawn.rows)
    assert found(cells["curve"])["train loss curve"] == ("passed", "")
    finding = next(one for one in cells["curve"].findings if one.check == "loss")
    assert finding.data["curve"][:2] == [[0, 4.0], [1, 2.0]]
    # Files at an address are judged like those of the job.
    assert found(cells["far"]) == {
        "train exit": ("passed", ""),
        "files m count": ("passed", ""),
        "files m fresh": ("passed", ""),
        "files m valid": ("passed", ""),
    }
    (folder,) = far.iterdir()
    assert folder.name == f"{world.run().run}-{cells['far'].hash}-1"
    # A disabled trial is excluded, with its reason.
    assert [(combination.trial, combination.why) for combination in world.results().excluded] == [("dear", "too dear")]


def test_each_way_to_fail_has_its_class(world: World) -> None:
    (world.folder / "bad.csv").write_text("this is no curve\n")
    # exec: a shell in between would tell of a signal as an exit code
    cells = run_all(
        world,
        check=1,
        exits="command: exec python job.py exit 0",
        killed="command: exec python job.py kill 2",
        raises="command: exec python job.py raise 2",
        nan="command: python job.py nan 3, loss: {}, log: {must: Finished}",
        forbidden="""command: 'touch here.json; echo CUDA error: 700; sleep 600', log: {never: 'CUDA error'},
           files: {f: {match: here.json}}""",
        host="""command: 'test "$SEATRIAL_HOST" = 0 && echo done || exit 5', hosts: 2, log: {must: done}""",
        curve="command: python job.py, loss: {curve: bad.csv, tolerance: 1%}",
        nowhere="""command: echo done, log: {must: done}, artifacts: 'file:///no/such/place',
           files: {m: {match: x}}""",
    )
    verdicts = {name: str(cell.verdict) for name, cell in cells.items()}
    assert verdicts == {**dict.fromkeys(cells, "failed"), "curve": "invalid"}
    for name, class_ in {"exits": "exit", "killed": "signal", "raises": "exit"}.items():
        assert found(cells[name])["train exit"] == ("failed", class_)
    # A loss of nan ends the job at that line.
    assert found(cells["nan"]) == {
        "train exit": ("skipped", ""),
        "train must Finished": ("skipped", ""),
        "train loss": ("failed", "nan"),
    }
    assert "at step 3, line 4" in cells["nan"].why
    assert len((world.run().attempt(cells["nan"].hash, 1) / "log.txt").read_text().splitlines()) < 8
    # A forbidden line ends the job, and what it left is still judged.
    assert found(cells["forbidden"]) == {
        "train exit": ("skipped", ""),
        "train never CUDA error": ("failed", "log"),
        "files f count": ("passed", ""),
        "files f fresh": ("passed", ""),
    }
    # One host that fails fails the job.
    assert found(cells["host"])["train exit"] == ("failed", "exit")
    assert found(cells["host"])["train must done"] == ("failed", "log")
    # A curve that is none is the suite's fault.
    assert found(cells["curve"])["train loss curve"] == ("invalid", "curve")
    # An address without files is the job's fault.
    assert found(cells["nowhere"])["train must done"] == ("passed", "")
    assert found(cells["nowhere"])["files m count"] == ("failed", "files")


def test_a_storage_that_cannot_be_read_is_not_the_jobs_fault_and_does_not_run_it_again(world: World) -> None:
    (world.folder / "taken").write_text("a file where the folder should be")
    common = f"kind: training, retries: 3, artifacts: 'file://{world.folder}/taken/trials'"
    world.suite(f"""
trials:
  files: {{{common}, command: 'echo ran >> {world.folder}/files', files: {{m: {{match: x}}}}}}
  metric: {{{common}, command: 'echo ran >> {world.folder}/metric', metrics: {{m: {{file: '*.json', key: a}}}}}}
  reader: {{{common}, command: 'echo ran >> {world.folder}/reader', read: {{reader: kineto, file: '*.json'}}}}
""")
    world.seatrial("run", "suite.yaml", check=3)
    checks = {"files": "files m count", "metric": "train metric m", "reader": "train read kineto"}
    for cell in world.results().cells:
        assert found(cell) == {"train exit": ("passed", ""), checks[cell.id]: ("infra", "unread")}
        assert "cannot fetch the files of the job: cannot read file://" in cell.why
        assert len(cell.attempts) == 1
        assert (world.folder / cell.id).read_text() == "ran\n"


@pytest.mark.skipif(find_spec("gcsfs") is not None, reason="gcsfs is installed here")
def test_a_storage_without_its_package_is_found_before_anything_runs(world: World) -> None:
    run_once = f"command: 'touch {world.folder}/ran', files: {{m: {{match: x}}}}"
    world.suite(f"""
trials:
  far: {{kind: training, {run_once}, matrix: {{place: ['gs://bucket', 'nowhere://x']}}, artifacts: '${{place}}/trials'}}
  gs: {{kind: training, {run_once}, artifacts: 'gs://other/${{benchmark}}', matrix: {{benchmark: [1]}}}}
  here: {{kind: training, {run_once}}}
""")
    for command in ("plan", "run"):
        told = world.seatrial(command, "suite.yaml", check=2).stderr
        assert "far[place=gs://bucket]: cannot access gs://bucket/trials: Please install gcsfs" in told
        assert f"run `{install_command('gcs')}`" in told
        assert "far[place=nowhere://x]: cannot access nowhere://x/trials: Protocol not known: nowhere" in told
        assert "3 problems" in told
    world.seatrial("plan", "suite.yaml", "--select", "here", check=0)
    world.env["SEATRIAL_OUT"] = "s3://bucket/runs"
    told = world.seatrial("doctor", "suite.yaml", check=3).stdout
    assert "storage (fsspec)\n  problem  gs://other/${benchmark}" in told
    assert "cannot access s3://bucket/runs: " in told
    assert "storage cannot be used; see the fixes above" in told
    assert not (world.folder / "ran").exists()


def test_a_job_that_hangs_is_a_stall_long_before_its_run_limit(world: World) -> None:
    trial = "command: python job.py hang 6, stall: {factor: 10, least: 1s, after: 3}, timeout: {run: 5m}"
    for _ in range(5):
        cell = run(world, trial, 124)
        if "the last was step 5" in cell.why:  # a busy machine may stall it before
            break
    assert found(cell) == {"train stall": ("timeout", "stall"), "train exit": ("skipped", "")}
    assert "the last was step 5" in cell.why


def _memory_groups() -> bool:
    places = ("/sys/fs/cgroup/memory", "/sys/fs/cgroup")
    return os.geteuid() == 0 and any(os.access(f"{place}/cgroup.procs", os.W_OK) for place in places)


@pytest.mark.skipif(not _memory_groups(), reason="needs a memory cgroup that this user may make")
def test_a_job_over_its_machines_memory_is_out_of_memory(world: World) -> None:
    cell = run(world, "command: exec python job.py memory 2", check=1, machine="{memory: 200Mi}")
    assert found(cell)["train exit"] == ("failed", "memory")


def test_silence_and_running_time_have_limits_of_their_own(world: World) -> None:
    cell = run(world, "command: sleep 600, timeout: {stall: 1s}", check=124)
    assert found(cell)["train exit"] == ("timeout", "stall")


def test_a_missing_curve_is_found_before_anything_runs(world: World) -> None:
    world.suite("trials: {t: {kind: training, command: 'true', loss: {curve: none.csv, tolerance: 1%}}}")
    assert "suite.yaml:1:61: file not found: 'none.csv'" in world.seatrial("run", "suite.yaml", check=2).stderr
