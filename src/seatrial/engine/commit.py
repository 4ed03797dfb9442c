"""Which commit a run tests: what it is told, else what the CI says, else the checkout that the suite is in."""

import os
import subprocess
from pathlib import Path

VARIABLES = ("SEATRIAL_COMMIT", "GITHUB_SHA", "CI_COMMIT_SHA", "GIT_COMMIT", "BUILDKITE_COMMIT")
PATIENCE_S = 10.0


def commit_of(directory: Path) -> str:
    """Empty where nobody says. A checkout with changes of its own has a `+` behind its commit."""
    value = next((os.environ[name] for name in VARIABLES if os.environ.get(name)), "")
    if value:
        return value
    commit = _git(directory, "rev-parse", "HEAD")
    return f"{commit}+" if commit and _git(directory, "status", "--porcelain", "--untracked-files=no") else commit


def _git(directory: Path, *arguments: str) -> str:
    try:
        value = subprocess.run(
            ["git", "-C", str(directory), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return value.stdout.decode("utf-8", "replace").strip() if value.returncode == 0 else ""
