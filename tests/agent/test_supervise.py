"""A supervisor tells the truth of its job and leaves nothing of it, whatever the job does."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from supervised import Supervised, Zygote, attempts, until

from seatrial.agent.contain.process import living

ROOT = os.geteuid() == 0
PYTHONS = sorted(Path.home().glob(".pyenv/versions/3.*/bin/python"))


@pytest.fixture
def zygote(agent: Path) -> Iterator[Zygote]:
    """One for each test: some of them kill it."""
    zygote = Zygote(agent)
    yield zygote
    zygote.close()


def test_every_step_runs_whatever_became_of_the_one_before(job: Supervised) -> None:
    end = job.run("exit 3", "kill -9 $$", "no-such-command-here", "echo said; echo err >&2")
    assert (end["outcome"], end["code"]) == ("exited", 3)
    seen = [(record["outcome"], record["code"], record["signal"]) for record in job.records("done")]
    assert seen == [("exited", 3, None), ("signal", None, 9), ("exited", 127, None), ("exited", 0, None)]
    assert job.records("done")[-1]["output"] == "said\nerr\n"
    assert job.records()[0]["event"] == "begin"
    assert job.records()[-1]["event"] == "end"
    assert b"--- [4/4] run echo said; echo err >&2\nsaid\nerr\n" in job.log()


def test_a_second_supervisor_of_the_same_folder_starts_nothing(job: Supervised, tmp_path: Path) -> None:
    job.start(f"echo start >> {tmp_path}/starts; sleep 0.3")
    assert job.zygote.ask(job.request("echo again")) == {"id": 2, "taken": True}
    job.wait()
    assert job.zygote.ask(job.request("echo again")) == {"id": 3, "taken": True}
    assert (tmp_path / "starts").read_text() == "start\n"
    assert b"again" not in job.log()


def test_without_job_json_nothing_is_started(job: Supervised) -> None:
    job.folder.mkdir()
    answer = job.zygote.ask(job.request("true"))
    assert "job.json" in answer["error"]
    assert not (job.folder / "supervisor.json").exists()


def test_a_job_outlives_its_zygote_even_when_that_is_killed(job: Supervised) -> None:
    job.start("sleep 0.5; echo still here")
    job.zygote.process.kill()
    assert job.wait()["outcome"] == "exited"
    assert b"\nstill here\n" in job.log()


def test_who_it_is_and_its_control_groups_are_known_before_the_first_step(job: Supervised) -> None:
    job.start("cat ../supervisor.json > seen.json; sleep 0.1; cat /proc/self/cgroup > groups")
    job.wait()
    seen = json.loads((job.folder / "work/seen.json").read_text())
    assert seen["pid"] == job.pid
    assert seen["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    if ROOT:
        assert "/seatrial-job-" in (job.folder / "work/groups").read_text()
    assert not [path for path in job.cgroups() if path.exists()]


def test_a_shell_that_enters_the_control_groups_itself_runs_the_command_as_it_is(job: Supervised) -> None:
    """Lines keep their numbers, the environment and the working folder are the job's, and functions that a shell may
    inherit under the names of its builtins do not matter."""
    env = {"BASH_FUNC_echo%%": "() { exit 9; }"}
    end = job.run("no-such-command-1\nno-such-command-2", "cat /proc/self/cgroup; pwd >&2", "# nothing", ")", env=env)
    first, second, third, fourth = job.records("done")
    assert re.findall(r"\b(?:line )?([12]): no-such-command-([12])", first["output"]) == [("1", "1"), ("2", "2")]
    assert not ROOT or "/seatrial-job-" in second["output"]
    assert second["output"].splitlines()[-1] == str((job.folder / "work").resolve())
    assert (third["code"], fourth["code"]) == (0, 2)
    assert (end["outcome"], end["left"]) == ("exited", 0)


def test_what_outlives_its_step_is_counted_and_ended_at_the_end(job: Supervised) -> None:
    end = job.run("sleep 1100 & setsid sleep 1101 & echo $! > pid", "kill -0 $(cat pid)")
    assert [record["code"] for record in job.records("done")] == [0, 0]
    assert end["left"] == 2
    with pytest.raises(ProcessLookupError):
        os.kill(int((job.folder / "work/pid").read_text()), 0)


def test_a_child_that_ends_by_itself_a_moment_later_is_not_left_over(job: Supervised) -> None:
    assert any(one.run("sleep 0.03 &")["left"] == 0 for one in attempts(job))


def test_a_daemon_that_ignores_sigterm_is_killed(job: Supervised) -> None:
    script = "import os,signal,time\nif os.fork(): os._exit(0)\nos.setsid()\nparent = os.getpid()\n"
    script += "if os.fork(): os._exit(0)\nwhile os.getppid() == parent: time.sleep(0.01)\n"
    script += "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint(os.getpid(), flush=True)\nopen('up', 'w')\n"
    script += "time.sleep(1000)"
    end = job.run(f'{sys.executable} -c "{script}"; until test -e up; do sleep 0.05; done')
    assert end["left"] == 1
    pid = int(job.records("done")[0]["output"])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_processes_that_run_from_number_to_number_are_caught(job: Supervised) -> None:
    """Each forks and ends at once: whoever is on a list of them has long been somebody else."""
    script = (
        "import os,time\nfor _ in range(3): os.fork()\nwhile True:\n  if os.fork(): os._exit(0)\n  time.sleep(0.001)"
    )
    end = job.run(f'{sys.executable} -S -c "{script}"', "sleep 1000", limits={"run_s": 0.5, "grace_s": 0.1})
    assert end["outcome"] == "timeout"
    assert not [path for path in job.cgroups() if path.exists()]


def test_output_of_a_child_that_stays_goes_on_into_the_log(job: Supervised) -> None:
    late = "(until test -e go; do sleep 0.05; done; echo late; : > said) & true"
    job.run(late, "touch go; until test -e said; do sleep 0.05; done")
    assert b"\nlate\n" in job.log()
    assert "late" not in job.records("done")[0]["output"] + job.records("done")[1]["output"]


def test_a_job_that_deletes_its_work_folder_goes_on(job: Supervised) -> None:
    end = job.run('rm -rf "$PWD"', "pwd; touch here")
    assert end["outcome"] == "exited"
    assert (job.folder / "work/here").exists()


def test_a_job_that_deletes_everything_still_has_records_log_and_end(job: Supervised) -> None:
    end = job.run("echo before", f"rm -rf {job.folder}; echo after")
    assert end["outcome"] == "exited"
    assert [record["event"] for record in job.records()].count("done") == 2
    assert b"\nbefore\n" in job.log()
    assert b"\nafter\n" in job.log()
    assert (job.folder / "supervisor.json").exists()


def test_a_job_that_deletes_everything_is_findable_again_while_it_runs(job: Supervised) -> None:
    gone = job.folder.with_name("gone")
    job.start(f"rm -rf {job.folder}; touch {gone}; sleep 1000")
    until(gone.exists)
    until(lambda: (job.folder / "job.json").exists() and (job.folder / "supervisor.json").exists())
    os.kill(job.pid, signal.SIGTERM)
    assert job.wait()["outcome"] == "cancelled"


def test_a_job_that_puts_a_file_in_the_place_of_its_folder_is_ended(job: Supervised, tmp_path: Path) -> None:
    """Each attempt to put the folder back fails; this must not keep the supervisor from ending all processes."""
    pid = tmp_path / "pid"
    hide = f"mv {job.folder} {tmp_path}/away; : > {job.folder}"
    job.start(f"trap '' TERM; {hide}; echo $$ > {pid}; sleep 1000; sleep 1000", limits={"grace_s": 2.5})
    until(lambda: pid.exists() and pid.read_text())
    until(lambda: not living([int(pid.read_text())]))


def test_binary_garbage_is_unharmed_in_the_log_and_replaced_in_records(job: Supervised, tmp_path: Path) -> None:
    garbage = bytes(range(256)) * 20
    (tmp_path / "garbage").write_bytes(garbage)
    job.run(f"cat {tmp_path}/garbage")
    assert job.log().endswith(garbage)
    assert "\ufffd" in job.records("done")[0]["output"]


def test_hostile_notes_break_nothing(job: Supervised) -> None:
    notes = [
        '{"ok": 1}', "not json", "[1]", '{"x": NaN, "y": 1e999}', '{"s": "\\ud800"}', "[" * 100000, '{"last": true}',
    ]  # fmt: skip
    for number, note in enumerate(notes):
        (job.folder / "work").mkdir(parents=True, exist_ok=True)
        (job.folder / f"work/note{number}").write_text(note)
    job.run(*(f"cat note{number} >&$SEATRIAL_NOTES_FD; echo >&$SEATRIAL_NOTES_FD" for number in range(len(notes))))
    assert [record["data"] for record in job.records("note")] == [
        {"ok": 1}, {"x": None, "y": None}, {"s": "?"}, {"last": True},
    ]  # fmt: skip


def test_a_job_that_kills_its_parent_leaves_no_end_and_its_words_are_there(job: Supervised) -> None:
    said = "until grep -q '^before' ../log.txt; do sleep 0.05; done"
    job.start(f"echo before; echo $$ > ../shell; {said}; kill -9 $PPID; exec sleep 1102")
    until(lambda: not Path(f"/proc/{job.pid}").exists())
    assert not (job.folder / "end.json").exists()
    assert b"\nbefore\n" in job.log()
    shell = int((job.folder / "shell").read_text())
    os.kill(shell, signal.SIGKILL)  # nobody else does without a control group
    until(lambda: not living([shell]))
    for path in job.cgroups():
        if path.exists() and (path / "cgroup.kill").exists():
            (path / "cgroup.kill").write_text("1")
            until(lambda path=path: not (path / "cgroup.procs").read_text())
    for path in job.cgroups():
        if path.exists():
            path.rmdir()


def test_sigterm_to_the_supervisor_cancels(job: Supervised) -> None:
    job.start("echo up; sleep 1000", "echo never")
    until(lambda: b"\nup\n" in job.log())
    os.kill(job.pid, signal.SIGTERM)
    end = job.wait()
    assert end["outcome"] == "cancelled"
    assert [record["outcome"] for record in job.records("done")] == ["cancelled"]
    assert b"never" not in job.log().replace(b"echo never", b"")


def test_a_stopped_job_is_cancelled_too(job: Supervised) -> None:
    job.start("echo up; kill -STOP $$; sleep 1000")
    until(lambda: b"\nup\n" in job.log())
    os.kill(job.pid, signal.SIGTERM)
    assert job.wait()["outcome"] == "cancelled"


@pytest.mark.skipif(not ROOT, reason="needs root: to be another user, and to fill a disk of its own")
class TestAsRoot:
    def test_a_job_of_an_ordinary_user_may_take_all_rights_away(self, agent: Path, tmp_path: Path) -> None:
        python = "/usr/bin/python3"
        if not os.access(python, os.X_OK):
            pytest.skip("there is no /usr/bin/python3 for another user to run")
        open_to_all = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
        try:
            open_to_all.chmod(0o755)
            shutil.copy(agent, open_to_all / "agent.pyz")
            folder = open_to_all / "job"
            for name in ("", "work", "files"):
                (folder / name).mkdir()
            (folder / "job.json").write_text("{}")
            for path in (folder, *folder.iterdir()):
                os.chown(path, 65534, 65534)
            zygote = Zygote(open_to_all / "agent.pyz", python, user=65534)
            job = Supervised(zygote, folder)
            zygote.ask(job.request("echo before; sleep 1103 & setsid sleep 1104 & chmod 000 .. ../* .", "echo after"))
            end = job.wait()
            zygote.close()
            assert end["outcome"] == "exited"
            assert end["left"] == 2
            assert b"\nbefore\n" in job.log()
            assert job.cgroups() == []
        finally:
            shutil.rmtree(open_to_all)

    def test_a_full_disk_ends_the_job_as_infra_and_says_so(self, zygote: Zygote, tmp_path: Path) -> None:
        disk = tmp_path / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", disk], check=True)
        try:
            job = Supervised(zygote, disk / "job")
            end = job.run("cat /dev/zero > fill; seq 1 5000", "echo never")
            assert end["outcome"] == "infra"
            assert "No space left on device" in end["message"]
        finally:
            subprocess.run(["umount", "-l", disk], check=True)

    def test_a_log_that_does_not_fit_is_counted_and_the_steps_go_on(self, zygote: Zygote, tmp_path: Path) -> None:
        disk = tmp_path / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", disk], check=True)
        try:
            job = Supervised(zygote, disk / "job")
            # More than its pipe holds: when all of it is written, most has been read, more than could be kept.
            fill = "head -c 400000 /dev/zero > fill; head -c 3000000 /dev/zero | tr '\\0' x; rm fill"
            end = job.run(fill, "echo after")
            assert end["outcome"] == "exited"
            assert "the log is incomplete" in end["message"]
            assert end["log_omitted_bytes"] > 100000
            assert [record["code"] for record in job.records("done")] == [0, 0]
            assert job.records("done")[1]["output"] == "after\n"
        finally:
            subprocess.run(["umount", "-l", disk], check=True)


@pytest.mark.skipif(not PYTHONS, reason="there are no other Pythons below ~/.pyenv")
@pytest.mark.parametrize("python", PYTHONS or [Path(sys.executable)], ids=lambda path: path.parts[-3])
def test_the_agent_runs_with_every_python_from_3_8(agent: Path, tmp_path: Path, python: Path) -> None:
    version = tuple(map(int, python.parts[-3].split(".")))
    if version < (3, 8):
        pytest.skip("older than what the agent promises")
    zygote = Zygote(agent, str(python))
    job = Supervised(zygote, tmp_path / "job")
    end = job.run("echo hello; sleep 0.2", "exit 4", secrets=["hello"])
    zygote.close()
    assert (end["outcome"], end["code"]) == ("exited", 4)
    assert job.records("done")[0]["output"] == "•••\n"
    folders = {"out": str(tmp_path), "work": str(tmp_path), "files": "f"}
    spec = {"version": 1, "steps": job.request("echo inside")["steps"], "folders": folders}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    done = subprocess.run([python, agent, "run", tmp_path / "spec.json"], capture_output=True, check=True)
    assert done.stdout == b"--- [1/1] run echo inside\ninside\n"
    assert done.stderr == b""
    last = json.loads((tmp_path / "records.jsonl").read_bytes().splitlines()[-1])
    assert (last["event"], last["outcome"]) == ("done", "exited")
    ending = json.loads((tmp_path / "ending.json").read_bytes())  # the end is recorded from outside of the container
    assert ending == {"outcome": "exited", "code": 0, "message": "", "left": 0}
    (tmp_path / "records.jsonl").unlink()
    kinds = {"import": {"module": "json"}, "which": {"command": "sh"}, "facts": {}}
    spec["steps"] = [{"name": kind, "kind": kind, "args": args, "timeout_s": 60} for kind, args in kinds.items()]
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    path = f"{python.parent}:{os.environ['PATH']}"
    subprocess.run([python, agent, "run", tmp_path / "spec.json"], check=True, env={"PATH": path}, capture_output=True)
    records = [json.loads(line) for line in (tmp_path / "records.jsonl").read_bytes().splitlines()]
    imported, command, facts = (record["result"] for record in records if record["event"] == "done")
    assert imported["state"] == "imported"
    assert command["path"].endswith("/sh")
    assert facts["python"]["terminal"]["version"].startswith(python.parts[-3])
