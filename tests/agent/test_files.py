"""What a job made is found and read in a process of its own: right, bounded, and never at the price of the job."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from reads import large_profile
from supervised import Supervised

from seatrial.agent.readers.files import Search, compiled
from seatrial.agent.readers.json_file import ABSENT, find_key


def look(job: Supervised, entries: dict[str, Any], make: str = "true", **args: Any) -> dict[str, Any]:
    """The record `done` of a step `files` after a step that makes them."""
    steps = [
        {"name": "make", "kind": "command", "args": {"command": make}, "timeout_s": 60},
        {
            "name": "files",
            "kind": "read",
            "args": {"roots": [".", "files"], "entries": entries, **args},
            "timeout_s": 60,
        },
        {"name": "after", "kind": "command", "args": {"command": "echo after"}, "timeout_s": 60},
    ]
    job.run(steps=steps)
    done: dict[str, Any] = job.records("done")[1]
    assert job.records("done")[2]["output"] == "after\n"
    return done


def work(job: Supervised) -> Path:
    folder = job.folder / "work"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def one(job: Supervised, name: str, data: bytes, **entry: Any) -> dict[str, Any]:
    """What is told of one file."""
    (work(job) / name).write_bytes(data)
    done = look(job, {"it": {"match": name, **entry}})
    assert done["outcome"] == "exited"
    (found,) = done["result"]["it"]["files"]
    return dict(found)


def test_files_are_found_by_pattern_and_told_with_size_and_time(job: Supervised) -> None:
    make = "mkdir -p a/b ../files/k; echo 12345 > a/b/x.json; echo 1 > x.json; echo > a/x.txt; echo > ../files/k/y.json"
    entries = {
        "all": {"match": "**/*.json"},
        "top": {"match": "*.json"},
        "kept": {"match": "files/**"},
        "none": {"match": "z*"},
    }
    result = look(job, entries, make)["result"]
    assert [file["path"] for file in result["all"]["files"]] == ["a/b/x.json", "files/k/y.json", "x.json"]
    assert [file["path"] for file in result["top"]["files"]] == ["x.json"]
    assert [file["path"] for file in result["kept"]["files"]] == ["files/k/y.json"]
    assert result["none"] == {"count": 0, "files": []}
    first = result["all"]["files"][0]
    assert (first["bytes"], first["error"]) == (6, None)
    begin = job.records("begin")[0]["wall_s"]
    assert begin - 2 < first["modified_s"] < begin + 60


def test_no_link_leads_out_and_none_counts_twice(job: Supervised, tmp_path: Path) -> None:
    (tmp_path / "outside.json").write_text('{"secret": 1}')
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/in.json").write_text("{}")
    folder = work(job)
    (folder / "real.json").write_text("{}")
    (folder / "hidden").mkdir()
    (folder / "hidden/data").write_text("{}")
    (folder / "latest.json").symlink_to("real.json")
    (folder / "renamed.json").symlink_to("hidden/data")
    (folder / "out.json").symlink_to(tmp_path / "outside.json")
    (folder / "folder").symlink_to(tmp_path / "folder")
    (folder / "circle").symlink_to(".")
    (folder / "nowhere.json").symlink_to("nothing")
    os.mkfifo(folder / "pipe.json")
    found = look(job, {"it": {"match": "**/*.json", "reader": "json"}})["result"]["it"]
    assert [file["path"] for file in found["files"]] == ["real.json", "renamed.json"]


def test_of_many_files_all_are_counted_and_the_first_told(job: Supervised) -> None:
    found = look(job, {"it": {"match": "*.x"}}, "seq 1 1200 | sed 's/$/.x/' | xargs touch")["result"]["it"]
    assert found["count"] == 1200
    assert len(found["files"]) == 1000


@pytest.mark.parametrize("bad", ["/etc/*", "../*", "a/../../b"])
def test_a_pattern_that_leads_out_is_refused(job: Supervised, bad: str) -> None:
    assert "invalid file pattern" in look(job, {"it": {"match": bad}})["result"]["it"]["error"]


def test_a_name_that_is_no_text_can_be_told(job: Supervised) -> None:
    Path(os.fsdecode(os.fsencode(work(job)) + b"/\xff.json")).write_text("{}")
    assert look(job, {"it": {"match": "*.json"}})["result"]["it"]["files"][0]["path"] == "\\xff.json"


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("**/*.pb", "a.pb", True), ("**/*.pb", "a/b/c.pb", True), ("*.pb", "a/c.pb", False), ("a/**", "a/b/c", True),
        ("a/*/c", "a/b/c", True), ("a/*/c", "a/b/b/c", False), ("?.pb", "a.pb", True), ("[ab].pb", "b.pb", True),
        ("[!ab].pb", "b.pb", False), ("[!ab].pb", "c.pb", True), ("a.pb", "axpb", False), ("*", "a\nb", True),
        ("[", "[", True), ("a**b", "a/x/b", True), ("x[!/]y", "x/y", False), ("[]].pb", "].pb", True),
    ],
)  # fmt: skip
def test_patterns_of_files(pattern: str, name: str, matches: bool) -> None:
    assert (compiled(pattern).match(name) is not None) == matches


def test_a_broken_pattern_of_files_says_so() -> None:
    with pytest.raises(ValueError, match=r"\[z-a\]"):
        compiled("[z-a]")


def test_the_looking_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.agent.readers.files.MOST_ENTRIES", 10)
    for number in range(20):
        (tmp_path / str(number)).touch()
    search = Search([str(tmp_path)], [""])
    assert len(search.files) == 10
    assert "more than 10" in search.cut


# ---- JSON


def test_values_are_read_by_path(job: Supervised) -> None:
    data = {"a": {"b": [1, 2.5, "x"], "c.d": 3}, "t": True, "n": None, "o": {}, "big": 10**30, "nan": float("nan")}
    keys = ["a.b.0", "a.b.-1", "a.c.d", "t", "n", "o", "big", "nan", "no.such", "a.b.9"]
    found = one(job, "m.json", json.dumps(data).encode(), reader="json", keys=keys)
    assert found["values"] == {
        "a.b.0": 1, "a.b.-1": "x", "a.c.d": 3, "t": "true", "n": None, "o": None, "big": 1e30, "nan": "nan",
        "no.such": None, "a.b.9": None,
    }  # fmt: skip
    assert found["error"] is None


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "the file is empty"),
        (b'{"a": 1', "not JSON: Expecting ',' delimiter at line 1 column 8"),
        (b"\xff\xfe", "not UTF-8 at byte 0"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"a":' * 200_000, "nested too deeply"),
        (b"text", "not JSON: Expecting value at line 1 column 1"),
        (b"\x1f\x8b\x08\x00garbage", "cannot read the file"),
        (gzip.compress(b"{}", mtime=0)[:-9], "cannot read the file: Compressed file ended"),
        (gzip.compress(b" " * (80 << 20), mtime=0), "too large when unpacked"),
    ],
    ids=["empty", "cut", "bytes", "lists", "objects", "text", "no-gzip", "cut-gzip", "bomb"],
)
def test_what_is_no_json_says_so(job: Supervised, data: bytes, error: str) -> None:
    assert error in one(job, "m.json", data, reader="json", keys=["a"])["error"]


def test_hostile_numbers_and_keys_take_no_time(job: Supervised) -> None:
    data = b'{"a": ' + b"9" * 2_000_000 + b', "b": 1, "b": 2, "c": -' + b"8" * 5000 + b', "d": 1e-999}'
    found = one(job, "m.json", data, reader="json", keys=["a", "b", "c", "d"])
    assert found["values"] == {"a": "inf", "b": 2, "c": "-inf", "d": 0}


def test_of_json_lines_the_last_value_of_each_key_counts(job: Supervised) -> None:
    data = b'{"loss": 3, "step": 1}\n\n{"loss": 2}\n{"step": 3}\n{"loss": 1, "st'
    found = one(job, "m.jsonl", data, reader="json", keys=["loss", "step", "x"])
    assert found["values"] == {"loss": 2, "step": 3, "x": None}


def test_json_lines_that_are_broken_in_the_middle_are_an_error(job: Supervised) -> None:
    assert one(job, "m.jsonl", b'{"a": 1}\nnonsense\n{"a": 2}\n', reader="json", keys=["a"])["error"].startswith(
        "line 2"
    )


def test_indexes_are_plain_numbers() -> None:
    for wrong in ("+1", "1_0", "٣", "--1", "", "-", "99999999999"):
        assert find_key([1, 2], [wrong]) is ABSENT


# ---- its process is held to its limits


def test_a_file_that_takes_too_much_memory_is_told_and_the_others_are_read(job: Supervised) -> None:
    folder = work(job)
    (folder / "a.json").write_bytes(b"[" + b"[]," * 10_000_000 + b"[]]")
    (folder / "b.json").write_text('{"a": 1}')
    entry = {"it": {"match": "*.json", "reader": "json", "keys": ["a"]}}
    done = look(job, entry, memory_bytes=100 << 20)
    first, second = done["result"]["it"]["files"]
    assert "more memory" in first["error"]
    assert second["values"] == {"a": 1}
    assert done["peak_memory_bytes"] < 200 << 20


def test_a_file_that_takes_too_long_is_told_and_what_comes_after_is_not_read(job: Supervised) -> None:
    folder = work(job)
    (folder / "a.xplane.pb").write_bytes(large_profile(2_000_000))
    (folder / "b.json").write_text('{"a": 1}')
    entries = {"p": {"match": "*.pb", "reader": "xplane"}, "m": {"match": "*.json", "reader": "json", "keys": ["a"]}}
    result = look(job, entries, seconds=0.3)["result"]
    assert "the read timed out" in result["p"]["files"][0]["error"]
    assert "the read timed out" in json.dumps(result["m"])


def test_a_reader_that_is_killed_says_at_which_file(job: Supervised) -> None:
    """A mapped file that somebody cuts short kills who reads it; here somebody kills it outright."""
    folder = work(job)
    (folder / "a.json").write_text('{"a": 1}')
    (folder / "b.xplane.pb").write_bytes(large_profile(2_000_000))
    (folder / "z.json").write_text("{}")
    entries = {
        "a": {"match": "a.json", "reader": "json", "keys": ["a"]},
        "b": {"match": "b.*", "reader": "xplane"},
        "z": {"match": "z.*", "reader": "json"},
    }
    children = "$(cat /proc/$PPID/task/$PPID/children)"  # of the supervisor: the reader is one of them
    find = f"ls -l /proc/$p/fd 2>/dev/null | grep -q {folder}/b.xplane.pb"
    killer = f"(while :; do for p in {children}; do {find} && kill -9 $p; done; sleep 0.01; done) & true"
    done = look(job, entries, killer)
    assert done["outcome"] == "signal"
    assert done["result"]["a"]["files"][0]["values"] == {"a": 1}
    assert "the reader was killed by SIGKILL" in done["result"]["b"]["files"][0]["error"]
    assert "not searched" in done["result"]["z"]["error"]


def test_a_file_that_is_too_large_is_not_read(job: Supervised) -> None:
    found = one(job, "m.json", b'{"a": 1}', reader="json", keys=["a"], most_bytes=5)
    assert found["error"] == "not read: 8 bytes (limit 5)"


def test_an_unknown_reader_says_so(job: Supervised) -> None:
    assert "reader 'yaml' not found" in one(job, "m.json", b"{}", reader="yaml")["error"]


def test_files_are_read_in_the_foreground_too(agent: Path, tmp_path: Path) -> None:
    """As inside a container."""
    (tmp_path / "m.json").write_text('{"a": 5}')
    entry = {"it": {"match": "m.json", "reader": "json", "keys": ["a"]}}
    steps = [{"name": "files", "kind": "read", "args": {"entries": entry}}]
    folders = {"out": str(tmp_path), "work": str(tmp_path), "files": "f"}
    spec = {"version": 1, "steps": steps, "folders": folders}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    subprocess.run([sys.executable, agent, "run", tmp_path / "spec.json"], capture_output=True, check=True)
    records = [json.loads(line) for line in (tmp_path / "records.jsonl").read_bytes().splitlines()]
    (done,) = [record for record in records if record["event"] == "done"]
    assert done["result"]["it"]["files"][0]["values"] == {"a": 5}
