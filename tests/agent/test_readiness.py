"""How the agent finds out that a job's port answers: by a connection or by a GET, and never waiting for the server."""

import contextlib
import random
import socket
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from supervised import Supervised, until

from seatrial.job import Outcome, Step, read_records


@pytest.fixture
def port() -> Iterator[int]:
    """Free, and kept from everybody who looks for such a one: a server that reuses addresses can listen there."""
    with socket.socket() as held:
        while not held.getsockname()[1]:
            with contextlib.suppress(OSError):
                held.bind(("127.0.0.1", random.randint(20_000, 29_999)))
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        yield held.getsockname()[1]


def answering(port: int, answers: list[bytes], asked: Path, end: str = "connection.close()") -> str:
    """A server that counts who asks, and gives these answers, one after the other; the last one for ever."""
    return textwrap.dedent(f"""
        exec python3 -S - <<'END'
        import socket
        server = socket.create_server(("127.0.0.1", {port}))
        answers, open_ones = {answers!r}, []
        while True:
            connection, _ = server.accept()
            with open("{asked}", "a") as file:
                file.write("x")
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            connection.recv(1000) if answer else None
            connection.sendall(answer)
            open_ones.append(connection)
            {end}
        END
    """)


@pytest.mark.parametrize("status", [200, 399])
def test_a_good_status_is_ready(job: Supervised, tmp_path: Path, port: int, status: int) -> None:
    command = answering(port, [f"HTTP/1.1 {status} Fine\r\n\r\n".encode()], tmp_path / "asked")
    job.start(command, ready={"port": port, "path": "/"})
    until(lambda: job.records("ready"))
    job.stop()
    assert len(job.records("ready")) == 1
    read = read_records((job.folder / "records.jsonl").read_bytes().splitlines(), [Step("run server", "command")])
    assert (read.broken_records, read.steps[0].outcome) == (0, Outcome.CANCELLED)
    (begin,), (ready,), (end,) = job.records("begin"), job.records("ready"), job.records("end")
    assert begin["at_s"] < ready["at_s"] < end["at_s"]


def test_any_other_answer_is_not_ready_and_is_asked_again(job: Supervised, tmp_path: Path, port: int) -> None:
    bad = [
        b"HTTP/1.1 400 Bad\r\n\r\n", b"HTTP/1.1 503 Not yet\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n",
        b"SSH-2.0-OpenSSH_9\r\n", b"HTTP/1.1\r\n", b"HTTP/1.1 2x0\r\n", b"x" * 20_000, b"HTTP/1.1 200",
        b"HTTP/1.1 %s OK\r\n\r\n" % (b"2" * 5000),  # more digits than Python turns into a number
    ]  # fmt: skip
    asked = tmp_path / "asked"
    command = answering(port, [*bad, b"HTTP/1.1 200 OK\r\n\r\n"], asked)
    job.start(command, ready={"port": port, "path": "/"})
    until(lambda: job.records("ready"))
    job.stop()
    assert asked.stat().st_size > len(bad)


def test_an_accepted_connection_is_ready_where_there_is_no_path(job: Supervised, tmp_path: Path, port: int) -> None:
    job.start(answering(port, [b""], tmp_path / "asked"), ready={"port": port, "path": ""})
    until(lambda: job.records("ready"))
    job.stop()


def test_a_server_that_accepts_and_never_answers_hangs_nothing(job: Supervised, tmp_path: Path, port: int) -> None:
    """Output is still read, limits still count, the end still comes."""
    asked = tmp_path / "asked"
    server = answering(port, [b""], asked, end="pass").replace("exec ", "")
    command = f"({server}\n) & while ! test -e {asked}; do sleep 0.02; done; yes | head -c 3000000; echo over"
    end = job.run(command, "echo next", ready={"port": port, "path": "/"})
    assert (end["outcome"], end["code"]) == ("exited", 0)
    assert b"over\n" in job.log()
    assert b"next\n" in job.log()
    assert job.records("ready") == []


def test_it_holds_over_several_steps_and_ends_with_them(job: Supervised, tmp_path: Path, port: int) -> None:
    asked = tmp_path / "asked"
    server = answering(port, [b"HTTP/1.0 200 OK\r\n\r\n"], asked).replace("exec ", "")
    known = f"""while ! grep -q '"event":"ready"' {job.folder}/records.jsonl; do sleep 0.02; done"""
    end = job.run(f"(sleep 0.3; {server}\n) &", known, ready={"port": port, "path": "/"})
    assert end["outcome"] == "exited"
    assert len(job.records("ready")) == 1


def test_a_job_that_is_cancelled_is_asked_no_more(job: Supervised, port: int) -> None:
    late = f"trap 'python3 -m http.server --bind 127.0.0.1 {port}' TERM; echo up; while :; do sleep 0.02; done"
    job.start(late, ready={"port": port, "path": ""})
    until(lambda: b"\nup\n" in job.log())
    job.stop()
    assert job.records("ready") == []
