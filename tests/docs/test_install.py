"""The package as users get it: built, installed as the README says into an environment of its own, and used in a CI as
docs/ci.md says. Everything is run as it is written there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from seatrial import __version__
from seatrial.targets.local.programs import uv_path
from world import EVERY

ROOT = Path(__file__).parent.parent.parent
BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HIDDEN = ("SEATRIAL_", "UV_", "XDG_", "PYTHON", "VIRTUAL_ENV", "GITHUB_", "CI_")
OF_THE_INDEX = ("UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "UV_INDEX", "UV_CACHE_DIR", "UV_NATIVE_TLS")


class Clean:
    """A machine on which nothing of Seatrial is, but uv."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder
        self.wheel = wheel
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        (self.bin / "uv").symlink_to(uv_path())
        (folder / "work").mkdir()
        kept = {k: v for k, v in os.environ.items() if not k.startswith(HIDDEN) or k in OF_THE_INDEX}
        constraints = folder / "constraints.txt"
        constraints.write_text(locked())
        self.env = {
            **kept,
            "PATH": f"{self.bin}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(folder / "home"),
            "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR") or str(Path.home() / ".cache" / "uv"),
            "UV_TOOL_DIR": str(folder / "tools"),
            "UV_TOOL_BIN_DIR": str(self.bin),
            "UV_CONSTRAINT": str(constraints),  # the versions that everything else is tested with
            "UV_PYTHON": sys.executable,
            "PIP_CONSTRAINT": str(constraints),
            "SEATRIAL": str(wheel),
            "SEATRIAL_STATE": str(folder / "state"),
        }

    def run(self, command: str, check: int = 0, **env: str) -> str:
        """As a CI does: a shell that stops at the first command that fails."""
        done = subprocess.run(
            ["bash", "-e", "-c", command],
            cwd=self.folder / "work",
            env={**self.env, **env},
            capture_output=True,
            text=True,
        )
        assert done.returncode == check, f"{command}\nexit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def locked() -> str:
    """The lock as constraints: versions, without the hashes of files."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    return "\n".join(line.removesuffix("\\").strip() for line in lines if "--hash" not in line) + "\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build = [
        uv_path(),
        "build",
        "--quiet",
        "--no-build-isolation",
        "--python",
        sys.executable,
        "--out-dir",
        str(folder),
    ]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture
def clean(tmp_path: Path, wheel: Path) -> Clean:
    if shutil.which("git") is None:
        pytest.skip("needs git: the suite of docs/ci.md asks for it")
    return Clean(tmp_path / "clean", wheel)


def test_the_wheel_works_where_nothing_else_is(clean: Clean) -> None:
    """Installed by uv; what it ships beside its modules (agent, templates, schemas, scripts) is used, and a shell can
    complete commands, options and runs."""
    clean.run(f"uv tool install --quiet {clean.wheel}")
    assert clean.run("seatrial --version") == f"seatrial, version {__version__}\n"
    assert str(ROOT) not in clean.run("head -1 $(command -v seatrial)")
    clean.run("seatrial init")
    clean.run("seatrial plan seatrial.yaml")
    clean.run("seatrial run seatrial.yaml")
    clean.run("seatrial report last --html report.html --junit junit.xml --markdown summary.md")
    clean.run("seatrial schema > schema.json && seatrial logs last > log.txt && seatrial runs && seatrial history")
    assert "agent" in clean.run("ls $HOME/.cache/seatrial")
    for shell in ("bash", "zsh", "fish"):
        assert "_SEATRIAL_COMPLETE" in clean.run(f"_SEATRIAL_COMPLETE={shell}_source seatrial")
    (run,) = (clean.folder / "work" / "runs").glob("*-*")
    for words, completed in (("rep", "report"), ("report --j", "--junit"), (f"logs {run.name[:3]}", run.name)):
        env = {"_SEATRIAL_COMPLETE": "bash_complete", "COMP_WORDS": f"seatrial {words}"}
        said = clean.run("seatrial", **env, COMP_CWORD=str(len(words.split())))
        assert f"plain,{completed}" in said.split()


@pytest.mark.skipif(not EVERY, reason="pip takes a minute; on demand (make test-all)")
def test_pipx_installs_the_wheel(clean: Clean) -> None:
    clean.run("uv tool install --quiet pipx")
    clean.run(f"pipx install {clean.wheel}", PIPX_HOME=str(clean.folder / "pipx"), PIPX_BIN_DIR=str(clean.bin))
    assert clean.run("seatrial --version") == f"seatrial, version {__version__}\n"


def block(beginning: str) -> dict[str, Any]:
    text = next(text for text in BLOCK.findall((ROOT / "docs" / "ci.md").read_text()) if text.startswith(beginning))
    data: dict[str, Any] = yaml.safe_load(text)
    return data


def write_suite(clean: Clean, broken: bool) -> None:
    text = next(text for text in BLOCK.findall((ROOT / "docs" / "ci.md").read_text()) if "# file: suite.yaml" in text)
    (clean.folder / "work" / "suite.yaml").write_text(text.replace("[git]", "[no-such-command]") if broken else text)


def test_every_command_of_the_file_for_github_does_its_work(clean: Clean) -> None:
    """The second time, with a suite that fails, on a machine that has Seatrial already."""
    jobs = block("# .github/workflows/")["jobs"]
    for broken in (False, True):
        shutil.rmtree(clean.folder / "work")
        (clean.folder / "work").mkdir()
        write_suite(clean, broken)
        summary = clean.folder / f"summary-{broken}.md"
        for step in [*jobs["plan"]["steps"], *jobs["nightly"]["steps"]]:
            fails = broken and step.get("run") == "seatrial run suite.yaml"
            if "run" in step:
                clean.run(step["run"], int(fails), GITHUB_STEP_SUMMARY=str(summary), GITHUB_SHA="8f3a12c")
        assert summary.read_text().startswith("```text\n")
        assert "2 cells, 0 excluded of 2 combinations" in summary.read_text()
        assert ("nightly: failed" in summary.read_text()) is broken
        assert ("<failure" in (clean.folder / "work" / "junit.xml").read_text()) is broken
        assert '"commit": "8f3a12c"' in clean.run("seatrial report last --json")


def test_every_command_of_the_file_for_gitlab_does_its_work(clean: Clean) -> None:
    write_suite(clean, False)
    file = block("# .gitlab-ci.yml")
    subprocess.run([uv_path(), "venv", "--quiet", "--seed", str(clean.folder / "image")], check=True, env=clean.env)
    shutil.copy(uv_path(), clean.folder / "image" / "bin" / "uv")
    clean.env["PATH"] = f"{clean.folder}/image/bin:{clean.env['PATH']}"
    project = str(clean.folder / "work")
    cache = file["variables"]["SEATRIAL_CACHE"].replace("$CI_PROJECT_DIR", project)
    for name in ("plan", "nightly"):
        job = file[name]
        for command in [*file["default"]["before_script"], *job["script"], *job.get("after_script", [])]:
            clean.run(command, SEATRIAL_CACHE=cache, CI_PROJECT_DIR=project, CI_COMMIT_SHA="8f3a12c")
    paths = [*file["nightly"]["cache"]["paths"], *file["nightly"]["artifacts"]["paths"], "junit.xml"]
    assert [path for path in paths if not (clean.folder / "work" / path).exists()] == []


def test_the_steps_after_a_failed_doctor_do_their_work(clean: Clean) -> None:
    """There is no run to report then. Steps of GitHub that need one are skipped, and GitLab's go on without one."""
    write_suite(clean, False)
    clean.run('uv tool install --quiet "$SEATRIAL"')
    steps = block("# .github/workflows/")["jobs"]["nightly"]["steps"]
    always = [step["run"] for step in steps if step.get("if") == "always()" and "run" in step]
    assert always == ["seatrial reap --older-than 1d"]
    for command in [*always, *block("# .gitlab-ci.yml")["nightly"]["after_script"]]:
        clean.run(command)
    reports = [step.get("if") for step in steps if "seatrial report" in step.get("run", "")]
    assert reports == ["always() && steps.run.outcome != 'skipped'"] * 2
