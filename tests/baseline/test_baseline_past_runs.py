"""Rows of runs that another tool kept, which cannot be read: told with their place, and with what is wrong."""

from pathlib import Path

import pytest

from seatrial.baseline import past_runs
from seatrial.suite import SuiteError


def problems(tmp_path: Path, name: str, text: str) -> list[str]:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(SuiteError) as caught:
        past_runs.read_runs(path)
    return [f"{one.where.removeprefix(f'{tmp_path}/')}: {one.message}" for one in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (f"run,time,value\nr1,2026-10-01,1\nr2,2026-10-01,{'9' * 140_000}\n", "a.csv:3:1"),
        (f"# no header\n{'x' * 140_000},time,value\n", "a.csv:2:1"),
    ],
)
def test_a_field_without_end_is_told_with_its_line(tmp_path: Path, text: str, place: str) -> None:
    assert problems(tmp_path, "a.csv", text) == [f"{place}: not CSV: field larger than field limit (131072)"]


def test_a_row_without_a_value_is_left_out_and_the_others_are_not(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("run_id,update_timestamp,metrics_step_time\nr1,1,2.5\nr2,2,\nr3,3,NULL\nr4,4,2.6\n")
    found = past_runs.read_runs(path)
    assert [one.run for one in found.runs] == ["r1", "r4"]
    assert [mark.line for mark in found.without_value] == [3, 4]
    assert problems(tmp_path, "b.csv", "run,time,value\nr1,1,\n") == ["b.csv:2:1: none of the 1 rows has a value"]
    assert "invalid `value`: expected a finite number" in problems(tmp_path, "c.csv", "run,time,value\nr1,1,fast\n")[0]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ('{"run": null, "time": 1, "value": 2}', "`run` is empty"),
        ('{"run_id": "", "time": 1, "value": 2}', "`run_id` is empty"),
        ('{"runs": "r1", "time": 1, "value": 2}', "`run` is missing; did you mean 'runs'?"),
    ],
)
def test_a_run_without_a_name_is_told_by_what_is_there(tmp_path: Path, row: str, told: str) -> None:
    assert problems(tmp_path, "a.json", f"[{row}]") == [f"a.json[1]:1:1: {told}"]
