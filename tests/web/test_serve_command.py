"""`seatrial serve` as a command: a process of its own, its end, its errors, and the pages as files."""

import contextlib
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from seatrial.cli import main
from seatrial.job import Verdict
from web.conftest import cell_result, finished_run

SEATRIAL = Path(sys.executable).with_name("seatrial")


@pytest.fixture
async def filled(runs: Path) -> Path:
    await finished_run(runs, "nightly-1", [cell_result("train", n) for n in range(3)])
    bad = [cell_result("train", n, Verdict.FAILED if n == 1 else Verdict.PASSED) for n in range(3)]
    folder = await finished_run(runs, "nightly-2", bad, at_s=1_700_086_400.0)
    (folder.attempt("00000001", 1) / "job.json").write_text('{"env": {"TOKEN": "do-not-show"}}')
    (folder.attempt("00000001", 1) / "files").mkdir()
    (folder.attempt("00000001", 1) / "files" / "page.html").write_text("<script>alert(1)</script>")
    return runs


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_told_to_end(filled: Path, number: signal.Signals) -> None:
    argv = [SEATRIAL, "serve", "--port", "0", "--runs", filled]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:\d+/", line)
            assert found, line
            with urllib.request.urlopen(found[0], timeout=600) as answer:
                assert b"nightly-2" in answer.read()
            following = urllib.request.urlopen(f"{found[0]}events", timeout=600)
            assert following.readline().startswith(b"id: ")
            process.send_signal(number)
            _, errors = process.communicate(timeout=600)
            following.close()
        finally:
            process.kill()
    assert process.returncode == 0
    assert errors == "", "a page that is being followed does not hold it"


@pytest.mark.parametrize("files", [256, 40], ids=["below the limit", "out of descriptors"])
def test_idle_connections_keep_nobody_out_and_do_not_fill_the_log(filled: Path, tmp_path: Path, files: int) -> None:
    """With 40 file descriptors some connections cannot be accepted until others are closed."""
    serve = f'ulimit -n {files} && exec "{SEATRIAL}" serve --port 0 --runs "{filled}"'
    log = tmp_path / "stderr"
    with (
        log.open("w") as errors,
        subprocess.Popen(["sh", "-c", serve], stdout=subprocess.PIPE, stderr=errors, text=True) as process,
        contextlib.ExitStack() as idle,
    ):
        try:
            assert process.stdout is not None
            found = re.search(r"http://127\.0\.0\.1:(\d+)/", process.stdout.readline())
            assert found
            for number in range(300):
                connection = idle.enter_context(socket.create_connection(("127.0.0.1", int(found[1])), timeout=600))
                if number % 2:
                    connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")  # never completed
            for _ in range(3):
                with urllib.request.urlopen(found[0], timeout=600) as answer:
                    assert b"nightly-2" in answer.read()
        finally:
            process.kill()
    assert log.stat().st_size < 2_000, log.read_text()[:2_000]


def test_a_port_that_is_in_use_is_an_error_with_advice(filled: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        argv = [SEATRIAL, "serve", "--port", str(port), "--runs", filled]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=600)
    assert done.returncode == 2
    assert f"port {port} on 127.0.0.1 is in use" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--host", "0.0.0.0"], "0.0.0.0 is reachable from other machines and needs a token"),
        (["--host", "0.0.0.0", "--token-file", "/does/not/exist"], "cannot read /does/not/exist"),
        (["--port", "70000"], "70000 is not in the range"),
        (["--host", "no.such.host.invalid"], "needs a token"),
    ],
)
def test_what_cannot_be_served_is_said(filled: Path, args: list[str], said: str) -> None:
    done = CliRunner().invoke(main, ["serve", "--runs", str(filled), *args])
    assert done.exit_code == 2
    assert said in done.output


def test_pages_as_files_have_no_link_that_leads_nowhere(filled: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    done = CliRunner().invoke(main, ["serve", "--runs", str(filled), "--public", str(site)])
    assert done.exit_code == 0, done.output
    found = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    assert {"index.html", "s/nightly.html", "r/nightly-2.html", "c/nightly/00000001.html"} <= found
    assert "d/nightly-1..nightly-2.html" in found
    assert "r/nightly-2/file/cells/00000001/1/log.html" in found
    links = 0
    for name in found:
        if name.endswith(".html"):
            for link in re.findall(r'href="([^"#]+)', (site / name).read_text()):
                assert not link.startswith(("/", "http")), f"{name}: {link}"
                assert ((site / name).parent / link).resolve().is_file(), f"{name}: {link}"
                links += 1
    assert links > 30


def test_nothing_that_was_submitted_is_in_pages_as_files(filled: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    CliRunner().invoke(main, ["serve", "--runs", str(filled), "--public", str(site)])
    for path in site.rglob("*"):
        assert path.name not in ("job.json", "page.html", "plan.json", "journal.jsonl", "history.db")
        if path.is_file():
            assert b"do-not-show" not in path.read_bytes(), path
            assert b"data-live" not in path.read_bytes(), "nobody would answer"
            assert path.stat().st_mode & 0o777 == 0o644


def test_pages_as_files_are_written_over_older_ones(filled: Path, tmp_path: Path) -> None:
    argv = ["serve", "--runs", str(filled), "--public", str(tmp_path / "site")]
    first = CliRunner().invoke(main, argv)
    assert CliRunner().invoke(main, argv).output == first.output
    (tmp_path / "blocked").write_text("a file")
    done = CliRunner().invoke(main, [*argv[:-1], str(tmp_path / "blocked" / "site")])
    assert done.exit_code == 3
    assert "Not a directory" in done.output
