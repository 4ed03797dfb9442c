"""How a pod's files come home: bounded, and what is over is named; also from images that lack things."""

import io
import json
import os
import subprocess
import tarfile
from pathlib import Path

import pytest
from on_cluster import job, opened

from cluster.cluster import Cluster
from seatrial.job import Records, Unkept, read_records
from seatrial.targets.agent_file import agent_bytes
from seatrial.targets.kubernetes import collect, names
from seatrial.targets.kubernetes.collect import PACK
from seatrial.targets.kubernetes.manifest.pod import script
from targets.contract import until_exit


def packed(place: Path, *most: int) -> dict[str, bytes | None]:
    """What the command that is run in keepers packs; twice, for a fetch that was cut goes on where it stopped."""
    command = [part.replace(names.PLACE, str(place)) for part in PACK]
    first, second = (
        subprocess.run([*command, *map(str, most)], capture_output=True, check=True).stdout for _ in range(2)
    )
    assert first == second
    with tarfile.open(fileobj=io.BytesIO(first)) as archive:
        return {
            one.name: found.read() if (found := archive.extractfile(one)) else None
            for one in archive
            if not one.isdir() and not one.issym()
        }


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for folder in ("agent", "volume/out/files/deep"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "agent/start.sh").write_text(script("start"))
    (tmp_path / "agent/agent.pyz").write_bytes(agent_bytes())
    out = tmp_path / "volume/out"
    (out / "records.jsonl").write_bytes(b"{}\n" * 100)
    for name, size in (("a", 10), ("b", 5000), ("deep/c", 10), ("deep/d", 10)):
        (out / "files" / name).write_bytes(os.urandom(size))
    return tmp_path


def test_all_is_packed_within_the_bounds(place: Path) -> None:
    out = place / "volume/out"
    os.link(out / "files/a", out / "files/deep/same")
    os.symlink("nowhere", out / "files/link")
    (out / "files/deep").chmod(0)
    found = packed(place, 100, 1 << 20)
    assert found == {f"./{path.relative_to(out)}": path.read_bytes() for path in out.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("most", "over"),
    [((100, 4000), ["files/b"]), ((2, 1 << 20), ["files/deep/c", "files/deep/d"]), ((0, 0), ["files/a"])],
    ids=["bytes", "files", "none"],
)
def test_what_is_over_is_named_and_nothing_else_is_left_out(
    place: Path, most: tuple[int, int], over: list[str]
) -> None:
    found = packed(place, *most)
    unkept = json.loads(found.pop("./unkept.json") or b"")
    assert unkept["names"][: len(over)] == over
    assert unkept["count"] == len(unkept["names"])
    assert unkept["bytes"] == sum((place / "volume/out" / name).stat().st_size for name in unkept["names"])
    kept = {f"./files/{name}" for name in ("a", "b", "deep/c", "deep/d")} - {f"./{name}" for name in unkept["names"]}
    assert set(found) == {"./records.jsonl", *kept}


@pytest.mark.cluster
async def test_a_pod_that_keeps_more_than_is_fetched_says_so_with_its_records_and_log(
    real_cluster: Cluster, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "OWN_BYTES", 1 << 20)

    async def fetched(image: str, most: str) -> tuple[Records, set[str]]:
        into = tmp_path / image.replace("/", "-")
        into.mkdir()
        wanted = job("cd $SEATRIAL_FILES && echo small > a && head -c 3000000 /dev/zero > b", image=image)
        async with opened(real_cluster, namespace, fetch_size=most) as target:
            handle = await target.submit(wanted, {})
            await until_exit(target, handle)
            for name in ("records.jsonl", "log.txt", "files"):
                await target.fetch(handle, name, into / name)
            await target.remove(handle)
        assert b"head -c" in (into / "log.txt").read_bytes()
        files = {path.name for path in (into / "files").rglob("*")}
        return read_records((into / "records.jsonl").read_bytes().splitlines(), wanted.steps), files

    records, files = await fetched("localhost/python:3", "1Mi")
    assert (records.steps[0].code, records.unkept, files) == (0, (Unkept(1, 3_000_000, ("files/b",)),), {"a"})
    records, files = await fetched("localhost/busybox:1", "1Mi")  # a mere tar cannot choose
    assert (records.steps[0].code, records.unkept, files) == (0, (Unkept(),), set())
