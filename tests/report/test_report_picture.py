"""The picture of a run: read back as SVG, with a box for each cell, a line for each metric of several runs, and no text
of a job that acts."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sample

from record.past import run, timed
from report.test_report_causes import results
from report.test_report_since import nightly
from seatrial.job import CellResult, Verdict
from seatrial.record.history import open_history
from seatrial.report.picture import GRID_ROWS, render_svg
from seatrial.report.view.run import RunView
from seatrial.report.view.series import run_series, write_series

SVG = "{http://www.w3.org/2000/svg}"
TAGS = {f"{SVG}{tag}" for tag in ("svg", "style", "g", "title", "rect", "text", "path", "line")}


def drawn(text: str) -> ET.Element:
    root = ET.fromstring(text)
    assert {one.tag for one in root.iter()} <= TAGS
    assert not [name for one in root.iter() for name in one.attrib if name.startswith("on") or "href" in name]
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", "".join(root.itertext()))
    return root


@pytest.mark.parametrize("make", [sample.small, sample.green, results])
def test_every_cell_of_the_grid_is_a_box_with_its_verdict(make: Any, tmp_path: Path) -> None:
    made = make()
    root = drawn(render_svg(RunView(made, tmp_path)))
    boxes = [one.get("class", "").split() for one in root.iter(f"{SVG}rect")]
    verdicts = [of[1] for of in boxes if of[1] != "excluded"]
    assert sorted(verdicts) == sorted(cell.verdict.value for cell in made.cells)


def test_what_is_new_is_outlined_and_each_box_says_what_it_is(tmp_path: Path) -> None:
    root = drawn(render_svg(RunView(nightly(), tmp_path)))
    assert sum("new" in one.get("class", "") for one in root.iter(f"{SVG}rect")) == 10
    titles = [one.text or "" for one in root.iter(f"{SVG}title")]
    assert "t[model=m1,machine=x1] failed: AssertionError: diverged" in titles


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    made = sample.small()
    cells = [msgspec.structs.replace(cell, id=f"{cell.id}{sample.HOSTILE}") for cell in made.cells]
    text = render_svg(RunView(msgspec.structs.replace(made, cells=cells, suite=sample.HOSTILE), tmp_path))
    root = drawn(text)
    assert "<script>alert('x')</script>" in (root.get("aria-label") or "")
    assert "\x1b" not in text


def test_a_large_run_is_bounded_with_the_rows_that_failed_first_and_the_rest_counted(tmp_path: Path) -> None:
    def one(number: int) -> CellResult:
        verdict = Verdict.FAILED if number == 4_999 else Verdict.PASSED
        return sample.cell(f"{number:08x}", f"r{number // 5:04}", f"m{number % 5}", verdict)

    text = render_svg(
        RunView(sample.results("s", Verdict.FAILED, [one(number) for number in range(5_000)], []), tmp_path)
    )
    root = drawn(text)
    texts = [one.text or "" for one in root.iter(f"{SVG}text")]
    assert "r0999" in texts
    assert f"… and {1_000 - GRID_ROWS} more rows in report.html" in texts
    assert len(text) < 200_000


def test_metrics_of_several_runs_are_lines_and_those_of_one_run_are_not(tmp_path: Path) -> None:
    history = open_history(tmp_path / "history.db")
    for number in range(1, 9):
        cells = [timed(2.0 + number / 100, at_s=number * 10.0, benchmark="often")]
        cells += [timed(1.0, hash_="b", at_s=number * 10.0, benchmark="once")] if number == 8 else []
        last = run(f"r{number}", *cells, started_s=number * 10.0)
        history.add(last)
    write_series(tmp_path, run_series(history, last))
    root = drawn(render_svg(RunView(last, tmp_path)))
    assert [one.get("d", "").count("M") for one in root.iter(f"{SVG}path")] == [8]
    texts = [one.text or "" for one in root.iter(f"{SVG}text")]
    assert "often step_time" in texts
    assert "… and 1 more metric in report.html" in texts
    assert "2.08 s" in texts
