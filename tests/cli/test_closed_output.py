"""Output that is closed or not read changes neither the run nor its exit code."""

import subprocess

import pytest

from world import SEATRIAL, World

SUITE = "name: n\ntrials: {t: {kind: runtime, facts: false, run: ['exit %s']}}"


@pytest.mark.parametrize(
    ("code", "shell"),
    [
        (0, '"$0" run suite.yaml >&-'),
        (1, '"$0" run suite.yaml >&- 2>&-'),
        (0, '{ "$0" run suite.yaml; echo $? >code; } | :; exit $(cat code)'),
        (1, '{ "$0" run suite.yaml; echo $? >code; } | head -1; exit $(cat code)'),
    ],
)
def test_the_exit_code_is_that_of_the_run(world: World, code: int, shell: str) -> None:
    world.suite(SUITE % code)
    done = subprocess.run(
        ["sh", "-c", shell, SEATRIAL], cwd=world.folder, env=world.env, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert int(world.results().exit_code) == code
