"""Readers by name: of a command's output or of a file, Seatrial's own and one of another distribution."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.job import Finding, flatten_metrics
from world import World

PLUGINS = Path(__file__).parent.parent / "plugins"
GOOD = "printf 'copy h2d 52.5 GB/s\\nlatency 3 us\\ndone\\n'"


@pytest.fixture
def reading(world: World) -> World:
    world.env["PYTHONPATH"] = str(PLUGINS)
    return world


def runtime(world: World, *entries: dict) -> None:
    world.suite(
        json.dumps(
            {
                "name": "s",
                "trials": {"t": {"kind": "runtime", "retries": 0, "confirm": 0, "under_test": ["run"], "run": entries}},
            }
        )
    )


def found(world: World) -> dict[tuple[str, str], Finding]:
    (cell,) = world.results().cells
    return {(one.step, one.check): one for one in cell.findings}


def test_metrics_of_commands_and_files_are_read_bounded_and_kept(reading: World) -> None:
    runtime(
        reading,
        {"name": "good", "command": GOOD, "read": "copy-speed", "bounds": {"h2d": ">=48000 MB/s", "latency": "4us"}},
        {"name": "slow", "command": GOOD, "read": "copy-speed", "bounds": {"h2d": "60", "d2h": ">=1 GB/s"}},
        {
            "name": "file",
            "command": "mkdir out && " + GOOD + " > out/copies.txt",
            "read": {"reader": "copy-speed", "file": "out/*.txt", "options": {"scale": 2}},
            "bounds": {"h2d": "<=105GB/s", "latency": "<1 GB"},
        },
        {"name": "json", "command": 'echo warning; echo \'{"a": {"b": [1, 2.5]}, "c": true}\'', "read": "json"},
    )
    reading.seatrial("run", "suite.yaml", check=1)
    verdicts = {key: str(one.verdict) for key, one in found(reading).items()}
    assert verdicts["run good", "read copy-speed"] == verdicts["run good", "bound h2d"] == "passed"
    assert verdicts["run good", "bound latency"] == "passed"
    assert verdicts["run slow", "bound h2d"] == "failed"  # higher is better, so 60 is the least
    assert found(reading)["run slow", "bound h2d"].message == "h2d is 52.5 GB/s (expected >=60)"
    assert verdicts["run slow", "bound d2h"] == "failed"  # not measured
    assert verdicts["run file", "bound h2d"] == "passed"
    assert verdicts["run file", "bound latency"] == "invalid"  # a time is no size
    (cell,) = reading.results().cells
    metrics = {one.name: one for one in flatten_metrics(cell.metrics)}
    assert (metrics["run good.h2d"].value, metrics["run good.h2d"].unit) == (52.5, "GB/s")
    assert metrics["run good.h2d"].better == "higher"
    assert metrics["run file.h2d"].value == 105.0
    assert {name: one.value for name, one in metrics.items() if name.startswith("run json.a")} == {
        "run json.a.b.0": 1,
        "run json.a.b.1": 2.5,
    }
    (kept,) = reading.folder.glob("runs/*/cells/*/1/files/output/run-good-*.txt")
    assert kept.read_text() == "copy h2d 52.5 GB/s\nlatency 3 us\ndone\n"


@pytest.mark.parametrize(
    ("command", "verdict", "message"),
    [
        ("echo nothing", "failed", "output: there is no line of a copy"),
        ("true", "failed", "output is empty"),
        ("yes 'copy h2d 1 GB/s' | head -c 70000000", "failed", "output was not kept"),
        ("echo copy h2d 52.5 GB/s", "invalid", "it does not say that it was done"),
        ("echo copy h2d 52.5 GB/s; echo errors: 3", "failed", "3 copies were wrong"),
        ("echo bug", "failed", "output: the reader has a bug: KeyError: 'bug'"),
        ("printf '\\377\\000garbage'", "failed", "output: there is no line of a copy"),
        ("echo 'copy h2d 52.5 GB/s'; echo 'latency inf us'; echo done", "failed", "latency is inf (expected a finite"),
        (GOOD + "; exit 3", "passed", "2 metrics"),  # that it exited with 3 is another finding
    ],
)
def test_what_cannot_be_read_is_no_pass(reading: World, command: str, verdict: str, message: str) -> None:
    runtime(reading, {"name": "x", "command": command, "read": "copy-speed"})
    reading.seatrial("run", "suite.yaml", check=1)
    one = found(reading)["run x", "read copy-speed"]
    assert str(one.verdict) == verdict
    assert one.message.startswith(message)


def test_a_command_that_is_ended_early_leaves_its_metrics_unknown(reading: World) -> None:
    entry = {"name": "x", "command": "sleep 600", "timeout": "1s", "read": "copy-speed", "bounds": {"h2d": ">=1"}}
    runtime(reading, entry)
    reading.seatrial("run", "suite.yaml", check=124)
    seen = {key: str(one.verdict) for key, one in found(reading).items()}
    assert seen["run x", "bound h2d"] == "skipped"
    assert seen["run x", "read copy-speed"] == "skipped"


def test_training_takes_the_same_fields(reading: World) -> None:
    trial = {"kind": "training", "retries": 0, "command": GOOD, "read": "copy-speed", "bounds": {"h2d": ">=60 GB/s"}}
    reading.suite(json.dumps({"name": "s", "trials": {"t": trial}}))
    reading.seatrial("run", "suite.yaml", check=1)
    assert str(found(reading)["train", "bound h2d"].verdict) == "failed"
    (cell,) = reading.results().cells
    assert {one.name: one.value for one in flatten_metrics(cell.metrics)}["h2d"] == 52.5


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"read": "copy-sped"}, "unknown reader 'copy-sped'; did you mean 'copy-speed'?"),
        ({"read": {"reader": "jsn"}}, "unknown reader 'jsn'; did you mean 'json'?"),
        ({"read": "copy-speed", "bounds": {"h2c": ">=1"}}, "unknown metric 'h2c'; did you mean 'h2d'?"),
        ({"bounds": {"second": "<=1"}}, "unknown metric 'second'; did you mean 'seconds'?"),
        ({"bounds": {"seconds": "fast"}}, "invalid bound 'fast'; use for example <=30s or >=48 GB/s"),
    ],
)
def test_names_that_are_wrong_are_errors_with_their_place(reading: World, fields: dict, message: str) -> None:
    runtime(reading, {"command": "true", **fields})
    error = reading.seatrial("plan", "suite.yaml", check=2).stderr
    assert message in error
    assert "suite.yaml:1:" in error


def test_bounds_and_a_baseline_change_no_hash_and_no_conditions(reading: World) -> None:
    def plan(**fields: object) -> tuple[str, str]:
        runtime(reading, {"name": "x", "command": GOOD, "read": "copy-speed", **fields})
        (cell,) = json.loads(reading.seatrial("plan", "suite.yaml", "--json", check=0).stdout)["cells"]
        reading.seatrial("run", "suite.yaml")
        return cell["hash"], reading.results().cells[0].fingerprint

    plain, bounded, judged = plan(), plan(bounds={"h2d": ">=1"}), plan(baseline="bounds.yaml")
    assert judged == plain  # only the name of a file of bounds
    assert bounded[1] == plain[1]  # what judges does not change what is measured


def test_a_run_entry_has_a_file_of_bounds_of_its_own(reading: World) -> None:
    runtime(
        reading,
        {"name": "x", "command": GOOD, "read": "copy-speed", "baseline": "x.yaml"},
        {"name": "y", "command": GOOD + "; true", "read": "copy-speed"},
    )
    for _ in range(6):
        reading.seatrial("run", "suite.yaml", check=0)
    reading.seatrial("baseline", "update", "suite.yaml", "--reason", "first bounds", "--force")
    text = (reading.folder / "x.yaml").read_text()
    assert "run x.h2d" in text
    assert "run y" not in text
    reading.seatrial("run", "suite.yaml", check=0)
    lower = GOOD.replace("52.5", "30.5")
    reading.suite((reading.folder / "suite.yaml").read_text().replace(json.dumps(GOOD), json.dumps(lower), 1))
    reading.seatrial("run", "suite.yaml", check=1)
    assert str(reading.results().cells[0].verdict) == "slower"


def test_a_part_of_an_output_is_never_kept_for_the_whole(tmp_path: Path) -> None:
    """When the disk is full, or something is there already: a link must not be followed."""
    full, linked, there = tmp_path / "a" / "full.txt", tmp_path / "a" / "linked.txt", tmp_path / "there"
    code = f"""
import resource, signal
from seatrial.agent.masking.mask import Mask
from seatrial.agent.run.child import Output
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
output = Output(Mask(), {str(full)!r})
output.take(b"x" * 900)
output.take(b"y" * 200)
output.take(b"z")
Output(Mask(), {str(linked)!r}).take(b"x")
print(len(output.text()))
"""
    full.parent.mkdir()
    linked.symlink_to(there)
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "1101\n"
    assert not full.exists()
    assert not there.exists()


def test_a_reader_that_cannot_be_imported_is_an_error_in_a_line_and_disturbs_no_other(reading: World) -> None:
    folder = reading.folder / "plugins"
    (folder / "broken-1.dist-info").mkdir(parents=True)
    (folder / "broken-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (folder / "broken-1.dist-info" / "entry_points.txt").write_text("[seatrial.readers]\nbroken = broken_reader\n")
    (folder / "broken_reader.py").write_text("import nothing_there\n")
    reading.env["PYTHONPATH"] = f"{PLUGINS}:{folder}"
    runtime(reading, {"command": "true", "read": "broken"})
    error = reading.seatrial("plan", "suite.yaml", check=2).stderr
    assert "Traceback" not in error
    assert "'broken'" in error
    assert "No module named 'nothing_there'" in error
    runtime(reading, {"command": GOOD, "read": "copy-speed"})
    reading.seatrial("run", "suite.yaml", check=0)
