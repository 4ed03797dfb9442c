"""The agent as a file: with bytecode for this Python, which any other Python ignores."""

import subprocess
import sys
import zipfile
from importlib.util import MAGIC_NUMBER
from pathlib import Path

from seatrial.targets.agent_file import agent_file

IMPORTED = "import sys; sys.path.insert(0, sys.argv[1]); from seatrial_agent import __main__ as m; print(m.__file__)"


def loaded_from(agent: Path) -> str:
    argv = [sys.executable, "-I", "-S", "-c", IMPORTED, agent]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def test_bytecode_is_used_by_this_python_and_ignored_by_others(tmp_path: Path) -> None:
    plain, compiled = agent_file(tmp_path), agent_file(tmp_path, compiled=True)
    assert plain != compiled
    assert agent_file(tmp_path, compiled=True) == compiled
    with zipfile.ZipFile(compiled) as archive:
        names = archive.namelist()
        other = tmp_path / "other.pyz"
        with zipfile.ZipFile(other, "w") as copy:
            for name in names:
                data = archive.read(name)
                copy.writestr(name, b"\0\0\r\n" + data[4:] if name.endswith("c") else data)
    assert {f"{name}c" for name in names if name.endswith(".py")} == {name for name in names if name.endswith("c")}
    assert MAGIC_NUMBER != b"\0\0\r\n"
    for agent, suffix in ((plain, ".py"), (compiled, ".pyc"), (other, ".py")):
        assert loaded_from(agent) == f"{agent}/seatrial_agent/__main__{suffix}\n"
