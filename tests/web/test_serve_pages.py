"""The pages of the dashboard over real HTTP: each shows what it is for, and damage of one run is the damage of one."""

import html
import os
import re
import shutil
import time
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest

from seatrial.checks import find_causes
from seatrial.job import Verdict
from seatrial.record import RunFolder
from seatrial.record.history import open_history
from seatrial.web.files import slug
from web.conftest import Client, cell_result, finished_run, results, serving, write_journal, write_plan, write_results
from web.month import DRIVER, Month


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
    assert '1 newly failing, 0 still failing, 0 fixed <span class="dim">of 6 cells in both runs' in page.text
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


async def test_the_home_page_says_what_needs_attention_and_filters_it(runs: Path) -> None:
    month = Month(runs)
    history = open_history(runs / "history.db")
    history.add(*month.past())
    async with serving(runs) as client:
        page = await client.get("/")
        text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", page.text.partition("<main")[2].partition("</main>")[0]))
        assert f"New cause {DRIVER}" in text
        assert "nightly · 14 cells · torch-2.9-cu130 · A100-40x1" in text
        assert re.search(r"9 unreviewed alerts 3 benchmarks slower: step_time \+[67][.\d]* % to \+[89][.\d]* %", text)
        assert "196 of 211 OK" in text
        day = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", (await client.get("/?range=24h")).text))
        assert f"Failing {DRIVER}" in day, "it began earlier, and fails now"
        assert "9 unreviewed alerts" in day
        assert "New cause" not in day
        longest = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", (await client.get("/?range=all")).text))
        assert f"New cause {DRIVER}" in longest
        assert "Failing ncclSystemError" in longest, "the first run has it, so it is not new"
        assert page.text.count('class="bad"') > 3
        assert "smoke[model=whisper,machine=L4-24x1] in 5 of 30 runs" in (await client.get("/?range=30d")).text
        only = (await client.get("/?range=all&suite=demo")).text
        assert ">demo</a>" in only
        assert "9 of 9 OK" in only
        assert ">training</a>" not in only
        assert "No runs match" in (await client.get("/?target=other")).text
        assert "Nothing needs attention" in (await client.get("/?verdict=passed")).text
        assert (await client.get("/?range=%00&suite=%3Cb%3E")).status == 200


async def test_a_run_with_one_failure_of_many_is_not_solid_red(runs: Path) -> None:
    cells = [cell_result("train", n, Verdict.FAILED if n == 7 else Verdict.PASSED) for n in range(200)]
    open_history(runs / "history.db").add(results("nightly-1", cells, at_s=time.time()))
    async with serving(runs) as client:
        (bar,) = re.findall(r'<rect class="bad"[^>]*height="([\d.]+)"', (await client.get("/")).text)
    assert float(bar) == 3


async def test_search_finds_runs_cells_commits_and_causes(runs: Path) -> None:
    history = open_history(runs / "history.db")
    cells = [cell_result("train", n, Verdict.FAILED if n == 2 else Verdict.PASSED) for n in range(4)]
    found = msgspec.structs.replace(results("nightly-1", cells), causes=find_causes(cells), commit="0ff1ce77aa")
    history.add(found, results("100%_sure", cells, suite="other"))
    async with serving(runs) as client:

        async def links(words: str) -> list[str]:
            page = await client.get(f"/search?q={quote(words)}")
            assert page.status == 200
            return re.findall(r'<td[^>]*><a href="([^"]+)"', page.text)

        (cause,) = found.causes
        assert await links("OUT OF memory") == [f"r/nightly-1#cause/{cause.id}", "s/nightly"]
        assert "c/nightly/00000001" in await links("mode=b,n=1")
        assert "c/nightly/00000003" in await links("00000003")
        assert "r/nightly-1" in await links("0ff1ce")
        assert "r/100%25_sure" in await links("100%_")
        assert await links("100_") == [], "an underscore is only itself"
        assert await links("<script>alert(1)</script>") == []
        page = await client.get("/search?q=%3Cscript%3Ealert(1)%3C/script%3E")
        assert "&lt;script&gt;alert(1)" in page.text
        assert "<script>alert(1)" not in page.text


async def test_a_comparison_keeps_fixed_new_and_old_failures_apart(runs: Path) -> None:
    for number, failing in ((1, (0, 1)), (2, (1, 2, 3))):
        cells = [cell_result("train", n, Verdict.FAILED if n in failing else Verdict.PASSED) for n in range(5)]
        folder = await finished_run(runs, f"nightly-{number}", cells)
        write_results(folder, msgspec.structs.replace(results(folder.run, cells), causes=find_causes(cells)))
    async with serving(runs) as client:
        page = (await client.get("/d/nightly-1..nightly-2")).text
    sections = {
        found[1]: found[0] for found in re.findall(r'(<section.*?<h2 id="([a-z-]+)">.*?</section>)', page, re.DOTALL)
    }
    assert re.findall(r"#cell/(\d+)", sections["newly-failing"]) == ["00000002", "00000003"]
    assert re.findall(r"r/nightly-2#cell/(\d+)", sections["still-failing"]) == ["00000001"]
    assert re.findall(r"r/nightly-1#cell/(\d+)", sections["fixed"]) == ["00000000"]
    assert re.search(
        r'<a href="../r/nightly-2#cause/[0-9a-f]{6}">RuntimeError: CUDA out of memory', sections["newly-failing"]
    )
