"""What a cell shows, raises, allows and survives: errors that the kernel does not reply with, and what comes after."""

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest
from driven import StepRunner

from seatrial.targets.agent_file import agent_file

# Each shows a traceback, and the kernel replies that all is well.
SHOWN = {
    "a script": (
        "open('bad.py', 'w').write('def f():\\n    raise ValueError(\"of a file\")\\nf()\\n')\n%run bad.py",
        "ValueError: of a file",
    ),
    "a captured cell": ("%%capture\nraise KeyError('captured')", "KeyError: 'captured'"),
    # This is how matplotlib draws: after the cell.
    "a metric": (
        "def draw():\n    raise RuntimeError('no such font')\nget_ipython().events.register('post_execute', draw)",
        "RuntimeError: no such font",
    ),
    "a table": (
        "class Table:\n    def _repr_html_(self):\n        raise ValueError('no columns')\nTable()",
        "ValueError: no columns",
    ),
    "a widget": (
        "from ipywidgets import Output\nwith Output():\n    raise ValueError('in a widget')",
        "ValueError: in a widget",
    ),
    "a control": (
        "from ipywidgets import interact\n@interact(x=3)\ndef f(x):\n    raise ValueError('for %d' % x)",
        "ValueError: for 3",
    ),
}


@pytest.fixture
def runner(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> StepRunner:
    return StepRunner(tmp_path, agent_file(tmp_path_factory.getbasetemp() / "agent", compiled=True))


def test_an_error_that_is_shown_counts_even_if_the_kernel_replies_ok(runner: StepRunner) -> None:
    tagged = {"source": SHOWN["a captured cell"][0], "metadata": {"tags": ["raises-exception"]}}
    driven = runner.cells(*(source for source, _ in SHOWN.values()), tagged, keep_going=True)
    *cells, must_raise = driven.cells()
    assert must_raise["state"] == "passed"
    for cell, (source, error) in zip(cells, SHOWN.values(), strict=True):
        assert (cell["state"], cell["class"]) == ("failed", "error"), source
        assert cell["error"] == error
        assert error.split(":")[1] in cell["traceback"]
    assert driven.passes["fresh"]["message"] == "cell 1: ValueError: of a file"


def test_a_notebook_that_keeps_going_runs_and_judges_every_cell(runner: StepRunner) -> None:
    cells = ["1/0", "print('two')", "!exit 3", "raise MemoryError", "exit()", "print('never')"]
    driven = runner.cells(*cells, keep_going=True, passes=["fresh", "rerun"])
    for name in ("fresh", "rerun"):
        assert [(cell["state"], cell["class"]) for cell in driven.cells(name)] == [
            ("failed", "error"),
            ("passed", ""),
            ("failed", "shell"),
            ("failed", "memory"),
            ("failed", "dead"),
            ("skipped", ""),
        ]
        assert driven.cells(name)[-1]["message"] == "not run: the kernel stopped in cell 5"
        assert driven.passes[name]["message"].startswith("cell 1: ZeroDivisionError")
    assert "in a new kernel" in driven.passes["rerun"]["message"]


def test_it_goes_on_after_a_cell_over_its_limit_but_not_over_that_of_the_pass(runner: StepRunner) -> None:
    endless = "import time\nwhile True: time.sleep(0.01)"
    for limit in ("cell_timeout_s", "timeout_s"):
        for _ in range(5):
            driven = runner.cells(endless, "print('on')", keep_going=True, **{limit: 0.3})
            if "was killed" not in driven.cells()[0]["message"]:  # a busy machine may not heed the interrupt in time
                break
        assert driven.cells()[0]["class"] == "timeout"
        if limit == "cell_timeout_s":  # it is for the next one, too, and a busy machine may not keep it
            assert driven.cells()[1]["state"] != "skipped"
    assert [cell["state"] for cell in driven.cells()] == ["failed", "skipped"]
    assert driven.cells()[1]["message"] == "not run: the pass timed out in cell 1"


RAISING = (
    "import asyncio, threading, time\ndef fail(): raise ValueError('of a thread')\n"
    "async def lose(): raise KeyError('lost')"
)
DEFAULT_HOOK = "threading.excepthook = threading.__excepthook__"
STARTED = "thread = threading.Thread(target=fail, name='worker'); thread.start()"


def test_an_exception_in_a_thread_or_a_task_fails_its_cell(runner: StepRunner) -> None:
    allowed = {"source": f"{STARTED}; thread.join()", "metadata": {"tags": ["raises-exception"]}}
    driven = runner.cells(
        RAISING,
        f"{STARTED}; thread.join()",
        allowed,
        "asyncio.create_task(lose()); import gc\nawait asyncio.sleep(0.01); gc.collect()",
        "awaited = asyncio.create_task(lose()); await asyncio.sleep(0.01)",
        "try: await awaited\nexcept KeyError: pass",
        "def leave(): raise SystemExit(3)\nquiet = threading.Thread(target=leave); quiet.start(); quiet.join()",
        f"{DEFAULT_HOOK}\n{STARTED}; thread.join()",  # the notebook has hooks of its own
        keep_going=True,
    )
    assert [cell["state"] for cell in driven.cells()] == [
        "passed", "failed", "passed", "failed", "passed", "passed", "passed", "failed",
    ]  # fmt: skip
    errors = [cell["error"] for cell in driven.cells()]
    assert errors[1:4] == [
        "ValueError: of a thread (in thread worker)",
        "ValueError: of a thread (in thread worker)",
        "KeyError: 'lost' (in an asyncio task or callback)",
    ]
    assert errors[-1] == "ValueError: of a thread (Exception in thread worker)"
    assert "in fail" in driven.cells()[1]["traceback"]


@pytest.mark.parametrize(
    ("last", "error"),
    [
        ("kept = asyncio.create_task(lose())", "KeyError: 'lost' (in asyncio task"),
        (
            "go = threading.Event()\ndef late():\n    go.wait(); time.sleep(0.05); fail()\n"
            "threading.Thread(target=late).start()",
            "ValueError: of a thread (in",
        ),
    ],
)
def test_what_fails_after_the_last_cell_is_seen_and_can_be_ignored(runner: StepRunner, last: str, error: str) -> None:
    end = "'go' in globals() and go.set()"
    driven = runner.cells(RAISING, last, end, {"source": "1/0", "metadata": {"tags": ["skip"]}})
    assert driven.passes["fresh"]["message"].startswith(f"cell 3: {error}")
    driven = runner.cells(RAISING, last, end, background_errors=False)
    assert driven.passes["fresh"]["state"] == "passed"


def test_exit_is_reported_at_its_own_cell(runner: StepRunner) -> None:
    for source in ("exit()", "quit"):
        driven = runner.cells("exit(keep_kernel=True)", source, "print('after')")
        assert [cell["state"] for cell in driven.cells()] == ["passed", "failed", "skipped"]
        assert driven.cells()[1]["class"] == "dead"
        assert driven.passes["fresh"]["message"] == "cell 2: exit() stopped the kernel; later notebook cells cannot run"


def test_what_a_notebook_says_of_its_own_execution_is_heeded(runner: StepRunner) -> None:
    endless = "import time\nwhile True: time.sleep(0.01)"
    driven = runner.cells(endless, metadata={"execution": {"timeout": 0.3}})
    assert "timed out after 0.3 s (cell limit)" in driven.passes["fresh"]["message"]
    driven = runner.cells("import time\ntime.sleep(0.6)", metadata={"execution": {"timeout": 0.3}}, cell_timeout_s=60)
    assert driven.passes["fresh"]["state"] == "passed"  # the suite's own limit goes first
    driven = runner.cells("1", metadata={"execution": {"timeout": "soon"}})
    assert driven.passes["fresh"]["class"] == "broken"
    assert "invalid `metadata.execution.timeout` in the notebook: 'soon'" in driven.output


def test_errors_that_the_notebook_allows_are_counted_and_a_dead_kernel_is_not_allowed(runner: StepRunner) -> None:
    allowing = {"execution": {"allow_errors": True}}
    driven = runner.cells("1/0", "!exit 3", "print('on')", metadata=allowing)
    seen = driven.passes["fresh"]
    assert (seen["state"], seen["message"]) == ("passed", "2 cells raised, as the notebook allows (`allow_errors`)")
    assert [cell["error"] for cell in driven.cells()] == [
        "ZeroDivisionError: division by zero",
        "`exit 3` failed with exit code 3",
        "",
    ]
    assert runner.cells("exit()", metadata=allowing).passes["fresh"]["class"] == "dead"


def test_a_process_killed_for_memory_fails_a_cell_that_did_not_notice(runner: StepRunner, tmp_path: Path) -> None:
    """The counter of the memory group, as data: the cell raises it and goes on."""
    runner.oom_file = tmp_path / "memory.oom_control"
    runner.oom_file.write_text("oom_kill 3\n")
    driven = runner.cells(f"open({str(runner.oom_file)!r}, 'w').write('oom_kill 4\\n')")
    seen = driven.passes["fresh"]
    assert seen["class"] == "memory"
    assert seen["message"].startswith("cell 1: a process of this notebook cell was killed (out of memory)")


def test_the_cells_of_the_gradient_example_each_have_their_verdict(runner: StepRunner, tmp_path: Path) -> None:
    """In a Python that has some of the modules: an absent one fails in its own cell, and hides no other."""
    (tmp_path / "work").mkdir()
    example = Path(__file__).parents[2] / "examples" / "gradient" / "run_testing.ipynb"
    shutil.copy(example, tmp_path / "work")
    runner.env = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    cells = runner.do("notebook", path=example.name, keep_going=True, parameters={"runtime": "rapids"}).cells()
    assert [cell["state"] for cell in cells[:4]] == ["passed"] * 4  # Python is the terminal's, GPUs are counted
    imports = {cell["source"].split()[1]: cell for cell in cells if cell["source"].startswith("import ")}
    for module in set(imports) - {"os", "torch", "torchaudio", "tensorflow"}:
        found = importlib.util.find_spec(module) is not None
        assert imports[module]["state"] == ("passed" if found else "failed"), module
    assert "numpy" in imports
    assert cells[-1]["state"] == "passed"  # gradient is not asked of a partner's image
