"""What is seen while a run goes on, on a real terminal and without one."""

import contextlib
import io
import os
import pty
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sample

from seatrial.report.terminal.lines import paint
from seatrial.report.terminal.live import REDRAWS_PER_SECOND, Board
from seatrial.report.terminal.plain import Plain
from seatrial.report.view.words import width

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import sample
from seatrial.report.terminal.live import live_view
run = sample.small()
with live_view(run.cells, run.excluded) as watch:
    for cell in run.cells:
        watch.update(cell.id, "starting")
        watch.update(cell.id, "running", "import numpy")
        watch.update(cell.id, cell.verdict.value, "because of \\x1b[2J this")
    watch.update("", "interrupted", "once more to leave at once")
print("rich" in sys.modules, file=sys.stderr)
"""


def run_program(*, stdout: int) -> "subprocess.CompletedProcess[bytes]":
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(Path(sample.__file__).parent)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        env=environment | {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30", "PYTHONUTF8": "1"},
        check=False,
    )


def test_without_a_terminal_each_finished_cell_is_a_line_and_rich_is_not_imported() -> None:
    done = run_program(stdout=subprocess.PIPE)
    lines = done.stdout.decode().splitlines()
    assert done.stderr == b"False\n"
    assert len(lines) == 10
    assert lines[0].startswith("[1/9] passed generic[runtime=base,machine=small] ")
    assert lines[1].startswith("[2/9] failed generic[runtime=base,machine=large] ")
    assert re.search(r" \d\S* m?s: because of this$", lines[1])
    assert lines[9] == "interrupted: once more to leave at once"


def test_without_a_terminal_each_reason_for_waiting_is_told_once_whatever_its_numbers() -> None:
    out = io.StringIO()
    cells = sample.green(3).cells
    first, second, third = (cell.id for cell in cells)
    plain = Plain(cells, out)
    for number, cell in enumerate((first, second, third)):
        plain.update(cell, "waiting", f"waiting: 0/{number + 5} nodes are available")
        plain.update(cell, "running", "run true")
    plain.update(third, "waiting", "cannot pull image")
    lines = out.getvalue().splitlines()
    assert lines == [
        f"[0/3] waiting {first}: 0/5 nodes are available",
        f"[0/3] waiting {third}: cannot pull image",
    ]


def test_without_a_terminal_silence_is_broken_by_how_far_the_run_is() -> None:
    run = sample.green(3)
    first, second, third = (cell.id for cell in run.cells)
    own, theirs = os.pipe()
    with os.fdopen(theirs, "w", encoding="utf-8") as out, os.fdopen(own, encoding="utf-8") as read:
        plain = Plain(run.cells, out, {second: 3600.0, third: 3600.0}, silence_s=0.01)
        plain.update(first, "passed")
        plain.update(second, "running", "run train")
        with plain.shown():
            assert read.readline().startswith("[1/3] passed")
            line = read.readline()
    expected = r"\[1/3\] \d+ s, 1 running, about 2\.0 h left: " + re.escape(second) + r" run train \(\d+ s\)"
    assert re.match(expected, line)


def test_on_a_terminal_it_says_why_cells_failed_and_how_long_the_rest_will_take() -> None:
    run = sample.green(12)
    ids = [cell.id for cell in run.cells]
    board = Board(run.cells, (), dict.fromkeys(ids, 1800.0))
    for number, cell in enumerate(ids[:7]):
        board.update(cell, "running", "x")
        board.update(cell, "failed", f"import torch: reason {'abcdefg'[number]}")
    board.update(ids[7], "running", "x")
    board.update(ids[7], "failed", "import torch: reason g")
    board.update(ids[8], "running", "y")
    text = paint(board.lines(100, 30))
    assert f"✗ 2 × import torch: reason g  e.g. {ids[7]}" in text
    assert [f"reason {letter}" in text for letter in "abcdef"] == [*[True] * 4, False, False]
    assert "… and 2 more reasons" in text
    assert re.search(r"8/12 done  \d+ s  about 2\.0 h left", text)


def test_what_is_read_again_changes_nothing() -> None:
    """A live file that was written anew begins with what was seen already."""
    run = sample.green(2)
    out = io.StringIO()
    plain = Plain(run.cells, out)
    for _ in range(2):
        plain.update(run.cells[0].id, "running", "x", at_s=100.0)
        plain.update(run.cells[0].id, "passed", at_s=103.0)
    assert out.getvalue() == f"[1/2] passed {run.cells[0].id} 3.0 s\n"


def test_on_a_terminal_what_a_cell_waited_for_is_not_shown_any_more_when_it_runs() -> None:
    run = sample.small()
    board = Board(run.cells, run.excluded)
    cell = run.cells[0].id
    board.update(cell, "waiting", "cannot pull image")
    assert "cannot pull image" in paint(board.lines(100, 30), False, False)
    board.update(cell, "running")
    assert "cannot pull image" not in paint(board.lines(100, 30), False, False)


def test_on_a_terminal_the_matrix_is_drawn_and_taken_away_again() -> None:
    own, theirs = pty.openpty()
    with ThreadPoolExecutor(1) as beside:
        reading = beside.submit(_read_all, own)  # a terminal takes only so much that nobody reads
        done = run_program(stdout=theirs)
        os.close(theirs)
        text = reading.result().decode()
    os.close(own)
    assert done.stderr == b"True\n"
    assert "tensorflow" in text
    assert "9/9 done" in text
    assert "interrupted: once more to leave at once" in text
    assert text.rstrip().endswith("\x1b[2K")  # nothing of it is left for the summary to stand under
    assert "\x1b[?25h" in text  # and the cursor is back


def _read_all(terminal: int) -> bytes:
    seen = b""
    with contextlib.suppress(OSError):  # nobody has it open any more
        while part := os.read(terminal, 65536):
            seen += part
    return seen


def test_nobody_who_reads_any_more_does_not_stop_the_run() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = run_program(stdout=writing)
    os.close(writing)
    assert b"False" in done.stderr
    assert b"Traceback" not in done.stderr


def test_it_is_drawn_no_more_than_twice_a_second_however_much_changes(tmp_path: Path) -> None:
    run = sample.large()
    board = Board(run.cells, run.excluded)
    began_s = time.monotonic()
    own, theirs = pty.openpty()
    with os.fdopen(theirs, "w", encoding="utf-8") as out, board.shown(out):
        os.set_blocking(own, False)
        while board.drawn < 3:
            for cell in run.cells[:50]:
                board.update(cell.id, "running", "x")
                board.update(cell.id, cell.verdict.value)
            _drain(own)
        _drain(own)
        drawn = board.drawn
    took_s = time.monotonic() - began_s
    os.close(own)
    assert 3 <= drawn <= REDRAWS_PER_SECOND * took_s + 2


def _drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, 1 << 20):
            pass
    except BlockingIOError:
        pass


@pytest.mark.parametrize(("columns", "height"), [(80, 24), (120, 40), (30, 6), (200, 100)])
def test_it_fits_the_screen_and_shows_what_runs_first(columns: int, height: int) -> None:
    run = sample.large()
    board = Board(run.cells, run.excluded)
    for cell in run.cells[:500]:
        board.update(cell.id, "running")
        board.update(cell.id, cell.verdict.value)
    board.update(run.cells[990].id, "running", "notebook train.ipynb fresh")
    lines = board.lines(columns, height)
    text = paint(lines)
    assert len(lines) <= height
    assert "500/1000 done" in text
    if columns >= 80:
        assert "runtime-39 " in text
        assert "notebook train.ipynb fresh" in text
        assert all(width(line) <= columns for line in text.splitlines()[:-1])


def test_a_retried_cell_counts_again_only_when_it_ends() -> None:
    run = sample.green(3)
    board = Board(run.cells)
    first = run.cells[0].id
    board.update(first, "running")
    board.update(first, "retrying", "the node was drained")
    assert "0/3 done" in paint(board.lines(80, 24))
    board.update(first, "running")
    board.update(first, "passed")
    assert "1/3 done" in paint(board.lines(80, 24))


def test_the_status_line_is_never_cut() -> None:
    run = sample.green(12)
    board = Board(run.cells)
    states = ("failed", "timeout", "invalid", "infra", "slower", "xpass", "xfail", "skipped", "passed", "retrying")
    for cell, state in zip(run.cells, states, strict=False):
        board.update(cell.id, "running")
        board.update(cell.id, state)
    text = paint(board.lines(50, 40))
    assert all(f" 1 {state}" in text.replace("failed, retrying", "retrying") for state in states)
    assert all(width(line) <= 50 for line in text.splitlines())
