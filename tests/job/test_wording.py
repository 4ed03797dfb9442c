"""Reworded messages: the id of a cause stays the one of the first wording."""

import hashlib
import re

from seatrial.job import Verdict, cause_id, normalised
from seatrial.job.causes import first_wording, wordings

VALUES = {"a": "torch", "b": "runs/x.log", "c": "h100", "d": "n3", "e": "ImportError: no module"}


def filled(template: str) -> str:
    return re.sub(r"\{([a-z])\}", lambda value: VALUES[value[1]], template)


def test_a_reworded_message_keeps_the_id_of_its_first_wording() -> None:
    rows = wordings()
    assert len(rows) > 900
    for today, first in rows:
        check_row(today, first)


def check_row(today: str, first: str) -> None:
    expected = hashlib.sha256(f"failed {normalised(filled(first))}".encode()).hexdigest()[:6]
    assert cause_id(Verdict.FAILED, filled(today)) == expected
    assert cause_id(Verdict.FAILED, filled(today) + " or not") != expected or today.endswith("}")


def test_a_reworded_message_inside_another_one_keeps_the_id_of_the_first_wording() -> None:
    today = "2 of 3 files: out/1.json has 12 bytes (expected >=1Ki)"
    first = "2 of 3 files: out/1.json has 12 bytes, and should have >=1Ki"
    assert cause_id(Verdict.FAILED, today) == hashlib.sha256(f"failed {normalised(first)}".encode()).hexdigest()[:6]
    for today, first in [
        ("the job timed out and was killed by SIGKILL: x", "the job ran out of time and was ended by SIGKILL: x"),
        ("during this step the job was killed by SIGKILL: x", "during this step the job was killed by SIGKILL: x"),
        ("the step was killed by SIGKILL: 3", "it was killed by SIGKILL: 3"),
    ]:
        expected = hashlib.sha256(f"timeout {normalised(first)}".encode()).hexdigest()[:6]
        assert cause_id(Verdict.TIMEOUT, today) == expected


def test_a_reworded_reason_inside_another_message_keeps_the_id_of_the_first_wording() -> None:
    for today, first in [
        ("not asked: the client failed", "not asked: the driver could not go on"),
        (
            "not answered: the server exited on its own with code 3",
            "not answered: the server ended by itself, with exit code 3",
        ),
        (
            "the connection broke before any response: the server exited on its own with code 3",
            "the connection broke before anything came: the server ended by itself, with exit code 3",
        ),
        (
            "the server refused the first generation: certificate: server certificate rejected: expired",
            "the server refuses to generate: certificate: its certificate is refused: expired",
        ),
        (
            "2 processes were killed while it served; the server answered no request within 3 s (4 tries): "
            "no response; if it needs longer, raise `server.ready.within`",
            "2 processes were killed while it served; no generation was answered within 3 s (4 tries): "
            "nothing came back",
        ),
        ("the client was killed by SIGKILL", "the driver was killed by SIGKILL"),
        ("not asked: the client timed out", "not asked: the driver ran out of time"),
        ("the job timed out: still running after 12 s", "the job ran out of time: not done after 12 s"),
        (
            "cell 3: timed out after 5 s (cell limit); stopped by an interrupt",
            "cell 3: over the cell's limit of 5 s; an interrupt ended it",
        ),
        (
            "2 of 3 files: a.json: not read: 8 bytes (limit 5)",
            "2 of 3 files: a.json: not read: it has 8 bytes, and at most 5 are read",
        ),
        ("output: no JSON found", "its output: there is no JSON in it"),
    ]:
        expected = hashlib.sha256(f"failed {normalised(first)}".encode()).hexdigest()[:6]
        assert cause_id(Verdict.FAILED, today) == expected, today


def test_a_message_that_was_never_reworded_keeps_its_id() -> None:
    text = "ImportError: cannot import name 'foo' from /opt/venv/lib/bar.py (line 12)"
    assert cause_id(Verdict.FAILED, text) == hashlib.sha256(f"failed {normalised(text)}".encode()).hexdigest()[:6]


def test_messages_inside_messages_get_their_first_wording() -> None:
    today = "the job was refused: the machine rebooted while the job ran; remaining processes killed: 3"
    first = "the machine was started anew while it ran; 3 of its processes were still running and have been ended"
    assert first_wording(normalised(today)) == normalised(f"the job was refused: {first}")
    today = "the server was not ready in time: port 8000 not open within 30 s after the start"
    first = "the server was not ready in time: port 8000 was closed 30 s after it started"
    assert first_wording(normalised(today)) == normalised(first)
