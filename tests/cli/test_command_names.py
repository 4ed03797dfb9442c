"""Commands by name: an unknown one is an error that names the nearest."""

import pytest
from click.testing import CliRunner

from seatrial.cli import COMMANDS, main


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
