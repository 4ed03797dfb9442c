"""What moved at one commit is in the report of a run that people read in a terminal or on a page of a forge."""

from pathlib import Path

from report.sample import small
from seatrial.report.markdown import render_markdown
from seatrial.report.terminal.lines import paint
from seatrial.report.terminal.summary import summary_lines
from seatrial.report.view.run import RunView
from seatrial.report.view.series import ChangeGroup, LevelChange, RunSeries, write_series


def test_all_that_moved_at_one_commit_is_one_sentence_in_every_report(tmp_path: Path) -> None:
    moves = [
        (f"{name} step_time", LevelChange(3, "r3", 1.79e9, "c0ffee", 2.0, 2.2, 0.1, 0.9, "worse"))
        for name in ("a", "b@x")
    ]
    write_series(tmp_path, RunSeries("r1", [], [ChangeGroup("c0ffee", "r3", 1.79e9, moves)]))
    told = paint(summary_lines(RunView(small(), tmp_path), 120), False, False)
    assert "At commit c0ffee" in told
    assert "2 series changed: 2 worse by 10 %" in " ".join(told.split())
    page = render_markdown(RunView(small(), tmp_path))
    assert "### Metric changes" in page
    assert "2 series changed" in page
    assert "b@x" not in page  # nobody is mentioned


def test_a_run_whose_metrics_stayed_says_nothing_of_it(tmp_path: Path) -> None:
    write_series(tmp_path, RunSeries("r1", [], []))
    assert "Metric changes" not in render_markdown(RunView(small(), tmp_path))
    assert "metric changes" not in paint(summary_lines(RunView(small(), tmp_path), 120), False, False)
