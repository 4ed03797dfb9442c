"""Whatever is wrong with what is read, there is one error for it, and it says what is wrong."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from seatrial.job import Exit, Outcome, Unreadable, decode, lines, read_json, read_regular

GOOD = b'{"outcome": "exited", "code": 0}'
BAD = {
    "nothing": (b"", "truncated"),
    "a part": (GOOD[:-3], "truncated"),
    "no JSON": (b"exited", "malformed"),
    "another form": (b"[]", "Expected `object`, got `array`"),
    "another type": (GOOD.replace(b"0}", b'"0"}'), "Expected `int | null`, got `str` - at `$.code`"),
    "an unknown word": (GOOD.replace(b"exited", b"went"), "Invalid enum value 'went' - at `$.outcome`"),
    "no UTF-8": (GOOD.replace(b"exited", b"\xff"), "not UTF-8"),
    "half a pair": (GOOD.replace(b"exited", b"\\ud800 and more"), "surrogate"),
    "no end of brackets": (b'{"other": ' + b"[" * 100_000, "nested too deeply (limit 100)"),
    "deep": (b'{"other": ' + b"[" * 101 + b"]" * 101 + b"," + GOOD[1:], "nested too deeply (limit 100)"),
    "a number without end": (GOOD.replace(b"0}", b"1" * 4000 + b"}"), "limit 300"),
    "a number beyond numbers": (GOOD.replace(b"0}", b"1e999}"), "out of range"),
}


@pytest.mark.parametrize("name", BAD)
def test_everything_that_can_be_wrong_is_the_same_error(name: str) -> None:
    data, why = BAD[name]
    with pytest.raises(Unreadable, match=re.escape(why)):
        decode(data, Exit)


def test_text_that_looks_deep_or_like_a_long_number_is_just_text() -> None:
    text = '"[[' * 200 + "\\" + "1" * 400
    written = {"outcome": "exited", "message": text, "other": [[{"a": "}"}] * 300]}
    assert decode(json.dumps(written), Exit) == Exit(Outcome.EXITED, message=text)


def test_a_file_that_is_absurdly_large_or_no_file_is_not_read(tmp_path: Path) -> None:
    large, pipe, link = tmp_path / "large", tmp_path / "pipe", tmp_path / "link"
    large.touch()
    os.truncate(large, 1 << 40)
    with pytest.raises(Unreadable, match=re.escape("1,099,511,627,776 bytes (limit 268,435,456)")):
        read_json(large, Any)
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="not a regular file"):
        read_json(pipe, Any)
    (tmp_path / "file").write_text("7")
    link.symlink_to("file")
    assert read_json(link, int) == 7
    with pytest.raises(OSError, match="symbolic links"):
        read_regular(link)


def test_a_line_without_end_is_read_in_pieces(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"one\n" + b"2" * 25 + b"\nthree")
    with open(tmp_path / "lines", "rb") as file:
        assert list(lines(file, 10)) == [b"one\n", b"2" * 10, b"2" * 10, b"2" * 5 + b"\n", b"three"]
