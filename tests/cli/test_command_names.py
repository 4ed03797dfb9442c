"""Commands by name: an unknown one is an error that names the nearest."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from seatrial.cli import COMMANDS, GROUPS, main


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["rum"], "unknown command 'rum'; did you mean 'run'?"),
        (["histroy", "alerts"], "unknown command 'histroy'; did you mean 'history'?"),
        (["baseline", "updat", "suite.yaml"], "unknown command 'updat'; did you mean 'update'?"),
        (["scale", "submitt"], "unknown command 'submitt'; did you mean 'submit'?"),
        (["zzz"], f"unknown command 'zzz'; known: {', '.join(COMMANDS)}"),
        (["scale", "zzz"], "unknown command 'zzz'; known: clean, merge, plot, sample, submit"),
    ],
)
def test_an_unknown_command_names_the_nearest_one_or_all(args: list[str], says: str) -> None:
    done = CliRunner().invoke(main, args)
    assert done.exit_code == 2
    assert says in " ".join(done.stderr.split())


def test_help_lists_every_command_in_a_group() -> None:
    said = CliRunner().invoke(main, ["--help"]).stdout
    titles = [said.index(f"\n{title}:\n") for title in GROUPS]
    assert titles == sorted(titles)
    assert all(f"\n  {name} " in said for name in COMMANDS)


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("plan suite.yaml --select", ["machine=a", "model=m1", "model=m2", "t[*", "t[machine=a,model=m1]"]),
        ("plan suite.yaml --select model=", ["model=m1", "model=m2"]),
        ("plan suite.yaml --show-job t[m", ["t[machine=a,model=m1]", "t[machine=a,model=m2]"]),
        ("plan broken.yaml --select", []),
        ("plan missing.yaml --select", []),
    ],
)
def test_completion_offers_axis_values_trials_and_cells(tmp_path: Path, words: str, offered: list[str]) -> None:
    trial = "{kind: runtime, matrix: {machine: all, model: [m1, m2]}, run: [ls]}"
    (tmp_path / "suite.yaml").write_text(f"machines: {{a: {{}}}}\ntrials:\n  t: {trial}\n")
    (tmp_path / "broken.yaml").write_text("trials: [")
    command, suite, *rest = words.split()
    line = f"seatrial {command} {tmp_path / suite} {' '.join(rest)}"
    variables = {"_SEATRIAL_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": "4"}
    done = CliRunner().invoke(main, prog_name="seatrial", env=variables)
    found = [text.removeprefix("plain,") for text in done.stdout.split()]
    assert found[: len(offered)] == offered
    assert bool(found) == bool(offered)
    assert not done.stderr


def test_without_a_suite_the_way_to_one_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for command in ("plan", "run"):
        done = CliRunner().invoke(main, [command])
        assert done.exit_code == 2
        assert done.stderr.splitlines()[1:] == ["create it with `seatrial init`, or name a suite"]


def test_an_error_is_coloured_only_if_wanted(tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text("trials:\n  t: {kind: runtime, rum: [ls]}\n")
    plain, coloured = (
        CliRunner().invoke(main, ["plan", str(tmp_path / "suite.yaml")], env={"FORCE_COLOR": value, "NO_COLOR": ""})
        for value in ("0", "1")
    )
    assert "\x1b" not in plain.stderr
    assert "\x1b[1;31m                     ^^^\x1b[0m" in coloured.stderr
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured.stderr) == plain.stderr
