"""A run on a cluster that several machines reach: who works on it is known there, others are refused until that one is
lost, and what it left is found from anywhere."""

import json
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_world import SHARED, ClusterWorld, cluster_world, until, waiting
from far_world import another_machine

from cluster.cluster import Cluster
from cluster.fixtures import real_cluster
from targets.kubernetes.on_cluster import namespace_of
from world import World

__all__ = ["real_cluster"]
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800), another_machine]


ONCE = f"""
  once:
    kind: runtime
    facts: false
    matrix: {{machine: one, runtime: python}}
    run: ["echo once >> {SHARED}/ran"]
"""


@pytest.fixture
def far(world: World, real_cluster: Cluster) -> Iterator[ClusterWorld]:
    with namespace_of(real_cluster) as namespace:
        made = cluster_world(world, real_cluster, namespace)
        made.trials(waiting("[1, 2]"))
        yield made


def killed(far: ClusterWorld) -> None:
    with far.begun(2):
        pass


def test_another_machine_follows_logs_of_a_run_and_takes_nothing_over(far: ClusterWorld) -> None:
    with far.begun(2):
        copy = far.carried()
        shown = far.elsewhere("logs", str(copy), "--runs", "carried")
        assert shown.returncode == 0, shown.stdout + shown.stderr
        names = {line.partition(" | ")[0] for line in shown.stdout.splitlines()}
        assert len(names) == 2, shown.stdout
        refused = far.elsewhere("attach", str(copy), "--runs", "carried")
        assert "is owned by process" in refused.stderr
    far.forgotten()
    far.go()
    followed = far.seatrial("logs", "last", "-f", check=0).stdout
    assert all(f"out of {number}\n" in followed for number in (1, 2)), followed
    far.seatrial("attach", "last", check=0)
    far.gone()


def test_a_run_is_refused_while_its_first_machine_works_on_it_and_taken_up_when_that_is_lost(
    far: ClusterWorld,
) -> None:
    with far.begun(2):
        copy = far.carried()
        refused = far.elsewhere("attach", str(copy), "--runs", "carried")
        assert refused.returncode == 3, refused.stdout + refused.stderr
        assert "is owned by process" in refused.stderr
        assert f"on {socket.gethostname()}" in refused.stderr
        refused = far.elsewhere("cancel", str(copy), "--runs", "carried")
        assert refused.returncode == 3, refused.stdout + refused.stderr
        left = far.elsewhere("reap", "--target", far.on_target)
        assert left.stdout.count("kept: its run is in progress") == 2, left.stdout + left.stderr
    just_lost = far.elsewhere("attach", str(copy), "--runs", "carried")
    assert just_lost.returncode == 3, just_lost.stdout + just_lost.stderr
    far.forgotten()
    far.go()
    done = far.elsewhere("attach", str(copy), "--runs", "carried")
    assert done.returncode == 0, done.stdout + done.stderr
    assert far.ran() == {"1": 1, "2": 1}
    logs = "".join(path.read_text() for path in copy.glob("cells/*/1/log.txt"))
    assert all(f"out of {number}\n" in logs for number in (1, 2))
    far.gone()


def test_a_run_whose_machine_is_lost_is_cancelled_from_another(far: ClusterWorld) -> None:
    killed(far)
    copy = far.carried()
    far.forgotten()
    done = far.elsewhere("cancel", str(copy), "--runs", "carried")
    assert done.returncode == 0, done.stdout + done.stderr
    far.gone()
    assert far.ran() == {"1": 1, "2": 1}


def test_a_machine_that_slept_while_another_took_its_run_over_stops_and_disturbs_nothing(far: ClusterWorld) -> None:
    with far.begun(2) as process:
        copy = far.carried()
        process.send_signal(signal.SIGSTOP)
        far.annotate(holder='{"host":"elsewhere","boot":"","pid":7}', renewed=f"{time.time() + 600:.0f}")
        process.send_signal(signal.SIGCONT)
        output = process.communicate(timeout=600)[0]
    assert process.returncode == 3, output
    assert "is owned by process 7 on elsewhere" in output
    assert len(far.kubectl("get", "pods", "-o", "name").split()) == 2
    far.forgotten()
    far.go()
    done = far.elsewhere("attach", str(copy), "--runs", "carried")
    assert done.returncode == 0, done.stdout + done.stderr
    assert far.ran() == {"1": 1, "2": 1}
    far.gone()


def test_reap_from_another_machine_removes_a_run_by_its_label_once_its_heartbeat_is_old(far: ClusterWorld) -> None:
    killed(far)
    left = far.elsewhere("reap", "--target", far.on_target)
    assert left.returncode == 0
    assert left.stdout.count("kept: its run is in progress") == 2, left.stdout + left.stderr
    assert len(far.kubectl("get", "pods", "-o", "name").split()) == 2
    far.forgotten()
    left = far.elsewhere("reap", "--target", far.on_target)
    assert left.stdout.count("kept: still running on a machine that may be asleep") == 2, left.stdout + left.stderr
    assert len(far.kubectl("get", "pods", "-o", "name").split()) == 2
    output = far.elsewhere("reap", "--target", far.on_target, "--running", "--dry-run")
    assert output.stdout.count(": would delete\n") == 2, output.stdout + output.stderr
    removed = far.elsewhere("reap", "--target", far.on_target, "--running")
    assert removed.returncode == 0, removed.stdout + removed.stderr
    assert removed.stdout.count(": deleted\n") == 2
    # What holds the run together goes with its last job.
    assert far.elsewhere("reap", "--target", far.on_target).stdout == "nothing to delete\n"
    far.gone()


def test_a_job_that_another_machine_reaped_is_never_run_again_as_the_same_attempt(
    far: ClusterWorld, tmp_path: Path
) -> None:
    far.trials(ONCE)
    log = tmp_path / "points"
    far.seatrial("run", "suite.yaml", check=0, SEATRIAL_FAILPOINT_LOG=str(log))
    points = [line.split(" ", 1)[1] for line in log.read_text().splitlines()]
    far.seatrial("run", "suite.yaml", SEATRIAL_FAILPOINT=str(points.index("submit done") + 1))
    until(lambda: len(far.lines()) == 2)
    far.forgotten()
    runs = far.folder / "runs"
    runs.rename(far.folder / "runs-of-another-machine")
    assert ": deleted\n" in far.elsewhere("reap", "--target", far.on_target, "--running").stdout
    assert far.elsewhere("reap", "--target", far.on_target).stdout == "nothing to delete\n"
    (far.folder / "runs-of-another-machine").rename(runs)
    far.seatrial("attach", "last", check=0)
    (cell,) = far.results().cells
    assert [str(one.verdict) for one in cell.attempts] == ["infra", "passed"]
    assert "deleted by `seatrial reap`" in cell.attempts[0].why
    assert len(far.lines()) == 3
    (tombstone,) = json.loads(far.kubectl("get", "jobs", "-o", "json"))["items"]
    assert tombstone["spec"]["ttlSecondsAfterFinished"] == 3 * 24 * 3600


def test_reap_leaves_what_runs_whatever_its_clock_its_process_numbers_or_a_sleep_of_the_submitter_say(
    far: ClusterWorld,
) -> None:
    with far.begun(2) as process:
        ahead = far.elsewhere("reap", "--target", far.on_target, ahead_s=3600)
        assert ahead.stdout.count("kept: its run is in progress") == 2, ahead.stdout + ahead.stderr
        inside = far.elsewhere("reap", "--target", far.on_target, host=socket.gethostname(), container=True)
        assert inside.stdout.count("kept: its run is in progress") == 2, inside.stdout + inside.stderr
        process.send_signal(signal.SIGSTOP)
        far.forgotten()
        asleep = far.elsewhere("reap", "--target", far.on_target)
        assert asleep.stdout.count("kept: still running on a machine that may be asleep") == 2, asleep.stdout
        process.send_signal(signal.SIGCONT)
        far.go()
        output = process.communicate(timeout=600)[0]
        assert process.returncode == 0, output
    assert far.ran() == {"1": 1, "2": 1}
    far.gone()


def test_reap_of_the_machine_whose_process_was_killed_need_not_wait_for_the_heartbeat(far: ClusterWorld) -> None:
    killed(far)
    removed = far.seatrial("reap", "--target", far.on_target, check=0)
    assert removed.stdout.count(": deleted\n") == 2
    assert far.seatrial("reap", "--target", far.on_target, check=0).stdout == "nothing to delete\n"
    far.gone()


def test_a_run_goes_on_while_another_of_its_namespace_is_lost_and_reaped(far: ClusterWorld) -> None:
    with far.begun(2):
        lost = far.run().run
    far.forgotten()
    (far.shared / "ran").unlink()
    with far.begun(2):
        mine = far.run().run
        assert mine != lost
        removed = far.elsewhere("reap", "--target", far.on_target, "--running")
        assert removed.returncode == 0, removed.stdout + removed.stderr
        assert removed.stdout.count("kept: its run is in progress") == 2
        gone = [line for line in removed.stdout.splitlines() if line.endswith(": deleted")]
        assert gone
        assert all(lost in line for line in gone)
        until(lambda: not far.kubectl("get", "jobs,configmaps,pods", "-l", f"seatrial/run={lost}", "-o", "name"))
        assert len(far.kubectl("get", "pods", "-l", f"seatrial/run={mine}", "-o", "name").split()) == 2
        far.go()
        until(lambda: far.run().read_results() is not None)
    assert set(far.verdicts(mine).values()) == {"passed"}
    assert far.ran() == {"1": 1, "2": 1}


def test_two_people_in_one_namespace_do_not_disturb_each_other(far: ClusterWorld, tmp_path: Path) -> None:
    far.become("first")
    (tmp_path / "other").mkdir()
    other = cluster_world(World(tmp_path / "other", far.env), far.cluster, far.namespace)
    other.become("second")
    other.trials(waiting("[1, 2]"))
    with far.begun(2) as mine, other.begun(2) as theirs:
        reaped = other.elsewhere("reap", "--target", other.on_target)
        assert reaped.stdout.count("kept: its run is in progress") == 4, reaped.stdout + reaped.stderr
        far.seatrial("cancel", "last", check=0)
        assert mine.wait() == 130
        until(lambda: not far.kubectl("get", "jobs,pods", "-l", f"seatrial/run={far.run().run}", "-o", "name"))
        assert theirs.poll() is None
        other.go()
        output = theirs.communicate()[0]
        assert theirs.returncode == 0, output
    assert set(other.verdicts().values()) == {"passed"}
    far.gone()


def test_a_live_job_whose_annotation_is_damaged_is_infra_with_its_reason_and_the_others_go_on(
    far: ClusterWorld,
) -> None:
    killed(far)
    roots = far.kubectl("get", "jobs", "-l", "seatrial/part=job", "-o", "name").split()
    far.kubectl("annotate", "--overwrite", roots[0], 'seatrial/job-data={"name":')
    far.go()
    attached = far.seatrial("attach", "last")
    assert attached.returncode == 0, attached.stdout
    undisturbed, tried_again = sorted(far.results().cells, key=lambda cell: len(cell.attempts))
    assert [one.verdict for one in undisturbed.attempts] == ["passed"]
    assert [one.verdict for one in tried_again.attempts] == ["infra", "passed"]
    assert "no valid job description" in tried_again.attempts[0].why
    assert tried_again.flaky
    far.gone()
