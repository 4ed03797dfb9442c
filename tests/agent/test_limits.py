"""A job is held to its limits, and what ended it is told apart."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from supervised import Supervised, Zygote, attempts, until

ROOT = os.geteuid() == 0
EAT = "b = bytearray(%d << 20)\nfor n in range(0, len(b), 4096): b[n] = 1\nimport time; time.sleep(%s); print('ate')"


def eat(mebibytes: int, python: str = sys.executable, rest_s: float = 0) -> str:
    return f'{python} -S -c "{EAT % (mebibytes, rest_s)}"'


def outcomes(job: Supervised) -> list[str]:
    return [record["outcome"] for record in job.records("done")]


def test_a_step_over_its_time_is_ended_and_the_next_runs(job: Supervised) -> None:
    slow = "sleep 1200 & setsid sleep 1201; sleep 1202"
    end = job.run(slow, "echo next", timeouts_s={slow: 0.3})
    assert end["outcome"] == "exited"
    assert end["left"] == 0
    assert outcomes(job) == ["timeout", "exited"]


@pytest.mark.skipif(not ROOT, reason="needs root to make control groups")
def test_the_processes_of_a_job_are_limited_and_those_of_its_next_step_too(job: Supervised) -> None:
    own = "cat $(sed -n 's/^[0-9]*:pids:/\\/sys\\/fs\\/cgroup\\/pids/p' /proc/self/cgroup | head -n 1)/pids.max"
    slow = "trap '' TERM; sleep 1205; sleep 1206"
    job.run(own, slow, own, timeouts_s={slow: 0.5}, limits={"grace_s": 0.1})
    first, _, last = (record["output"].strip() for record in job.records("done"))
    if not Path("/sys/fs/cgroup/pids").exists():
        pytest.skip("there is no group that counts processes here")
    assert 1024 <= int(first) < int(Path("/proc/sys/kernel/threads-max").read_text())
    assert last == first


def test_what_an_earlier_step_left_running_on_purpose_survives_a_later_step_that_is_ended(job: Supervised) -> None:
    end = job.run("sleep 1203 & echo $! > pid", "sleep 1204", "kill -0 $(cat pid)", timeouts_s={"sleep 1204": 0.3})
    assert outcomes(job) == ["exited", "timeout", "exited"]
    assert [record["code"] for record in job.records("done")][::2] == [0, 0]
    assert end["left"] == 1


def test_a_step_that_ignores_the_polite_end_is_ended_anyway(job: Supervised) -> None:
    job.start("trap '' TERM; echo deaf; while :; do sleep 0.05; done", limits={"grace_s": 0.2})
    until(lambda: b"\ndeaf\n" in job.log())
    job.stop()
    assert [(record["outcome"], record["signal"]) for record in job.records("done")] == [("cancelled", 9)]


def test_the_run_limit_ends_the_whole_job(job: Supervised) -> None:
    end = job.run("sleep 0.2", "sleep 1000", "echo never", limits={"run_s": 0.6, "grace_s": 0.2})
    assert end["outcome"] == "timeout"
    assert "0.6 s" in end["message"]
    assert outcomes(job) in (["exited", "timeout"], ["timeout"])  # the second where the machine is busy


def test_a_limit_that_passes_while_leftovers_are_ended_is_not_the_steps_fault(job: Supervised) -> None:
    stubborn = "(trap '' TERM; while :; do sleep 0.05; done) & true"
    ends = (one.run(stubborn, limits={"run_s": 1.0, "stall_s": 1.0, "grace_s": 1.5}) for one in attempts(job))
    assert any((end["outcome"], end["left"] > 0) == ("exited", True) for end in ends)


def test_silence_is_a_stall(job: Supervised) -> None:
    end = job.run("echo one; sleep 1000", limits={"stall_s": 0.4, "grace_s": 0.2})
    assert end["outcome"] == "stall"
    assert outcomes(job) == ["stall"]


def test_words_and_notes_keep_a_stall_away(job: Supervised) -> None:
    chatty = "for n in 1 2 3 4 5 6 7; do sleep 0.1; echo x; done"
    noting = "for n in 1 2 3 4 5 6 7; do sleep 0.1; echo '{}' >&3; done"
    assert any(one.run(chatty, noting, limits={"stall_s": 0.5})["outcome"] == "exited" for one in attempts(job))


def test_a_job_gets_its_cpus(job: Supervised) -> None:
    cpu = max(os.sched_getaffinity(0))
    job.run("grep Cpus_allowed_list /proc/self/status", cpus=[cpu])
    assert job.records("done")[0]["output"].split() == ["Cpus_allowed_list:", str(cpu)]


@pytest.mark.skipif(not ROOT, reason="needs root: a control group")
def test_out_of_memory_is_seen_where_the_kernel_limits_it(job: Supervised) -> None:
    steps = (eat(200), "echo next", eat(8), f"{eat(200)} || true", f"{eat(200)} & wait; exit 5")
    job.run(*steps, memory_bytes=64 << 20)
    assert outcomes(job) == ["memory", "exited", "exited", "exited", "memory"]
    assert [record["oom_kills"] for record in job.records("done")] == [1, 0, 0, 1, 1]
    assert job.records("done")[2]["output"] == "ate\n"


@pytest.mark.skipif(not ROOT, reason="needs root: a control group")
def test_the_supervisor_itself_is_not_in_the_limited_group(job: Supervised) -> None:
    job.start("cat /proc/$PPID/cgroup", memory_bytes=64 << 20)
    job.wait()
    assert "seatrial-" not in job.records("done")[0]["output"]


@pytest.mark.skipif(not ROOT, reason="needs root: to be a user who may not make control groups")
class TestWithoutControlGroups:
    @pytest.fixture
    def job(self, agent: Path) -> Iterator[Supervised]:
        if not os.access("/usr/bin/python3", os.X_OK):
            pytest.skip("there is no /usr/bin/python3 for another user to run")
        open_to_all = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
        open_to_all.chmod(0o777)
        shutil.copy(agent, open_to_all / "agent.pyz")
        zygote = Zygote(open_to_all / "agent.pyz", "/usr/bin/python3", user=65534)
        folder = open_to_all / "job"
        for name in ("", "work", "files"):
            (folder / name).mkdir()
            os.chown(folder / name, 65534, 65534)
        yield Supervised(zygote, folder)
        zygote.close()
        shutil.rmtree(open_to_all)

    def test_out_of_memory_is_seen_and_told(self, job: Supervised) -> None:
        job.run(eat(90, "/usr/bin/python3", rest_s=1000), "echo next; cat ../oom", memory_bytes=64 << 20)
        assert job.cgroups() == []
        assert outcomes(job) == ["memory", "exited"]
        assert job.records("done")[0]["oom_kills"] == 1
        assert job.records("done")[1]["output"] == "next\noom_kill 1\n"

    def test_much_too_much_at_once_is_not_given(self, job: Supervised) -> None:
        job.run(eat(4000, "/usr/bin/python3"), memory_bytes=64 << 20)
        assert "MemoryError" in job.records("done")[0]["output"]

    def test_daemons_are_found_and_ended(self, job: Supervised) -> None:
        daemon = "(setsid sh -c 'trap \"\" TERM; sleep 1205 & : > up; wait' &)"
        end = job.run(f"{daemon}; until test -e up; do sleep 0.05; done", limits={"grace_s": 0.2})
        assert end["left"] == 2

    def test_processes_that_run_from_number_to_number_are_caught(self, job: Supervised) -> None:
        script = "import os,time\nwhile True:\n  if os.fork(): os._exit(0)\n  time.sleep(0.001)"
        end = job.run(f'/usr/bin/python3 -S -c "{script}"', "sleep 1000", limits={"run_s": 0.5, "grace_s": 0.1})
        assert end["outcome"] == "timeout"
