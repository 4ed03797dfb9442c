"""Evidence is found, not cut: the first error of a long log is seen in every form of report."""

import json

from world import World

ERROR = "[rank3] torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB."
SUITE = """\
name: evidence
trials:
  works:
    kind: runtime
    run:
      - {name: prepare, command: "echo 'ERROR: resolver warns, and that is all'"}
      - {name: generate, command: "python3 talk.py"}
"""
PROGRAM = f"""
for n in range(4000):
    print("NCCL INFO Channel", n, "via P2P", "-" * 40)
    if n == 2000:
        print("\\x1b[31m{ERROR}\\x1b[0m")
print("ChildFailedError: one of the ranks is gone")
raise SystemExit(1)
"""


def test_the_first_error_in_the_middle_of_a_long_log_is_in_every_form(world: World) -> None:
    world.suite(SUITE.replace("talk.py", str(world.folder / "talk.py")))
    (world.folder / "talk.py").write_text(PROGRAM)
    told = world.seatrial("run", "suite.yaml", check=1).stdout
    folder = world.run().path
    assert ERROR[:60] in "\n".join(told.splitlines()[-30:])
    for name in ("report.md", "junit.xml", "results.json", "report.html"):
        text = (folder / name).read_text()
        assert ERROR in text, name
    (cell,) = json.loads((folder / "results.json").read_text())["cells"]
    assert cell["attempts"][-1]["headline"] == ERROR
    (finding,) = [one for one in cell["findings"] if one["verdict"] == "failed"]
    lines = finding["evidence"].splitlines()
    assert lines[0] == ERROR
    assert lines[1] == "line 2,005 of the log:"  # after two headers, a line of the first step and 2,001 of the second
    assert lines.index("…") > lines.index(ERROR, 1)  # the window, then the tail
    assert lines[-1] == "ChildFailedError: one of the ranks is gone"
    log = next(folder.glob("cells/*/1/log.txt")).read_text().splitlines()
    assert ERROR in log[2_004]
    assert "resolver warns" not in finding["evidence"]
