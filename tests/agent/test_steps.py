"""Steps other than notebooks: what is started for each, and what its end says."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from driven import StepRunner

from seatrial.agent.run.container import FIND_COMMAND, parse_found
from seatrial.agent.steps.kinds import Ended, hide
from seatrial.targets.agent_file import agent_file

NVIDIA_SMI = """#!/bin/sh
case "$*" in
*query-gpu=name*) printf 'NVIDIA A100-SXM4-40GB, 40960, 550.54.15\\nNVIDIA A100-SXM4-40GB, [N/A], 550.54.15\\n' ;;
*) exit 9 ;;
esac
"""


@pytest.fixture
def runner(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> StepRunner:
    return StepRunner(tmp_path, agent_file(tmp_path_factory.getbasetemp() / "agent", compiled=True))


def package(runner: StepRunner, files: dict[str, str]) -> None:
    """Modules that the interpreter finds."""
    folder = runner.folder / "modules"
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    runner.env = {"PYTHONPATH": str(folder)}


def script(runner: StepRunner, name: str, text: str) -> None:
    """A command that is first on PATH."""
    path = runner.folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    runner.env = {"PATH": f"{path.parent}:{os.environ['PATH']}"}


def test_run_is_a_shell_line_in_the_work_folder(runner: StepRunner) -> None:
    driven = runner.do("command", command="pwd; echo err >&2; exit 3")
    assert driven.ended.code == 3
    assert driven.output.splitlines() == [str(runner.folder / "work"), "err"]
    assert driven.result == {}


def test_a_module_that_imports_tells_version_and_file(runner: StepRunner) -> None:
    package(runner, {"here/__init__.py": "__version__ = '1.2.3'\n"})
    result = runner.do("import", module="here").result
    assert result["state"] == "imported"
    assert result["version"] == "1.2.3"
    assert result["file"].endswith("here/__init__.py")


def test_a_version_is_found_by_the_name_of_the_distribution_that_brought_the_module(runner: StepRunner) -> None:
    package(
        runner,
        {
            "pictures/__init__.py": "",
            "sunflower-9.1.dist-info/METADATA": "Metadata-Version: 2.1\nName: sunflower\nVersion: 9.1\n",
            "sunflower-9.1.dist-info/RECORD": "pictures/__init__.py,,\n",
        },
    )
    assert runner.do("import", module="pictures").result["version"] == "9.1"


@pytest.mark.parametrize("module", ["no_such_module", "no_such.part", "xml.no_such_part"])
def test_a_module_that_is_not_installed_is_absent(module: str, runner: StepRunner) -> None:
    result = runner.do("import", module=module).result
    assert result["state"] == "absent"
    assert result["error"].startswith("ModuleNotFoundError: No module named")


@pytest.mark.parametrize(
    ("files", "empty"),
    [
        ({"data/set/rows.csv": "", "data/notes.ipynb": ""}, True),
        ({"data/part.py": ""}, False),
        ({"data/deep/part/native.so": ""}, False),
        ({"data/__init__.py": ""}, False),
        ({"data.py": ""}, False),
    ],
)
def test_a_folder_without_python_files_is_known_as_such(files: dict[str, str], empty: bool, runner: StepRunner) -> None:
    """Python imports any folder on its path as a namespace package."""
    package(runner, files)
    result = runner.do("import", module="data").result
    assert result["state"] == "imported"
    assert (result["empty"] or "").endswith("/data") == empty


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("import no_such_dependency", "ModuleNotFoundError: No module named 'no_such_dependency'"),
        ("raise ModuleNotFoundError('gone', name='crashing')", "ModuleNotFoundError: gone"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import sys; sys.exit(0)", "SystemExit: 0"),
        ("def (", "SyntaxError: invalid syntax"),
        ("import os; os._exit(0)", "Python exited with code 0 while importing crashing"),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
            "Python was killed by SIGSEGV while importing crashing",
        ),
    ],
)
def test_a_module_that_is_there_and_fails_has_crashed(text: str, error: str, runner: StepRunner) -> None:
    package(runner, {"crashing/__init__.py": text})
    result = runner.do("import", module="crashing").result
    assert result["state"] == "crashed"
    assert error in result["error"]
    if "os._exit" not in text:
        assert "crashing/__init__.py" in result["traceback"]


def test_a_module_of_the_agents_own_name_is_the_runtimes(runner: StepRunner) -> None:
    package(runner, {"notebook/__init__.py": "__version__ = '7.0'\n", "steps.py": "", "probe.py": ""})
    assert runner.do("import", module="notebook").result["version"] == "7.0"
    assert runner.do("import", module="probe").result["file"].endswith("modules/probe.py")


def test_an_import_without_any_python_says_so(runner: StepRunner) -> None:
    runner.python, runner.env = None, {"PATH": "/no/such/folder"}
    result = runner.do("import", module="json").result
    assert result["state"] == "crashed"
    assert "Python not found on PATH" in result["error"]


def test_a_command_tells_path_and_version(runner: StepRunner) -> None:
    script(runner, "tool", "#!/bin/sh\necho\nprintf '\\033[1mtool 4.2\\033[0m\\nmore\\n'\n")
    answers = (runner.do("which", command="tool").result for _ in range(5))  # a busy machine may not have it in time
    assert {"path": str(runner.folder / "bin" / "tool"), "version": "tool 4.2"} in answers


@pytest.mark.parametrize("text", ["#!/bin/sh\necho usage; exit 2\n", "#!/bin/sh\n", "not a program"])
def test_a_command_without_a_version_is_still_there(text: str, runner: StepRunner) -> None:
    script(runner, "tool", text)
    assert runner.do("which", command="tool").result == {"path": str(runner.folder / "bin" / "tool"), "version": None}


def test_a_command_that_hangs_when_asked_for_its_version_is_still_there(runner: StepRunner) -> None:
    script(runner, "tool", "#!/bin/sh\nsleep 1000 & sleep 1000\n")
    driven = runner.do("which", command="tool")
    assert driven.result["path"]
    assert driven.result["version"] is None


def test_a_command_that_is_not_on_path_has_no_path(runner: StepRunner) -> None:
    assert runner.do("which", command="no-such-command").result == {"path": None, "version": None}


def test_facts_are_those_of_the_runtime(runner: StepRunner) -> None:
    script(runner, "nvidia-smi", NVIDIA_SMI)
    runner.env["PATH"] = f"{Path(sys.executable).parent}:{runner.env['PATH']}"
    facts = runner.do("facts").result
    assert facts["python"]["terminal"] == facts["python"]["kernel"]
    assert facts["python"]["kernel"]["prefix"] == sys.prefix
    assert facts["cpu"]["count"] == len(os.sched_getaffinity(0))
    assert 0 < facts["memory_bytes"] <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert facts["gpu"] == [
        {"model": "NVIDIA A100-SXM4-40GB", "memory_bytes": 40960 << 20, "driver": "550.54.15"},
        {"model": "NVIDIA A100-SXM4-40GB", "memory_bytes": None, "driver": "550.54.15"},
    ]
    assert "pydantic" in facts["packages"]
    assert facts["os"]["kernel"] == os.uname().release


@pytest.mark.parametrize(("shown", "asked"), [("1", "--id=1"), ("GPU-7,0,none,1", "--id=GPU-7,0")])
def test_facts_are_of_the_gpus_that_cuda_shows(shown: str, asked: str, runner: StepRunner) -> None:
    script(runner, "nvidia-smi", '#!/bin/sh\necho "$1, 1024, 5"\n')
    runner.env["CUDA_VISIBLE_DEVICES"] = shown
    assert [gpu["model"] for gpu in runner.do("facts").result["gpu"]] == [asked]
    runner.env["CUDA_VISIBLE_DEVICES"] = "-1"
    assert runner.do("facts").result["gpu"] == []


def test_facts_of_an_nvidia_smi_that_fails_say_why_there_are_no_gpus(runner: StepRunner) -> None:
    script(
        runner, "nvidia-smi", "#!/bin/sh\necho 'Failed to initialize NVML: Driver/library version mismatch'; exit 18\n"
    )
    facts = runner.do("facts").result
    assert facts["gpu"] == []
    assert "exit code 18: Failed to initialize NVML" in facts["gpu_error"]


def test_facts_see_affinity_and_memory_limits(runner: StepRunner) -> None:
    one, limit = min(os.sched_getaffinity(0)), 2 << 30
    script(
        runner,
        "limited",
        f'#!/bin/sh\nulimit -v {limit >> 10}\nexec taskset -c {one} {sys.executable} "$@"\n',
    )
    runner.python = str(runner.folder / "bin" / "limited")
    facts = runner.do("facts").result
    assert facts["cpu"]["count"] == 1
    assert facts["memory_bytes"] == limit


def test_facts_hide_what_looks_like_a_secret_and_what_is_one(runner: StepRunner) -> None:
    runner.secrets = ["open-sesame"]
    runner.env = {"MY_API_KEY": "abc", "PLAIN": "said open-sesame", "PROXY": "http://me:pw@host/", "EMPTY_TOKEN": ""}
    env = runner.do("facts").result["env"]
    assert env["MY_API_KEY"] == "•••"
    assert env["PLAIN"] == "said •••"
    assert env["PROXY"] == "http://•••@host/"
    assert env["EMPTY_TOKEN"] == ""
    assert hide("PATH", "/bin") == "/bin"


def test_facts_of_a_python_that_does_not_start_say_so(runner: StepRunner) -> None:
    script(runner, "broken-python", "#!/bin/sh\nexit 5\n")
    runner.python = str(runner.folder / "bin" / "broken-python")
    assert runner.do("facts").result["error"] == "could not collect facts: Python exited with code 5"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    if shutil.which("git") is None:
        pytest.skip("needs git")
    folder = tmp_path / "origin"
    git = [
        "git",
        "-C",
        str(folder),
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@t.example",
        "-c",
        "init.defaultBranch=main",
    ]
    folder.mkdir()
    (folder / "one.txt").write_text("1")
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"], ["tag", "v1"]):
        subprocess.run([*git, *command], check=True)
    (folder / "two.txt").write_text("2")
    for command in (["add", "."], ["commit", "-qm", "two"], ["branch", "side"]):
        subprocess.run([*git, *command], check=True)
    return folder


def commit(repository: Path, ref: str) -> str:
    told = subprocess.run(["git", "-C", repository, "rev-parse", f"{ref}^{{commit}}"], check=True, capture_output=True)
    return told.stdout.decode().strip()


@pytest.mark.parametrize("ref", [None, "side", "v1", "commit", "short"])
def test_a_workspace_is_cloned_at_its_ref_beside_what_is_there(
    ref: str | None, runner: StepRunner, repository: Path
) -> None:
    (runner.folder / "work").mkdir()
    (runner.folder / "work" / "mine.txt").write_text("kept")
    wanted = commit(repository, "v1" if ref in ("v1", "commit", "short") else "HEAD")
    ref = {"commit": wanted, "short": wanted[:10]}.get(ref or "", ref)
    driven = runner.do("workspace", git=f"file://{repository}", ref=ref)
    assert driven.result == {"commit": wanted}, driven.output
    assert (runner.folder / "work" / "one.txt").exists()
    assert (runner.folder / "work" / "two.txt").exists() == (wanted != commit(repository, "v1"))
    assert (runner.folder / "work" / "mine.txt").read_text() == "kept"


def test_a_ref_that_is_not_there_is_told(runner: StepRunner, repository: Path) -> None:
    driven = runner.do("workspace", git=f"file://{repository}", ref="no-such-ref")
    assert driven.result == {"commit": None, "unknown_ref": True}
    assert driven.ended.code == 64
    assert "ref not found: no-such-ref" in driven.output


def test_a_repository_that_is_not_there_fails_and_asks_nobody(runner: StepRunner) -> None:
    driven = runner.do("workspace", git="file:///no/such/repository")
    assert driven.ended.code not in (0, None)
    assert driven.result == {"commit": None, "unknown_ref": False}


@pytest.mark.parametrize(
    ("kind", "args", "message"),
    [
        ("no-such-kind", {}, "unknown step kind 'no-such-kind'; known: command, drive, facts, import"),
        ("command", {}, "step 'command' needs the argument 'command'"),
        ("workspace", {"git": "--upload-pack=touch pwned"}, "must not start with a dash"),
        ("command", {"command": "true", "hosts": "many"}, "invalid arguments for step 'command'"),
        ("command", {"command": "true", "follow": {"must": "words"}}, "invalid arguments for step 'command'"),
    ],
)
def test_a_step_that_makes_no_sense_fails_and_says_why(
    kind: str, args: dict[str, str], message: str, runner: StepRunner
) -> None:
    driven = runner.do(kind, **args)
    assert driven.ended.code == 2
    assert message in driven.output


@pytest.mark.parametrize(
    ("text", "version"), [("echo; echo ' v 1.2'", "v 1.2"), ("echo no such option >&2; exit 1", None), ("true", None)]
)
def test_in_an_image_without_python_only_a_version_that_was_printed_is_one(
    text: str, version: str | None, tmp_path: Path
) -> None:
    (tmp_path / "tool").write_text(f"#!/bin/sh\n{text}\n")
    (tmp_path / "tool").chmod(0o755)
    for tool, path in (("tool", str(tmp_path / "tool")), ("absent", None)):
        argv = ["/bin/sh", "-c", FIND_COMMAND, "sh", tool]
        done = subprocess.run(argv, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
        found = parse_found(Ended("exited", done.returncode, None, done.stdout))
        assert found == {"path": path, "version": version if path else None}
