"""Suites of several files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seatrial.suite import SuiteError, load

Problems = Callable[..., list[tuple[str, str]]]
ONE = "trials: {t: {kind: probe}}\n"


def test_entries_of_all_files_are_merged_by_name(tmp_path: Path, kinds: Any) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "suite.yaml").write_text(
        "name: all\ninclude: [deep/a.yaml, b.yaml]\ntrials: {t: {kind: probe, machine: all}}\n"
    )
    (tmp_path / "deep/a.yaml").write_text("name: other\ninclude: [../b.yaml]\nmachines: {a: {cpu: 1}}\nmax_cost: 5\n")
    (tmp_path / "b.yaml").write_text("machines: {b: {}}\nruntimes: {r: {image: x}}\n")
    suite = load(tmp_path / "suite.yaml", *kinds)
    assert suite.name == "all"
    assert list(suite.machines) == ["a", "b"]
    assert list(suite.runtimes) == ["r"]
    assert suite.max_cost == 5
    assert suite.data["include"] == []


def test_the_same_name_in_two_files_names_both_places(problems_of: Problems) -> None:
    ((where, message),) = problems_of(ONE + "include: [a.yaml]\nmachines:\n  m: {}\n", a="machines:\n  m: {}\n")
    assert where == "a.yaml:2:3"
    assert "duplicate 'm' of `machines`; first at" in message
    assert "suite.yaml:4:3" in message


def test_the_same_field_in_two_files_names_both_places(problems_of: Problems) -> None:
    ((where, message),) = problems_of(ONE + "include: [a.yaml]\nmax_cost: 1\n", a="max_cost: 2\n")
    assert where == "a.yaml:1:1"
    assert "suite.yaml:3:1" in message


def test_a_circle_shows_its_chain(problems_of: Problems) -> None:
    ((where, message),) = problems_of(
        ONE + "include: [a.yaml]\n", a="include:\n- b.yaml\n", b="include: [suite.yaml]\n"
    )
    assert where == "b.yaml:1:11"
    assert [part.rpartition("/")[2] for part in message.partition(": ")[2].split(" -> ")] == [
        *("suite.yaml", "a.yaml", "b.yaml", "suite.yaml"),
    ]


def test_a_file_that_includes_itself_is_a_circle(problems_of: Problems) -> None:
    ((where, message),) = problems_of(ONE + "include: [suite.yaml]\n")
    assert where == "suite.yaml:2:11"
    assert "circular include" in message


def test_problems_point_into_the_file_that_they_are_in_and_say_who_includes_it(tmp_path: Path, kinds: Any) -> None:
    (tmp_path / "suite.yaml").write_text(ONE + "include: [a.yaml]\n")
    (tmp_path / "a.yaml").write_text("machines:\n  m:\n    cpus: 2\nruntime: {}\n")
    with pytest.raises(SuiteError) as caught:
        load(tmp_path / "suite.yaml", *kinds)
    text = str(caught.value)
    assert f"{tmp_path}/a.yaml:3:5: unknown field 'cpus'; did you mean 'cpu'?" in text
    assert f"{tmp_path}/a.yaml:4:1: unknown field 'runtime'; did you mean 'runtimes'?" in text
    assert f"included by {tmp_path}/suite.yaml" in text


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ("include: [aa.yaml]\n", "2:11", "No such file or directory; did you mean 'a.yaml'?"),
        ("include: [.]\n", "2:11", "cannot read the file: Is a directory"),
        ("include: a.yaml\n", "2:10", "expected a list, got 'a.yaml'; write [\"a.yaml\"]"),
        ("include: [3.10]\n", "2:11", 'write "3.10"'),
    ],
)
def test_an_include_that_cannot_be_read_is_told_at_its_place(
    problems_of: Problems, text: str, where: str, said: str
) -> None:
    problems = problems_of(ONE + text, a="machines: {}")
    assert [place for place, message in problems if said in message] == [f"suite.yaml:{where}"], problems


def test_broken_yaml_in_an_included_file_does_not_hide_the_rest(problems_of: Problems) -> None:
    places = [where for where, _ in problems_of(ONE + "include: [a.yaml]\nnme: x\n", a="machines: [\n")]
    assert places == ["a.yaml:2:1", "suite.yaml:3:1"]


def test_includes_without_end_are_refused(tmp_path: Path, kinds: Any) -> None:
    for number in range(300):
        (tmp_path / f"{number}.yaml").write_text(f"include: [{number + 1}.yaml]\n" + (ONE if number == 0 else ""))
    with pytest.raises(SuiteError, match="limit 200"):
        load(tmp_path / "0.yaml", *kinds)
