"""The Python API, as a program uses it: in this process, with and without a loop, in the main thread and in others."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import seatrial
from seatrial.record import find_run, read_journal
from world import World

SUITE = """\
name: small
trials:
  says:
    kind: runtime
    facts: false
    matrix: {n: [one, two]}
    run: ["test ${n} = one || { echo boom; exit 3; }"]
"""
SLOW = """\
name: slow
trials:
  waits:
    kind: runtime
    facts: false
    matrix: {n: [one, two, three]}
    run: ["echo x >> FOLDER/${n}; sleep 60"]
"""


class Heard:
    """A listener that keeps all it is told, and the thread that it was told in."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, str, str]] = []
        self.threads: set[int] = set()

    def update(self, cell: str, state: str, progress: str = "") -> None:
        self.changes.append((cell, state, progress))
        self.threads.add(threading.get_ident())

    @property
    def verdicts(self) -> dict[str, str]:
        return {cell: state for cell, state, _ in self.changes if cell}


@pytest.fixture
def here(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """The world of a test is that of this process, too."""
    for name in set(os.environ) - set(world.env):
        monkeypatch.delenv(name)
    for name, value in world.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(world.folder)
    return world


def until(true: Callable[[], bool]) -> None:
    while not true():
        time.sleep(0.05)


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in signal.valid_signals()]


async def test_a_suite_is_loaded_planned_run_and_read(here: World, capfd: pytest.CaptureFixture[str]) -> None:
    suite = seatrial.load(here.suite(SUITE))
    plan = seatrial.plan(suite)
    assert [cell.axes for cell in plan.cells] == [{"n": "one"}, {"n": "two"}]
    heard, before = Heard(), handlers()
    results = await seatrial.run(plan, listener=heard)
    assert {cell.axes["n"]: cell.verdict for cell in results.cells} == {
        "one": seatrial.Verdict.PASSED,
        "two": seatrial.Verdict.FAILED,
    }
    assert results.exit_code == 1
    assert heard.verdicts == {cell.id: cell.verdict for cell in results.cells}
    assert heard.threads == {threading.get_ident()}
    assert seatrial.read_results(results.run) == seatrial.read_results("last") == results
    folder = find_run(Path("runs"), "last").path
    assert {"report.html", "junit.xml", "results.json"} <= {path.name for path in folder.iterdir()}
    assert handlers() == before, "a library leaves signals alone"
    assert capfd.readouterr() == ("", ""), "a library prints nothing"
    assert not here.left()


def test_the_history_of_a_run_gives_the_next_plan_its_estimates_and_changes(here: World) -> None:
    suite = seatrial.load(here.suite(SUITE))
    first = seatrial.run_blocking(seatrial.plan(suite))
    again = seatrial.plan(suite, failed=first)
    assert [cell.axes["n"] for cell in again.cells] == ["two"]
    assert again.excluded[-1].why == f"passed in {first.run}"
    results = seatrial.run_blocking(again, against=first)
    assert results.against == first.run
    assert seatrial.plan(suite).cells[0].estimate_s is not None


def test_a_thread_runs_a_plan_while_others_do_as_they_like(here: World) -> None:
    plan = seatrial.plan(seatrial.load(here.suite(SUITE)), select=["n=one"])
    found: list[seatrial.RunResults] = []
    threads = [threading.Thread(target=lambda: found.append(seatrial.run_blocking(plan))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.verdict for one in found] == [seatrial.Verdict.PASSED] * 2
    assert found[0].run != found[1].run
    assert not here.left()


def test_a_request_from_another_thread_cancels_a_run(here: World) -> None:
    here.suite(SLOW.replace("FOLDER", str(here.folder)))
    cancel, heard = seatrial.Cancellation(), Heard()

    def request() -> None:
        until(lambda: (here.folder / "one").exists() and here.started() > 0)
        cancel.request()
        cancel.request()

    thread = threading.Thread(target=request)
    thread.start()
    results = seatrial.run_blocking(
        seatrial.plan(seatrial.load("suite.yaml")), parallel=1, listener=heard, cancel=cancel
    )
    thread.join()
    assert results.interrupted
    assert "not started: interrupted" in {cell.why for cell in results.cells}
    assert [change for change in heard.changes if not change[0]] == [("", "interrupted", "stopping jobs")]
    assert not here.left()


def test_what_is_cancelled_before_it_begins_starts_nothing(here: World) -> None:
    cancel = seatrial.Cancellation()
    cancel.request()
    results = seatrial.run_blocking(seatrial.plan(seatrial.load(here.suite(SUITE))), cancel=cancel)
    assert results.interrupted
    assert {cell.why for cell in results.cells} == {"not started: cancelled"}


async def test_a_run_whose_task_is_cancelled_goes_on_and_is_taken_up(here: World) -> None:
    text = SUITE.replace("test ${n}", f"echo x >> {here.folder}/began; sleep 2; test ${{n}}")
    task = asyncio.create_task(seatrial.run(seatrial.plan(seatrial.load(here.suite(text)), select=["n=one"])))
    await asyncio.to_thread(until, lambda: (here.folder / "began").exists() and here.started() > 0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(seatrial.ResultsError, match="no results yet"):
        seatrial.read_results("last")
    results = await seatrial.attach("last")
    assert results.verdict == seatrial.Verdict.PASSED
    assert (here.folder / "began").read_text() == "x\n", "nothing is done twice"
    assert await seatrial.attach(results.run) == results, "a finished run gives its results"
    assert not here.left()


def test_a_run_of_another_process_is_left_alone(here: World) -> None:
    here.suite(SLOW.replace("FOLDER", str(here.folder)))
    process = here.start("run", "suite.yaml", "--select", "n=one")
    try:
        until((here.folder / "one").exists)
        with pytest.raises(seatrial.RunOwned, match=f"process {process.pid}"):
            seatrial.attach_blocking("last")
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate()


def test_every_error_is_of_one_family_and_says_what_to_do(here: World) -> None:
    here.suite(SUITE)
    with pytest.raises(seatrial.SuiteError, match=r"bad.yaml:3:3: `kind` is missing"):
        seatrial.load(here.suite(SUITE.replace("kind:", "kin:"), "bad.yaml"))
    suite = seatrial.load("suite.yaml")
    with pytest.raises(seatrial.PlanError, match="matches nothing"):
        seatrial.plan(suite, select=["n=three"])
    priced = seatrial.load(here.suite(f"{SUITE}max_cost: 1\n", "priced.yaml"))
    assert priced.max_cost == 1
    with pytest.raises(seatrial.UnknownRun, match="run not found: 'nothing'"):
        seatrial.read_results("nothing")
    with pytest.raises(seatrial.HistoryError, match="neither a file nor"):
        seatrial.run_blocking(seatrial.plan(suite), history="ftp://somewhere")
    secret = SUITE.replace("    facts: false", "    facts: false\n    env: {TOKEN: {secret: TOKEN_OF_NOBODY}}")
    with pytest.raises(seatrial.RunRefused, match="TOKEN_OF_NOBODY"):
        seatrial.run_blocking(seatrial.plan(seatrial.load(here.suite(secret, "secret.yaml"))))
    with pytest.raises(seatrial.SeatrialError, match="nothing to run"):
        seatrial.run_blocking(seatrial.plan(suite)._replace(plan=seatrial.plan(suite).plan.of([])))
    for name in ("SuiteError", "PlanError", "UnknownRun", "ResultsError", "RunOwned", "RunRefused", "RunStopped"):
        assert issubclass(getattr(seatrial, name), seatrial.SeatrialError)


def test_a_damaged_journal_is_a_damaged_run(here: World) -> None:
    seatrial.run_blocking(seatrial.plan(seatrial.load(here.suite(SUITE)), select=["n=one"]))
    folder = find_run(Path("runs"), "last")
    assert read_journal(folder.journal)[0]
    folder.journal.write_bytes(b"nonsense\n" + folder.journal.read_bytes())
    with pytest.raises(seatrial.DamagedRun, match=r"journal.jsonl"):
        seatrial.attach_blocking("last")


def test_import_seatrial_imports_no_more_than_itself_and_plan_stays_the_function() -> None:
    code = """
import sys, seatrial
ours = sorted(name for name in sys.modules if name.startswith("seatrial"))
assert ours == ["seatrial"], ours
import seatrial.plan
from seatrial.plan import Plan
assert seatrial.plan.__module__ == "seatrial.api", seatrial.plan
assert sorted(set(seatrial.__all__) - set(dir(seatrial))) == []
for name in seatrial.__all__:
    assert getattr(seatrial, name) is not None
    assert name == "__version__" or getattr(seatrial, name).__doc__, name
try:
    seatrial.nothing
except AttributeError as error:
    assert str(error) == "module 'seatrial' has no attribute 'nothing'"
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
