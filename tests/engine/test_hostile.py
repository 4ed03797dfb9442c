"""Jobs, suites and run folders that do their worst: a cell's harm stays its own, and what is wrong is told."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from report.html_page import pieces
from seatrial.job import Verdict
from world import World

HOSTILE = """
name: hostile
{top}
trials:
  bad: {{kind: runtime, facts: false, {fields}}}
  good: {{kind: runtime, facts: false, run: ["echo fine"]}}
"""


def verdicts(world: World, fields: str, top: str = "", check: int = 0, **env: str) -> dict[str, Verdict]:
    world.suite(HOSTILE.format(fields=fields, top=top))
    world.seatrial("run", "suite.yaml", check=check, **env)
    assert world.left() == []
    return {cell.id: cell.verdict for cell in world.results().cells}


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + 200
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_kept_file_whose_name_is_not_utf_8_is_kept_under_its_numbers(world: World) -> None:
    found = verdicts(world, r"""run: ["touch \"$SEATRIAL_FILES/$(printf 'bad\\377name.txt')\""]""")
    assert found == {"bad": Verdict.PASSED, "good": Verdict.PASSED}
    page = pieces((world.run().path / "report.html").read_text())
    assert r"bad\xffname.txt</a>" in page
    assert "files/bad%FFname.txt" in page


def test_what_a_job_made_is_no_page_of_the_report_and_what_quotes_its_log_is_its_owners(world: World) -> None:
    keep = "cd $SEATRIAL_FILES; echo words | tee plain.txt drawing.svg page.html page nb.html; mkdir notebooks"
    verdicts(world, f'run: ["{keep}; cp page.html notebooks/own.html; echo {{}} > notebooks/kept.ipynb"]')
    page = pieces((world.run().path / "report.html").read_text())
    for name, linked in {
        "plain.txt": True, "notebooks/kept.html": True, "notebooks/own.html": False,
        "drawing.svg": False, "page.html": False, "page": False, "nb.html": False,
    }.items():  # fmt: skip
        assert f">{name}</{'a' if linked else 'span'}>" in page, name
    ours = [path for path in world.run().path.rglob("*") if path.is_file() and "files" not in path.parts]
    assert {(path.name, oct(path.stat().st_mode & 0o077)) for path in ours} - {("lock", "0o44")} == {
        (path.name, "0o0") for path in ours if path.name != "lock"
    }


def test_a_hard_link_to_a_file_of_somebody_else_is_not_kept(world: World) -> None:
    precious = world.folder / "precious"
    precious.write_text("still here")
    precious.chmod(0o400)
    links = f"ln {precious} $SEATRIAL_FILES/outside; echo own > inside; ln inside $SEATRIAL_FILES/first; "
    verdicts(world, f'run: ["{links} ln inside $SEATRIAL_FILES/second"]')
    kept = {path.name for path in world.run().path.glob("cells/*/1/files/*")}
    assert kept == {"first", "second"}
    assert precious.stat().st_nlink == 1
    assert precious.stat().st_mode & 0o777 == 0o400


@pytest.mark.parametrize("name", ["supervisor.json", "job.json", "records.jsonl"])
def test_one_bad_byte_that_a_job_writes_into_its_own_files_harms_nobody_else(world: World, name: str) -> None:
    found = verdicts(world, f"""run: ["LC_ALL=C sed -i 's/\\"host\\": *\\"/&\\\\xff/' ../{name}"]""", check=0)
    assert found["good"] is Verdict.PASSED


def test_one_bad_folder_of_a_job_stops_neither_attach_nor_cancel_nor_reap(world: World) -> None:
    world.suite(HOSTILE.format(top="", fields='run: ["sleep 60"]'))
    started = world.start("run", "suite.yaml")

    def sleeping() -> list[Path]:
        found = []
        for path in world.state.glob("jobs/*/*/supervisor.json"):
            with contextlib.suppress(FileNotFoundError):  # that of the other, which is over
                if b"sleep 60" in (path.parent / "job.json").read_bytes():
                    found.append(path.parent)
        return found

    until(sleeping)
    started.kill()
    started.communicate()
    (folder,) = sleeping()
    for name in ("job.json", "supervisor.json"):  # where they lie: its supervisor puts them back as they were
        with open(folder / name, "r+b") as file:
            file.write(b'{"\xff')
    assert "Traceback" not in world.seatrial("cancel", "last").stderr
    assert {cell.id: cell.verdict for cell in world.results().cells}["good"] in (Verdict.PASSED, Verdict.SKIPPED)
    assert "Traceback" not in world.seatrial("attach", "last").stderr
    world.seatrial("reap", check=0)
    assert world.left() == []


def test_folders_in_folders_without_end_harm_nobody_else(world: World) -> None:
    deep = 'python3 -c \'import os\\nfor i in range(2000):\\n  os.mkdir(\\"d\\"); os.chdir(\\"d\\")\''
    fields = f'env: {{T: {{secret: TOKEN}}}}, run: ["{deep}", "cd $SEATRIAL_FILES; {deep}"]'
    found = verdicts(world, fields, check=3, TOKEN="hunter2hunter2")
    assert found["good"] is Verdict.PASSED
    assert found["bad"] is Verdict.INFRA


@pytest.mark.parametrize("folder", [".", "$SEATRIAL_FILES", "$HOME"])
def test_folders_that_a_job_shut_are_removed_and_change_no_verdict(world: World, folder: str) -> None:
    shut = "mkdir -p a/b/c d e/f g; touch a/b/c/x a/y e/f/z; chmod 0 a/b/c/x a/b/c a/b a d e/f e g"
    assert verdicts(world, f'run: ["cd {folder}; {shut}"]') == {"bad": Verdict.PASSED, "good": Verdict.PASSED}
    assert [entry for entry in world.journal() if entry["event"] == "left"] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount")
def test_removing_a_job_does_not_reach_through_what_it_mounted(world: World) -> None:
    precious = world.folder / "precious"
    precious.mkdir()
    (precious / "file").write_text("still here")
    verdicts(world, f'run: ["mkdir m && mount --bind {precious} m && ls m"]')
    assert (precious / "file").read_text() == "still here"
    assert str(world.folder / "state") not in Path("/proc/self/mountinfo").read_text()


def test_nothing_is_written_through_links_that_a_job_made(world: World) -> None:
    victim = world.folder / "victim"
    victim.write_text("innocent")
    names = "a.masked b log.txt.1"
    links = "; ".join(f"ln -sf {victim} $SEATRIAL_FILES/{name}" for name in names.split())
    verdicts(
        world,
        f'env: {{T: {{secret: TOKEN}}}}, run: ["{links}; echo $T > $SEATRIAL_FILES/a; '
        f'rm -f ../log.txt; ln -s {victim} ../log.txt; sleep 1.5; echo x"]',
        TOKEN="hunter2hunter2",
    )
    assert victim.read_text() == "innocent"


def test_secrets_are_masked_in_every_line_form_and_name(world: World) -> None:
    world.suite(
        HOSTILE.format(
            top="secrets: {PEM: {file: pem}}",
            fields='env: {T: {secret: PEM}}, run: ["echo \\"$T\\" | tail -n 1; '
            'printf %s \\"$T\\" | base64 -w0; printf %s \\"$T\\" | tail -n 1 > $SEATRIAL_FILES/kept; '
            'touch $SEATRIAL_FILES/name-$(printf %s \\"$T\\" | tail -n 1)"]',
        )
    )
    (world.folder / "pem").write_text("first line of it\nsecond-line-of-it\n")
    world.seatrial("run", "suite.yaml", check=0)
    leaks = [
        str(path)
        for path in (world.folder / "runs").rglob("*")
        if "second-line-of-it" in str(path) or (path.is_file() and b"second-line-of-it" in path.read_bytes())
    ]
    assert leaks == []
    assert not any(b"Zmlyc3QgbGluZSBvZiBpdA" in path.read_bytes() for path in (world.folder / "runs").rglob("log.txt"))


@pytest.mark.parametrize("then", ["true", "kill -9 $PPID; sleep 9"], ids=["in order", "without its supervisor"])
def test_no_secret_is_kept_however_the_job_ended(world: World, then: str) -> None:
    keep = "cd $SEATRIAL_FILES; mkdir in-$T shut; echo its $T > in-$T/name-$T; echo $T > shut/file; chmod 0 shut"
    world.suite(HOSTILE.format(top="", fields=f'retries: 0, env: {{T: {{secret: TOKEN}}}}, run: ["{keep}; {then}"]'))
    world.seatrial("run", "suite.yaml", TOKEN="hunter2hunter2")
    found = [path for path in (world.folder / "runs").rglob("*") if path.is_file()]
    assert [path for path in found if "hunter2" in str(path) or b"hunter2" in path.read_bytes()] == []
    assert len([path for path in found if "files/" in str(path) and path.read_text().endswith("•••\n")]) == 2


def test_what_a_job_puts_into_its_folder_neither_hangs_nor_breaks_anything(world: World) -> None:
    odd = "touch ../log.txt.²; mkfifo ../log.txt.1; rm -f ../supervisor.json; mkfifo ../supervisor.json; echo x"
    found = verdicts(world, f'run: ["{odd}"]', check=0)
    assert found["good"] is Verdict.PASSED


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a+)+\\\\s$"], ids=["line by line", "over lines"])
def test_a_pattern_that_never_ends_is_the_suites_fault_and_stops_nobody(world: World, pattern: str) -> None:
    fields = f'run: [{{command: "echo {"a" * 44}b", matches: "{pattern}"}}]'
    assert verdicts(world, fields, check=1) == {"bad": Verdict.INVALID, "good": Verdict.PASSED}


LIES = """
import json, os, signal
with open("../records.jsonl", "a") as records:
    for at_s in (-1e300, 1e300):
        records.write(json.dumps({"event": "step", "step": 0, "at_s": at_s}) + "\\n")
        records.write(json.dumps({"event": "end", "at_s": at_s, "outcome": "exited"}) + "\\n")
with open("../end.json.lie", "w") as end:
    json.dump({"outcome": "exited", "code": 0, "wall_s": 1e300}, end)
os.rename("../end.json.lie", "../end.json")
os.kill(int(os.environ["SUPERVISOR"]), signal.SIGKILL)
"""


def test_absurd_times_of_a_job_are_not_believed(world: World) -> None:
    (world.folder / "lies.py").write_text(LIES)
    world.suite(HOSTILE.format(top="", fields=f'run: ["SUPERVISOR=$PPID python3 {world.folder}/lies.py"]'))
    world.seatrial("run", "suite.yaml")
    cells = world.results().cells
    assert [cell.id for cell in cells] == ["bad", "good"]
    for attempt in (attempt for cell in cells for attempt in cell.attempts):
        assert 0 <= (attempt.seconds or 0) < 1e6
        assert {stage.stage for stage in attempt.stages} >= {"started", "finished"}
        assert all(1e9 < stage.wall_s < 1e10 for stage in attempt.stages)
    steps = [step for path in world.run().path.glob("cells/*/1/observation.json") for step in observed(path)]
    assert all(0 <= step["started_s"] < 1e6 for step in steps)


def observed(path: Path) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = json.loads(path.read_text())["steps"]
    return steps


def test_an_import_that_crashes_python_when_it_ends_has_not_passed(world: World) -> None:
    (world.folder / "late").mkdir()
    crash = "import atexit, os, signal\natexit.register(lambda: os.kill(os.getpid(), signal.SIGSEGV))\n"
    (world.folder / "late" / "crashes_late.py").write_text(crash)
    top = "runtimes: {r: {workspace: {path: late}, env: {PYTHONPATH: .}}}"
    found = verdicts(world, "runtime: r, imports: [crashes_late]", top, check=1)
    assert found["bad[runtime=r]"] is Verdict.FAILED


@pytest.mark.parametrize("name", ["results.json", "observation.json"])
def test_attach_makes_again_what_was_damaged_in_a_run_folder(world: World, name: str) -> None:
    verdicts(world, 'run: ["true"]')
    for path in world.run().path.rglob(name):
        path.write_bytes(path.read_bytes()[:50])
    world.run().results.unlink(missing_ok=True)
    world.seatrial("attach", "last", check=0)
    cells = world.results().cells
    assert [cell.verdict for cell in cells] == [Verdict.PASSED] * 2
    # Of a lost observation nothing is known: that attempt was infrastructure's fault, and the next one is flaky.
    assert [cell.flaky for cell in cells] == [name == "observation.json"] * 2


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"cells": [', b'{"cells": "\xff"}'])
def test_a_damaged_plan_is_told_by_every_command(world: World, content: bytes) -> None:
    verdicts(world, 'run: ["true"]')
    run = world.run().run
    world.run().plan.write_bytes(content)
    (world.folder / "runs" / run / "results.json").unlink()
    for command in ("attach", "cancel", "report"):
        told = world.seatrial(command, run, check=3)
        assert "plan.json is damaged" in told.stderr
        assert "Traceback" not in told.stderr


def test_a_run_folder_that_is_deleted_while_the_run_goes_on_is_told(world: World) -> None:
    world.suite(HOSTILE.format(top="", fields=f'run: ["rm -rf {world.folder}/runs/*"]'))
    told = world.seatrial("run", "suite.yaml", check=3)
    assert "deleted" in told.stderr or "No such file" in told.stderr
    assert "no results are lost" not in told.stderr
    assert "the run folder and its results are gone" in told.stderr


def test_cancel_reaches_a_run_that_was_stopped(world: World) -> None:
    world.suite(HOSTILE.format(top="", fields='run: ["sleep 60"]'))
    process = world.start("run", "suite.yaml")
    until(world.jobs)
    process.send_signal(signal.SIGSTOP)
    world.seatrial("cancel", "last", check=0)
    process.communicate(timeout=600)
    assert world.left() == []


@pytest.mark.parametrize(
    ("args", "words", "code"),
    [
        (["run", "suite.yaml", "--runs", "/dev/null/x"], "/dev/null/x", 3),
        (["report", "x" * 5000], "run not found", 2),
        (["run", "suite.yaml", "--max-cost", "nan"], "nan", 2),
        (["plan", "a\nb"], "cannot read the file", 2),
    ],
)
def test_odd_arguments_are_told_in_a_line(world: World, args: list[str], words: str, code: int) -> None:
    world.suite(HOSTILE.format(top="", fields='run: ["true"]'))
    told = world.seatrial(*args, check=code)
    assert words in told.stderr
    assert "Traceback" not in told.stderr
    assert "a\nb" not in told.stderr  # a path with a line break


def test_secrets_from_pipes_devices_and_binary_files_are_refused_without_a_byte_of_them(world: World) -> None:
    os.mkfifo(world.folder / "pipe")
    (world.folder / "binary").write_bytes(b"\xd0\xff" * 10)
    for name, words in (("pipe", "not a regular file"), ("/dev/zero", "not a regular file"), ("binary", "not UTF-8")):
        top = f"secrets: {{S: {{file: {name}}}}}"
        world.suite(HOSTILE.format(top=top, fields='env: {T: {secret: S}}, run: ["true"]'))
        told = world.seatrial("run", "suite.yaml", check=2)
        assert words in told.stderr
        assert "0xd0" not in told.stderr


def test_an_interrupt_before_the_engine_is_there_also_ends_with_130(world: World) -> None:
    world.suite(HOSTILE.format(top="", fields='run: ["sleep 1000"]'))
    for library in ("msgspec", "pydantic_core", "yaml"):  # each is loaded while the command's modules are
        process = world.start("run", "suite.yaml")
        until(lambda process=process, library=library: has_mapped(process.pid, library))
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=600)
        assert process.returncode in (130, -signal.SIGINT), output


def has_mapped(pid: int, library: str) -> bool:
    """Reading says nothing of a process that has ended and was not waited for."""
    maps = Path(f"/proc/{pid}/maps").read_text()
    return library in maps or not maps


def test_a_watching_process_that_goes_away_does_not_matter(world: World) -> None:
    world.suite(HOSTILE.format(top="", fields='run: ["sleep 0.5"]'))
    process = world.start("run", "suite.yaml")
    assert process.stdout
    process.stdout.close()
    assert process.wait(timeout=600) in (0, 1, 120)
    assert world.results().verdict is Verdict.PASSED
