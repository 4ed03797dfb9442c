"""The pages of the dashboard over real HTTP: each shows what it is for, and damage of one run is the damage of one."""

import html
import os
import re
import shutil
from pathlib import Path

import msgspec
import pytest

from seatrial.job import Verdict
from seatrial.record import RunFolder
from seatrial.record.history import open_history
from seatrial.web.files import slug
from web.conftest import Client, cell_result, finished_run, results, serving, write_journal, write_plan, write_results


async def test_the_first_page_shows_suites_and_runs(client: Client) -> None:
    page = await client.get("/")
    assert page.status == 200
    for shown in ("nightly-1", "nightly-2", "No runs in progress.", 'href="s/nightly"'):
        assert shown in page.text


async def test_a_suite_shows_its_cells_over_its_runs(client: Client) -> None:
    page = await client.get("/s/nightly")
    assert "6 cells over 2 runs" in page.text
    assert "1 of 2 passed, 1 failed" in page.text
    assert page.text.index("n=4]") < page.text.index("n=0]"), "trouble comes first"
    assert 'href="../c/nightly/00000004"' in page.text


async def test_a_cell_is_shown_through_time_with_its_metrics(client: Client) -> None:
    page = await client.get("/c/nightly/00000004")
    assert page.text.count("CUDA out of memory") == 1
    assert 'href="../../r/nightly-2#cell/00000004"' in page.text
    assert f'href="../../f/{slug("train[mode=b,n=4]")}/step_time"' in page.text
    assert "seatrial run suite.yaml --select /00000004" in page.text


async def test_the_command_that_reruns_a_cell_has_the_options_of_its_run(client: Client, runs: Path) -> None:
    folder = RunFolder(runs / "nightly-2")
    kept = folder.read_results()
    assert kept is not None
    folder.write_results(msgspec.structs.replace(kept, target="far", overrides=["name=it's"]))
    page = await client.get("/c/nightly/00000004")
    command = """seatrial run suite.yaml --target far --set 'name=it'"'"'s' --select /00000004"""
    assert command in html.unescape(page.text)
    shutil.rmtree(folder.path)
    assert "seatrial run suite.yaml --select /00000004" in (await client.get("/c/nightly/00000004")).text


async def test_a_metric_is_found_by_its_name_and_by_its_address(client: Client) -> None:
    named = await client.get("/f/train%5Bmode=b,n=4%5D/step_time")
    assert named.status == 200
    assert "step_time" in named.text
    assert (await client.get(f"/f/{slug('train[mode=b,n=4]')}/step_time")).text == named.text


async def test_two_runs_are_compared(client: Client) -> None:
    page = await client.get("/d/nightly-1..nightly-2")
    assert page.status == 200
    assert "1 of 6 cells changed" in page.text
    assert (await client.get("/d/nightly-1..nightly-9")).status == 404
    assert (await client.get("/d/nightly-1")).status == 404


async def test_a_finished_run_is_its_report_and_its_pieces_are_fetched(client: Client) -> None:
    page = await client.get("/r/nightly-2")
    assert "1 of 6 cells needs attention" in page.text
    assert 'data-fetch="nightly-2/piece/"' in page.text
    piece = await client.get("/r/nightly-2/piece/cell/00000004")
    assert "CUDA out of memory" in piece.text
    assert (await client.get("/r/nightly-2/piece/cell/ffffffff")).status == 404


async def test_files_of_attempts_are_sent_as_they_are(client: Client) -> None:
    log = await client.get("/r/nightly-2/file/cells/00000004/1/log.txt")
    assert log.text == "the end of the log\n"
    assert log.headers["Content-Type"].startswith("text/plain")


async def test_a_log_is_a_page_of_its_own(client: Client) -> None:
    page = await client.get("/log/nightly-2/00000004/1")
    assert page.status == 200
    assert 'href="../../../r/nightly-2#cell/00000004"' in page.text
    assert 'href="../../../r/nightly-2/file/cells/00000004/1/log.txt"' in page.text
    beside = await client.get("/r/nightly-2/file/cells/00000004/1/log.html")
    assert 'href="../../../../../nightly-2#cell/00000004"' in beside.text
    assert 'href="../../../../../nightly-2/file/cells/00000004/1/log.txt"' in beside.text
    assert (await client.get("/log/nightly-2/00000004/2")).status == 404


async def test_a_run_whose_folder_is_gone_is_what_the_history_kept(client: Client, runs: Path) -> None:
    shutil.rmtree(runs / "nightly-2")
    page = await client.get("/r/nightly-2")
    assert page.status == 200
    assert "shown from the history" in page.text
    assert "CUDA out of memory" in page.text
    assert "nightly-2" not in (await client.get("/")).text.partition("Finished runs")[2]


@pytest.mark.parametrize("name", ["results.json", "plan.json", "journal.jsonl"])
async def test_what_is_damaged_is_said_and_the_rest_is_shown(client: Client, runs: Path, name: str) -> None:
    (runs / "nightly-2" / name).write_bytes(b'{"no": "thing"\n\x00 that was written here\nbefore\n')
    os.utime(runs / "nightly-2")
    assert (await client.get("/r/nightly-1")).status == 200
    assert (await client.get("/s/nightly")).status == 200
    assert (await client.get("/")).status == 200
    page = await client.get("/r/nightly-2")
    assert page.status == 200
    if name == "results.json":
        assert "Cannot show the results" in page.text
        assert (await client.get("/d/nightly-1..nightly-2")).status == 404


async def test_a_folder_without_a_plan_is_said_to_be_no_run(client: Client, runs: Path) -> None:
    (runs / "empty").mkdir()
    page = await client.get("/r/empty")
    assert page.status == 404
    assert "empty is not a run: its folder has no plan.json." in page.text
    (runs / "nightly-2" / "plan.json").unlink()
    assert (await client.get("/r/nightly-2")).status == 200  # its report needs no plan
    (runs / "nightly-2" / "results.json").write_text("{")
    page = await client.get("/r/nightly-2")
    assert page.status == 404
    assert "Cannot show the results" in page.text
    assert (await client.get("/")).status == 200


async def test_a_damaged_journal_of_a_run_without_results_is_said(runs: Path) -> None:
    cells = [cell_result("train", n) for n in range(3)]
    folder = write_plan(runs, "nightly-3", cells)
    await write_journal(folder, cells, finished=False)
    lines = folder.journal.read_bytes().splitlines(keepends=True)
    folder.journal.write_bytes(b"".join([*lines[:5], lines[5].replace(b"event", b"tneve"), *lines[6:]]))
    async with serving(runs) as client:
        page = await client.get("/r/nightly-3")
        assert page.status == 200
        assert "journal.jsonl:6: damaged line" in page.text
        assert "damaged" in (await client.get("/")).text


async def test_a_damaged_history_is_said_and_runs_are_still_shown(client: Client, runs: Path) -> None:
    for path in runs.glob("history.db*"):
        path.write_bytes(b"this is no database, and it never was one" * 100)
    home = await client.get("/")
    assert home.status == 200
    assert "file is not a database" in home.text
    assert "nightly-2" in home.text
    assert (await client.get("/r/nightly-2")).status == 200
    assert "Compared without the history" in (await client.get("/d/nightly-1..nightly-2")).text
    suite = await client.get("/s/nightly")
    assert suite.status == 503
    assert "file is not a database" in suite.text


async def test_a_run_that_is_deleted_while_it_is_open_is_said_to_be_gone(client: Client, runs: Path) -> None:
    assert (await client.get("/r/nightly-2")).status == 200
    shutil.rmtree(runs / "nightly-2")
    assert (await client.get("/r/nightly-2/piece/cell/00000004")).status == 404
    assert (await client.get("/r/nightly-2/file/cells/00000004/1/log.txt")).status == 404
    assert (await client.get("/r/nightly-2/events")).status == 404


async def test_nights_of_another_tool_are_one_run_each_and_marked(runs: Path) -> None:
    history = open_history(runs / "history.db")
    for night in range(3):
        for number in range(4):
            verdict = Verdict.FAILED if (night, number) == (2, 1) else Verdict.PASSED
            at_s = 1_700_000_000.0 + night * 86_400 + number
            history.add(
                results(f"imported-ab1{number}-row{night}", [cell_result("train", number, verdict)], at_s, "imported")
            )
    async with serving(runs) as client:
        home = await client.get("/")
        assert '<span class="tag">imported</span>' in home.text
        page = await client.get("/s/imported")
        assert "4 cells over 3 nights" in page.text
        night = await client.get("/r/imported-2023-11-16")
        assert "imported" in night.text
        assert night.text.count("n=") >= 4
        assert (await client.get("/r/imported-2023-11-20")).status == 404
        assert (await client.get("/r/imported-ab11-row2")).text == night.text, "a row of it leads to its night"


async def test_ten_thousand_runs_are_listed_without_reading_them_all(runs: Path) -> None:
    empty = runs / "history.db-none"
    empty.write_bytes(b"{}")
    for number in range(10_000):
        folder = f"{runs}/old-{number:05}"
        os.mkdir(folder)
        os.link(empty, f"{folder}/plan.json")
        os.link(empty, f"{folder}/results.json")
    await finished_run(runs, "nightly-1", [cell_result("train", 1)])
    async with serving(runs) as client:
        page = await client.get("/")
        assert "and 9,951 older" in page.text
        assert len(page.text) < 200_000
        second = await client.get(f"/{older(page.text)}")
        assert "and 9,901 older" in second.text
        assert (await client.get("/r/nightly-1")).status == 200


def older(page: str) -> str:
    """Where the link to what is older leads; empty without one."""
    found = re.search(r'rel="next" href="([^"]+)"', page)
    return found[1] if found else ""


@pytest.mark.parametrize(("path", "pages"), [("/", 3), ("/s/nightly", 4), ("/c/nightly/00000001", 2)])
async def test_every_run_of_a_long_list_is_on_one_of_its_pages(runs: Path, path: str, pages: int) -> None:
    found = [results(f"nightly-{number:03}", [cell_result("train", 1)], 1e9 + number) for number in range(130)]
    open_history(runs / "history.db").add(*found)
    for number, one in enumerate(found):
        folder = write_plan(runs, one.run, one.cells)
        write_results(folder, one)
        os.utime(folder.plan, (1e9 + number, 1e9 + number))
    async with serving(runs) as client:
        made, query = [], ""
        while query or not made:
            page = await client.get(path + query)
            assert page.status == 200
            listed = page.text.partition("Finished runs")[2] if path == "/" and not made else page.text
            made.append(set(re.findall(r'href="(?:\.\./)*r/(nightly-\d+)', listed)))
            query = older(page.text)
        assert len(made) == pages
        assert sum(len(one) for one in made) == 130
        assert set().union(*made) == {one.run for one in found}
        assert "data-live" not in page.text
        assert ">Show the newest</a>" in page.text
        for before in ("nightly-000", "no-such-run", "%00", "%22%3E%3Cscript%3E"):
            answer = await client.get(f"{path}?before={before}")
            assert answer.status == 404
            assert "<script>" not in answer.text.partition("<main")[2]


async def test_an_empty_folder_says_what_to_do(tmp_path: Path) -> None:
    async with serving(tmp_path / "none-yet") as client:
        page = await client.get("/")
        assert page.status == 200
        assert "seatrial run SUITE" in page.text
