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
