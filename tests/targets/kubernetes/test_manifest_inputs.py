"""The files that jobs find in pods: packed the same each time, bounded, and refused in words that help."""

import base64
import io
import os
import shutil
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest
from manifest_shapes import NAMESPACE, OWNER

from seatrial.job import Input, Outcome
from seatrial.targets.kubernetes import manifest
from seatrial.targets.kubernetes.manifest import run as packing
from seatrial.targets.protocol import TargetError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work space"
    (made / "deep" / "empty").mkdir(parents=True)
    (made / "run.sh").write_text("#!/bin/sh\n")
    (made / "run.sh").chmod(0o700)
    (made / "deep" / "größe.txt").write_text("9")
    (made / "deep" / "secret.txt").write_text("x")
    (made / "deep" / "secret.txt").chmod(0o400)
    (made / "link").symlink_to("deep/größe.txt")
    (made / "absolute").symlink_to("/usr/bin/env")
    (made / ("long" * 50)).write_text("long")
    return made


def members(archive: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as found:
        listed = found.getmembers()
    assert len({one.name for one in listed}) == len(listed)
    return {one.name: one for one in listed}


def refusal(*inputs: Input) -> str:
    with pytest.raises(TargetError) as raised:
        manifest.inputs_archive(inputs)
    assert raised.value.outcome is Outcome.REFUSED
    return str(raised.value)


@pytest.mark.parametrize("unpack", ["tar", "busybox tar"])
def test_a_folder_comes_out_as_it_went_in(unpack: str, folder: Path, tmp_path: Path) -> None:
    program, *arguments = unpack.split()
    if shutil.which(program) is None:
        pytest.skip(f"needs {program}")
    archive = manifest.inputs_archive([Input(str(folder), ".")])
    out = tmp_path / "out"
    out.mkdir()
    subprocess.run([program, *arguments, "xzf", "-", "-C", str(out)], input=archive, check=True)
    assert subprocess.run(["diff", "-r", "--no-dereference", folder, out], check=False).returncode == 0
    assert stat.S_IMODE((out / "run.sh").stat().st_mode) & 0o111
    assert (out / "deep" / "empty").is_dir()
    assert os.readlink(out / "absolute") == "/usr/bin/env"


def test_the_same_files_give_the_same_archive_whenever_and_wherever(folder: Path, tmp_path: Path) -> None:
    first = manifest.inputs_archive([Input(str(folder), "a")])
    assert first[4:8] == bytes(4)  # where gzip has the time at which it was packed
    other = tmp_path / "elsewhere"
    subprocess.run(["cp", "-R", folder, other], check=True)
    for path in sorted(other.rglob("*")):
        if not path.is_symlink():
            os.utime(path, (1, 1))
    (other / "deep" / "secret.txt").chmod(0o644)
    assert manifest.inputs_archive([Input(str(other), "a")]) == first
    (other / "run.sh").chmod(0o644)
    assert manifest.inputs_archive([Input(str(other), "a")]) != first


def test_whose_files_they_were_is_not_told(folder: Path) -> None:
    for one in members(manifest.inputs_archive([Input(str(folder), "a")])).values():
        assert (one.uid, one.gid, one.uname, one.gname) == (0, 0, "", "")
        assert one.mtime > 315_532_800  # zip files know nothing before 1980


def test_a_file_gets_the_name_and_the_folders_that_were_asked_for(folder: Path) -> None:
    found = members(manifest.inputs_archive([Input(str(folder / "link"), "x/y/z.txt")]))
    assert set(found) == {"x", "x/y", "x/y/z.txt"}
    assert found["x/y/z.txt"].isfile()  # what the link leads to, not the link
    assert found["x"].isdir()


def test_the_later_one_counts_where_two_have_the_same_name(folder: Path) -> None:
    inputs = [Input(str(folder), "."), Input(str(folder / "deep" / "größe.txt"), "run.sh")]
    archive = manifest.inputs_archive(inputs)
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as found:
        file = found.extractfile("run.sh")
        assert file is not None
        assert file.read() == b"9"
    assert len(members(archive)) == len(members(manifest.inputs_archive(inputs[:1])))


def test_a_folder_and_a_file_at_one_place_are_refused(folder: Path) -> None:
    message = refusal(Input(str(folder), "."), Input(str(folder / "run.sh"), "deep"))
    assert "two inputs have the path 'deep', and only one is a folder" in message
    assert "two inputs have the path 'run.sh'" in refusal(
        Input(str(folder), "."), Input(str(folder / "run.sh"), "run.sh/x")
    )


def test_what_must_be_there_and_is_not_is_refused_and_what_may_be_missing_is_not(tmp_path: Path) -> None:
    missing = tmp_path / "nothing"
    assert refusal(Input(str(missing), "a")) == f"input not found: {missing}"
    (tmp_path / "dangling").symlink_to(missing)
    assert "not found" in refusal(Input(str(tmp_path / "dangling"), "a"))
    assert manifest.inputs_archive([Input(str(missing), "a", required=False)]) == b""
    assert manifest.inputs_archive([]) == b""


@pytest.mark.parametrize("path", ["/etc/passwd", "../up", "a/../../b"])
def test_nothing_lies_outside_the_work_folder(path: str, folder: Path) -> None:
    assert "is outside the work folder" in refusal(Input(str(folder / "run.sh"), path))


def test_what_is_no_file_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "in" / "pipe"
    pipe.parent.mkdir()
    os.mkfifo(pipe)
    assert "is neither a file nor a folder" in refusal(Input(str(pipe), "a"))
    assert f"input {pipe} is neither a file, a folder nor a link" in refusal(Input(str(pipe.parent), "a"))
    (tmp_path / "device").mkdir()
    (tmp_path / "device" / "link").symlink_to("/dev/zero")  # a link is a link, wherever it leads
    assert "a/link" in members(manifest.inputs_archive([Input(str(tmp_path / "device"), "a")]))


def test_a_folder_that_links_to_itself_ends(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "again").symlink_to(tmp_path / "in")
    assert set(members(manifest.inputs_archive([Input(str(tmp_path / "in"), "a")]))) == {"a", "a/again"}
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(TargetError):
        manifest.inputs_archive([Input(str(tmp_path / "loop"), "a")])


def test_what_cannot_be_read_is_told_and_may_be_tried_again() -> None:
    """Root reads everything; but a file of the kernel has less in it than it says, as one that is being cut has."""
    cut = "/sys/kernel/uevent_seqnum"
    with pytest.raises(TargetError, match=f"cannot read input {cut}: ") as raised:
        manifest.inputs_archive([Input(cut, "a")])
    assert raised.value.outcome is Outcome.INFRA


def test_names_that_are_not_utf8_arrive(tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    out.mkdir()
    (folder / os.fsdecode(b"\xff\xfe")).write_text("x")
    subprocess.run(["tar", "xzf", "-", "-C", out], input=manifest.inputs_archive([Input(str(folder), ".")]), check=True)
    assert os.listdir(os.fsencode(out)) == [b"\xff\xfe"]


def test_too_much_is_refused_with_what_to_do_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert packing.INPUT_BYTES == 16 << 20
    monkeypatch.setattr(packing, "INPUT_BYTES", 1 << 20)
    big = tmp_path / "big"
    big.write_bytes(os.urandom((1 << 20) + (1 << 16)))
    message = refusal(Input(str(big), "big"))
    assert "more than 1 MiB packed" in message
    assert "add them to the image, clone them in the job (`workspace: {git: ...}`), or mount a volume" in message


def test_much_that_packs_well_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with open(tmp_path / "holes", "wb") as file:
        file.truncate(1 << 40)
    assert "more than 1024 MiB" in refusal(Input(str(tmp_path), "."))


def test_many_files_that_pack_well_are_refused_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MOST_UNPACKED_BYTES", 1 << 20)
    for number in range(3):
        (tmp_path / str(number)).write_bytes(bytes(500 << 10))
    assert "the inputs are more than 1 MiB" in refusal(Input(str(tmp_path), "."))


# ---- in ConfigMaps


def test_parts_together_are_the_archive_and_each_fits_into_a_config_map() -> None:
    archive = os.urandom(2_000_000)
    configs = manifest.input_configs("nightly-1", archive, OWNER, NAMESPACE)
    parts = [base64.b64decode(config["binaryData"]["part"]) for config in configs]
    assert b"".join(parts) == archive
    assert max(map(len, parts)) < 900 << 10
    assert len({config["metadata"]["name"] for config in configs}) == len(configs) == 3


def test_the_name_of_a_part_follows_from_its_content_and_its_run() -> None:
    def name(archive: bytes, run: str = "nightly-1") -> str:
        return str(manifest.input_configs(run, archive, OWNER, NAMESPACE)[0]["metadata"]["name"])

    assert name(b"a") == name(b"a")
    assert len({name(b"a"), name(b"b"), name(b"a", "nightly-2"), name(b"a", "n" * 100)}) == 4


def test_the_agent_has_another_name_when_it_is_another() -> None:
    first, second = (manifest.agent_configs("r", agent, OWNER, NAMESPACE)[0] for agent in (b"first", b"second"))
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert base64.b64decode(first["binaryData"]["agent.pyz"]) == b"first"
    assert set(first["data"]) >= {"start.sh", "keep.sh"}
    assert first["immutable"] is True
