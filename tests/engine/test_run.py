"""The engine as users meet it: caps, limits, retries by class, interrupts, cancel, attach, reap."""

import hashlib
import os
import signal
import sqlite3
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from seatrial.job import Verdict
from world import World

PLAIN = """
name: plain
trials:
  t:
    kind: runtime
    facts: false
    {fields}
"""


def suite(world: World, fields: str) -> None:
    world.suite(PLAIN.format(fields=fields.strip().replace("\n", "\n    ")))


def wait_for(what: object, seconds: float = 600) -> None:
    """Until `what()` is true."""
    end = time.monotonic() + seconds
    while not what():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.02)


def log_of(job: Path) -> str:
    log = job / "log.txt"
    return log.read_text() if log.exists() else ""


def test_a_run_is_held_to_its_limit_when_its_supervisor_was_stopped(world: World) -> None:
    stopped = world.folder / "stopped"
    stop = f"kill -STOP $PPID; touch {stopped}; sleep 1404"
    suite(world, f'run: ["{stop}"]\ntimeout: {{run: 2s, grace: 100ms}}\nretries: 0')
    for _ in range(5):  # on a busy machine the limit may be over before the step has come to stop its supervisor
        world.seatrial("run", "suite.yaml", check=124)
        if stopped.exists():
            break
    (cell,) = world.results().cells
    assert cell.verdict is Verdict.TIMEOUT
    (ended,) = [entry for entry in world.journal() if entry["event"] == "stopping"]
    assert "the target did not stop the job" in ended["exit"]["message"]


# Between the first and the second file that it copies to a job, a process writes `copying` and waits for `go`.
WAIT_IN_COPY = """
import os, sys, time
folder, copied = os.path.dirname(__file__), []
def hook(event, args):
    if event == "shutil.copyfile" and "/work/" in str(args[1]):
        copied.append(args[1])
        if len(copied) == 2:
            open(folder + "/copying", "w").close()
            while not os.path.exists(folder + "/go"):
                time.sleep(0.01)
sys.addaudithook(hook)
"""


def test_reap_leaves_a_job_whose_workspace_is_being_copied(world: World) -> None:
    hook, workspace = world.folder / "hook", world.folder / "workspace"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(WAIT_IN_COPY)
    workspace.mkdir()
    for name in "abc":
        (workspace / name).touch()
    world.suite(
        "name: copying\nruntimes: {r: {workspace: {path: workspace}}}\n"
        "trials: {t: {kind: runtime, facts: false, matrix: {runtime: r}, run: ['ls | wc -l']}}"
    )
    run = world.start("run", "suite.yaml", PYTHONPATH=str(hook))
    try:
        wait_for((hook / "copying").exists)
        (job,) = world.jobs()
        assert len(list((job / "work").iterdir())) == 1
        assert "kept: its run is in progress" in world.seatrial("reap").stdout
    finally:
        (hook / "go").touch()
        run.communicate()
    assert run.returncode == 0
    assert "3\n" in log_of(next(world.run().path.glob("cells/*/1")))


def test_every_check_runs_even_if_the_one_before_failed(world: World) -> None:
    suite(world, 'run: ["exit 3", "true", "kill -9 $$", "echo last"]')
    world.seatrial("run", "suite.yaml", check=1)
    (cell,) = world.results().cells
    verdicts = {finding.step: finding.verdict for finding in cell.findings}
    assert verdicts["run exit 3"] is Verdict.FAILED
    assert verdicts["run true"] is Verdict.PASSED
    assert verdicts["run kill -9 $$"] is Verdict.FAILED
    assert verdicts["run echo last"] is Verdict.PASSED
    assert cell.why.startswith("run exit 3")


def test_no_more_cells_run_at_once_than_the_caps_allow(world: World) -> None:
    world.suite(
        """
name: caps
targets: {here: {kind: local, parallel: 3}}
machines: {narrow: {parallel: 1}, wide: {}}
trials:
  t:
    kind: runtime
    facts: false
    matrix: {n: [1, 2, 3, 4], machine: all}
    run:
      - 'echo "+ ${machine}" >> SEEN; until test $(grep -c "+" SEEN) -ge 2; do sleep 0.05; done'
      - 'sleep 0.3; echo "- ${machine}" >> SEEN'
""".replace("SEEN", str(world.folder / "seen"))
    )
    world.seatrial("run", "suite.yaml", check=0)
    most = {"narrow": 0, "wide": 0, "all": 0}
    now = dict(most)
    for line in (world.folder / "seen").read_text().splitlines():
        sign, machine = line.split()
        for key in (machine, "all"):
            now[key] += 1 if sign == "+" else -1
            most[key] = max(most[key], now[key])
    assert most["narrow"] == 1
    assert 2 <= most["all"] <= 3


def test_only_infra_is_retried_and_a_pass_on_retry_is_flaky_with_both_places(world: World) -> None:
    suite(
        world,
        """
matrix: {how: [lost, fails]}
run: ['test "${how} $SEATRIAL_ATTEMPT" != "lost 1" || kill -9 $PPID; test ${how} = lost']
""",
    )
    world.seatrial("run", "suite.yaml", check=1)
    lost, fails = world.results().cells
    assert (lost.verdict, lost.flaky) == (Verdict.PASSED, True)
    assert [attempt.verdict for attempt in lost.attempts] == [Verdict.INFRA, Verdict.PASSED]
    assert all(attempt.place.host for attempt in lost.attempts)
    assert (fails.verdict, fails.flaky, len(fails.attempts)) == (Verdict.FAILED, False, 1)
    assert world.left() == []


def test_a_killed_job_still_tells_all_that_it_did(world: World) -> None:
    suite(world, """run: ["echo early", "exit 4", "kill -9 $PPID", "echo late"]\nretries: 0""")
    world.seatrial("run", "suite.yaml", check=3)
    (cell,) = world.results().cells
    verdicts = {finding.step: str(finding.verdict) for finding in cell.findings}
    assert verdicts["run echo early"] == "passed"
    assert verdicts["run exit 4"] == "failed"
    assert verdicts["run kill -9 $PPID"] == "infra"
    assert verdicts["run echo late"] == "infra"
    assert cell.verdict is Verdict.INFRA


def test_failures_are_retried_when_asked(world: World) -> None:
    suite(world, 'retries: 2\nretry_on: [failed]\nrun: ["test $SEATRIAL_ATTEMPT = 3"]')
    world.seatrial("run", "suite.yaml", check=0)
    (cell,) = world.results().cells
    assert [str(attempt.verdict) for attempt in cell.attempts] == ["failed", "failed", "passed"]
    assert cell.flaky


def test_run_and_stall_limits_are_timeouts_of_their_own(world: World) -> None:
    world.suite("""
name: limits
trials:
  silent: {kind: runtime, facts: false, timeout: {stall: 1s, grace: 1s}, run: ["sleep 600"]}
  busy:
    kind: runtime
    facts: false
    timeout: {run: 1s, stall: 10m, grace: 1s}
    run: ["while true; do echo x; sleep 0.1; done"]
""")
    world.seatrial("run", "suite.yaml", check=124)
    silent, busy = world.results().cells
    assert (silent.verdict, busy.verdict) == (Verdict.TIMEOUT, Verdict.TIMEOUT)
    assert silent.attempts[0].exit.outcome == "stall"
    assert busy.attempts[0].exit.outcome == "timeout"
    assert world.left() == []


def test_after_max_failures_nothing_more_is_started_and_the_rest_is_counted(world: World) -> None:
    suite(world, 'matrix: {n: [1, 2, 3, 4, 5, 6]}\nrun: ["false"]')
    world.seatrial("run", "suite.yaml", "--max-failures", "2", "--parallel", "1", check=1)
    cells = world.results().cells
    assert [str(cell.verdict) for cell in cells] == ["failed"] * 2 + ["skipped"] * 4
    assert "2 cells failed" in cells[-1].why


def test_ctrl_c_cancels_collects_cleans_and_exits_130(world: World) -> None:
    suite(world, 'matrix: {n: [1, 2, 3, 4]}\nrun: ["echo before; sleep 60"]')
    process = world.start("run", "suite.yaml", "--parallel", "2")
    wait_for(lambda: len(world.jobs()) == 2 and all("before" in log_of(job) for job in world.jobs()))
    wait_for(lambda: world.started() == 2)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 130, output
    results = world.results()
    assert results.interrupted
    assert {str(cell.verdict) for cell in results.cells} == {"skipped"}
    log = world.run().attempt(results.cells[0].hash, 1) / "log.txt"
    assert "before" in log.read_text()
    assert world.left() == []


def test_an_interrupted_run_is_recorded_as_interrupted_everywhere(world: World) -> None:
    suite(world, f'matrix: {{n: [1, 2, 3]}}\nrun: ["test ${{n}} = 1 || {{ touch {world.folder}/slow; sleep 60; }}"]')
    process = world.start("run", "suite.yaml", "--parallel", "1")
    wait_for(lambda: (world.folder / "slow").exists() and world.started() == 2)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 130, output
    results = world.results()
    assert (results.verdict, results.exit_code) == ("interrupted", 130)
    assert [str(cell.verdict) for cell in results.cells] == ["passed", "skipped", "skipped"]
    assert [cell.unfinished for cell in results.cells] == [False, True, True]
    assert "interrupted" in world.seatrial("runs", check=0).stdout
    assert "✓ passed" not in output.replace("1 passed", "")
    world.seatrial("report", "last", "--junit", "junit.xml", "--markdown", "report.md", check=0)
    root = ET.parse(world.folder / "junit.xml").getroot()
    assert (root.get("errors"), root.get("failures")) == ("2", "0")
    assert "interrupted" in (world.folder / "report.md").read_text().splitlines()[0]
    rows = sqlite3.connect(world.folder / "runs/history.db").execute("SELECT verdict FROM runs").fetchall()
    assert rows == [("interrupted",)]
    world.seatrial("attach", "last")


def test_what_failed_before_an_interrupt_stays_failed_and_failed_takes_up_all_that_was_not_done(world: World) -> None:
    suite(world, f'matrix: {{n: [1, 2, 3]}}\nrun: ["exit 3", "touch {world.folder}/here${{n}}; sleep 60"]')
    process = world.start("run", "suite.yaml", "--parallel", "1")
    wait_for(lambda: (world.folder / "here1").exists() and world.started())
    process.send_signal(signal.SIGINT)
    told, _ = process.communicate(timeout=600)
    first, second, third = world.results().cells
    assert (first.verdict, second.verdict, third.verdict) == (Verdict.FAILED, Verdict.SKIPPED, Verdict.SKIPPED)
    assert "(then cancelled)" in first.why
    run = world.run().run
    assert f"seatrial run suite.yaml --failed {run}" in told
    suite(world, 'matrix: {n: [1, 2, 3]}\nrun: ["true"]')  # mended: other hashes, the same ids
    selected = world.seatrial("run", "suite.yaml", "--failed", run, "--select", "n=2", check=0)
    assert "any more" not in selected.stderr  # the others are in the suite, and were not selected
    assert list(world.verdicts()) == ["t[n=2]"]
    suite(world, 'matrix: {n: [2, 3]}\nrun: ["true"]')
    fewer = world.seatrial("run", "suite.yaml", "--failed", run, check=0)
    assert f"1 of the 3 cells that did not pass in {run} is no longer in the suite: t[n=1]" in fewer.stderr
    suite(world, 'matrix: {n: [1, 2, 3]}\nrun: ["true"]')
    world.seatrial("run", "suite.yaml", "--failed", run, check=0)
    assert list(world.verdicts()) == ["t[n=1]", "t[n=2]", "t[n=3]"]


def test_a_run_that_would_cost_more_than_it_may_starts_no_further_cell_and_has_not_passed(world: World) -> None:
    world.suite("""
name: cost
machines: {dear: {price: 3600}}
trials:
  t: {kind: runtime, facts: false, matrix: {n: [1, 2, 3], machine: dear}, estimate: 1s, run: ["sleep 3"]}
""")
    refused = world.seatrial("run", "suite.yaml", "--max-cost", "2", check=2)
    assert "may cost up to 3.00 (limit 2.00)" in refused.stderr
    world.seatrial("run", "suite.yaml", "--max-cost", "3", "--parallel", "1", check=1)
    results = world.results()
    assert [str(cell.verdict) for cell in results.cells] == ["passed", "skipped", "skipped"]
    assert "spent, 0.00 reserved" in results.cells[2].why
    assert results.verdict is Verdict.SKIPPED


def test_what_takes_too_long_to_build_counts_as_waiting_for_a_place(world: World) -> None:
    slow = world.folder / "slow-python"
    slow.write_text("#!/bin/sh\nsleep 30\n")
    slow.chmod(0o755)
    world.suite("""
name: queue
runtimes: {slow: {interpreter: ./slow-python}}
trials:
  t: {kind: runtime, runtime: slow, retries: 0, timeout: {queue: 1s}, run: ["true"]}
""")
    world.seatrial("run", "suite.yaml", check=3)
    (cell,) = world.results().cells
    assert cell.attempts[0].exit.outcome == "queue"
    assert "not scheduled within 1 s" in cell.why
    wait_for(lambda: world.left() == [])


def test_a_second_ctrl_c_leaves_at_once_and_attach_goes_on_with_what_was_not_done(world: World) -> None:
    suite(
        world,
        """matrix: {n: [1, 2]}
run: ["test $SEATRIAL_ATTEMPT = 1 -a ${n} = 1 || exit 0; trap '' TERM; echo deaf; until test -e GO; do sleep 0.1; done"]
timeout: {grace: 10m}""".replace("GO", str(world.folder / "go")),
    )
    process = world.start("run", "suite.yaml", "--parallel", "1")
    wait_for(lambda: any("\ndeaf\n" in log_of(job) for job in world.jobs()) and world.started())
    process.send_signal(signal.SIGINT)
    wait_for(lambda: any(entry["event"] == "interrupted" for entry in world.journal()))
    process.send_signal(signal.SIGINT)
    told, _ = process.communicate(timeout=600)
    assert process.returncode == 130
    assert told.endswith(f"left: resume with `seatrial attach {world.run().run}`\n")
    (world.folder / "go").touch()
    world.seatrial("attach", "last", check=0)
    results = world.results()
    assert [cell.verdict for cell in results.cells] == [Verdict.PASSED] * 2
    assert not results.interrupted
    assert not any(cell.flaky for cell in results.cells)
    assert world.left() == []


def test_a_second_ctrl_c_leaves_at_once_and_reap_cleans(world: World) -> None:
    go = world.folder / "go"
    suite(
        world, f"""run: ["trap '' TERM; echo deaf; until test -e {go}; do sleep 0.1; done"]\ntimeout: {{grace: 10m}}"""
    )
    process = world.start("run", "suite.yaml")
    wait_for(lambda: any("\ndeaf\n" in log_of(job) for job in world.jobs()) and world.started())
    process.send_signal(signal.SIGINT)
    wait_for(lambda: any(entry["event"] == "interrupted" for entry in world.journal()))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=600)
    assert process.returncode == 130
    assert world.left()
    go.touch()
    world.seatrial("reap", world.run().run, check=0)
    assert world.left() == []


def test_cancel_stops_a_run_of_another_process(world: World) -> None:
    suite(world, 'run: ["sleep 60"]')
    process = world.start("run", "suite.yaml")
    wait_for(world.jobs)
    world.seatrial("cancel", "last", check=0)
    process.communicate(timeout=600)
    assert process.returncode == 130
    assert world.left() == []


@pytest.mark.parametrize("chance", [1, 2])
def test_cancel_ends_the_jobs_of_a_run_whose_process_was_killed(world: World, chance: int) -> None:
    suite(world, 'matrix: {n: [1, 2, 3]}\nrun: ["sleep 60"]')
    process = world.start("run", "suite.yaml", "--parallel", "2")
    wait_for(lambda: len(world.jobs()) >= chance)  # at the first, the job may be half made
    process.kill()
    process.communicate()
    assert world.left()
    world.seatrial("cancel", "last", check=0)
    assert world.left() == []
    assert {str(cell.verdict) for cell in world.results().cells} == {"skipped"}


def test_a_job_goes_on_without_seatrial_and_attach_finds_its_exit_output_and_files(world: World) -> None:
    go = world.folder / "go"
    rest = 'echo late; echo kept > "$SEATRIAL_FILES/kept.txt"; exit 5'
    suite(world, f"""run: ['echo early; until test -e {go}; do sleep 0.05; done; {rest}']""")
    process = world.start("run", "suite.yaml")
    wait_for(lambda: world.jobs() and (world.jobs()[0] / "log.txt").exists())
    process.kill()
    process.communicate()
    (job,) = world.jobs()
    go.touch()
    wait_for(lambda: (job / "end.json").exists())
    world.seatrial("attach", "last", check=1)
    (cell,) = world.results().cells
    folder = world.run().attempt(cell.hash, 1)
    log = (folder / "log.txt").read_text()
    assert "early" in log
    assert "late" in log
    assert (folder / "files" / "kept.txt").read_text() == "kept\n"
    assert "5" in cell.findings[0].message
    assert world.left() == []


def test_detach_returns_at_once_and_attach_shows_the_end(world: World) -> None:
    suite(world, 'run: ["sleep 1; echo done"]')
    started = world.seatrial("run", "suite.yaml", "--detach", check=0)
    run = started.stdout.strip()
    wait_for(lambda: world.run(run).results.exists())
    wait_for(lambda: not world.processes())
    shown = world.seatrial("attach", run, check=0)
    assert "passed" in shown.stdout


def test_reap_leaves_the_jobs_of_a_living_run_alone(world: World) -> None:
    go = world.folder / "go"
    suite(world, f'run: ["until test -e {go}; do sleep 0.05; done"]')
    process = world.start("run", "suite.yaml")
    wait_for(lambda: list(world.state.glob("jobs/*/*/claim.json")))
    assert "kept: its run is in progress" in world.seatrial("reap", check=0).stdout
    go.touch()
    process.communicate(timeout=600)
    assert process.returncode == 0
    assert "nothing to delete" in world.seatrial("reap", check=0).stdout


def test_failed_runs_only_what_did_not_pass_before(world: World) -> None:
    suite(world, 'matrix: {n: [1, 2, 3]}\nrun: ["test ${n} != 2"]')
    world.seatrial("run", "suite.yaml", check=1)
    world.seatrial("run", "suite.yaml", "--failed", world.run().run, check=1)
    assert list(world.verdicts()) == ["t[n=2]"]


def test_a_failure_is_told_with_the_line_that_runs_it_again(world: World) -> None:
    suite(world, 'matrix: {n: [1, 2]}\nrun: ["echo worse >&2; test ${n} = 1"]')
    told = world.seatrial("run", "suite.yaml", check=1).stdout
    (failed,) = [cell for cell in world.results().cells if cell.verdict is Verdict.FAILED]
    again = f"seatrial run suite.yaml --select /{failed.hash}"
    assert again in told
    assert "worse" in told
    world.seatrial(*again.split()[1:], check=1)
    assert list(world.verdicts()) == ["t[n=2]"]


SECRET = "hunter2-hunter2"
IN_FILE = "swordfish and salt"


def test_secrets_reach_the_job_and_nothing_else(world: World) -> None:
    sums = [hashlib.sha256(f"{value}\n".encode()).hexdigest() for value in (SECRET, IN_FILE)]
    world.suite(f"""
name: secret
secrets: {{FROM_FILE: {{file: key.txt}}}}
trials:
  t:
    kind: runtime
    env: {{TOKEN: {{secret: TOKEN}}, KEY: {{secret: FROM_FILE}}}}
    run:
      - {{command: 'echo "$TOKEN" | sha256sum; echo "$KEY" | sha256sum', matches: '(?s){sums[0]}.*{sums[1]}'}}
      - 'echo "$TOKEN"; printf hunter2; sleep 0.3; printf -- "-hunter2\\n"; env'
      - 'echo "$KEY" > "$SEATRIAL_FILES/kept.txt"; exit 1'
""")
    (world.folder / "key.txt").write_text(f"{IN_FILE}\n")
    told = world.seatrial("run", "suite.yaml", check=1, TOKEN=SECRET)
    assert world.results().cells[0].findings[-3].verdict is Verdict.PASSED
    said = {str(path): path.read_bytes() for path in (world.folder / "runs").rglob("*") if path.is_file()}
    said["the terminal"] = (told.stdout + told.stderr).encode()
    assert [name for name, data in said.items() if SECRET.encode() in data or IN_FILE.encode() in data] == []
    assert any("•••".encode() in data for name, data in said.items() if name.endswith("log.txt"))


def test_secrets_that_cannot_be_had_are_all_named_before_anything_runs(world: World) -> None:
    suite(world, 'env: {A: {secret: NOT_THERE}, B: {secret: SHORT}}\nrun: ["true"]')
    refused = world.seatrial("run", "suite.yaml", check=2, SHORT="abc")
    assert "secret NOT_THERE: environment variable NOT_THERE is not set" in refused.stderr
    assert "secret SHORT: environment variable SHORT has 3 characters" in refused.stderr
    assert world.jobs() == []
    assert list((world.folder / "runs").glob("*")) == []  # no run that `attach` would have to finish


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
def test_a_disk_that_is_really_full_stops_the_run_and_loses_nothing(world: World) -> None:
    runs = world.folder / "runs"
    runs.mkdir()
    assert os.system(f"mount -t tmpfs -o size=256k none {runs}") == 0
    try:
        suite(world, 'matrix: {n: [1, 2, 3]}\nrun: ["head -c 300000 /dev/urandom | base64"]')
        stopped = world.seatrial("run", "suite.yaml", "--parallel", "1", check=3)
        assert "No space left on device" in stopped.stderr
        assert os.system(f"mount -o remount,size=64m {runs}") == 0
        world.seatrial("attach", "last", check=0)
        assert set(world.verdicts().values()) == {"passed"}
        assert world.left() == []
    finally:
        os.system(f"umount {runs}")


def test_a_job_that_somebody_else_ends_is_evicted_and_tried_no_more_often_than_asked(world: World) -> None:
    suite(world, 'run: ["kill -TERM $PPID; sleep 30"]\nretries: 1')
    world.seatrial("run", "suite.yaml", check=3)
    (cell,) = world.results().cells
    assert [str(attempt.exit.outcome) for attempt in cell.attempts] == ["evicted", "evicted"]
    assert cell.verdict is Verdict.INFRA
