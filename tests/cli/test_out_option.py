"""`--out`: a run that is elsewhere when it is over, and is read from there as if it were here."""

import json

from seatrial.record import owner_of
from world import World

SUITE = "name: nightly\ntrials:\n  ok: {kind: runtime, run: [echo fine]}\n  bad: {kind: runtime, run: ['false']}\n"


def test_a_run_is_copied_and_read_from_its_address(world: World) -> None:
    world.suite(SUITE)
    out = f"file://{world.folder}/elsewhere"
    done = world.seatrial("run", "suite.yaml", "--out", out, check=1)
    run = world.run().run
    address = f"{out}/{run}"
    assert done.stdout.endswith(f"copied to {address}\n")
    here = json.loads(world.seatrial("report", run, "--json", check=0).stdout)
    world.run().path.rename(world.folder / "moved away")
    world.env["SEATRIAL_CACHE"] = str(world.folder / "cache")
    assert json.loads(world.seatrial("report", address, "--json", check=0).stdout) == here
    shown = world.seatrial("report", address, check=0).stdout
    assert "✗ failed  nightly" in shown
    log = next(line.split()[-1] for line in shown.splitlines() if line.startswith("  log"))
    assert (world.folder / log).is_file()
    assert "no verdict changed" in world.seatrial("compare", address, address, check=0).stdout
    assert "\nfine\n" in world.seatrial("logs", address, "ok", check=0).stdout
    assert "is a read-only copy" in world.seatrial("attach", address, check=2).stderr
    assert "add one of its runs to the URL: " + run in world.seatrial("report", out, check=2).stderr


def test_a_copy_that_failed_is_no_success_and_attach_makes_it(world: World) -> None:
    out = world.folder / "elsewhere"
    # The place is taken away while the run goes on: a file stands where its folder was.
    world.suite(f"name: s\ntrials:\n  ok: {{kind: runtime, run: ['mv {out} {out}.gone && touch {out}']}}\n")
    done = world.seatrial("run", "suite.yaml", "--out", "elsewhere", check=3)
    assert "files were not copied to" in done.stderr
    assert f"`seatrial attach {world.run().run}` to copy the missing files" in done.stderr
    assert world.verdicts() == {"ok": "passed"}
    out.unlink()
    world.seatrial("attach", str(world.run().path), check=0)
    assert (out / world.run().run / "results.json").is_file()


def test_a_place_that_cannot_be_written_is_said_before_anything_runs(world: World) -> None:
    world.suite(f"name: s\ntrials:\n  ok: {{kind: runtime, run: ['touch {world.folder}/ran']}}\n")
    assert "pip install" in world.seatrial("run", "suite.yaml", "--out", "s3://bucket/runs", check=2).stderr
    secret = world.seatrial("run", "suite.yaml", "--out", "ftp://me:hunter2@host/runs", check=2).stderr
    assert "hunter2" not in secret
    assert "it would be stored with the password" in secret
    assert not (world.folder / "runs").exists()
    assert not (world.folder / "ran").exists()


def test_a_detached_run_is_copied_by_the_process_that_runs_it(world: World) -> None:
    world.suite(SUITE)
    world.seatrial("run", "suite.yaml", "--detach", "--out", str(world.folder / "elsewhere"), "--select", "ok", check=0)
    world.seatrial("attach", "last", check=0)
    owner = owner_of(world.run().path)
    assert owner is None or not owner.alive()
    assert (world.folder / "elsewhere" / world.run().run / "results.json").is_file()
