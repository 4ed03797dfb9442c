"""No secret gets through, however its bytes arrive."""

import base64
import csv
import html
import io
import json
import shlex
import subprocess
import urllib.parse
from collections.abc import Callable

import markupsafe
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.agent.masking.mask import MASK, Mask
from seatrial.checks.evidence import tidy

TEXT = st.text(alphabet="abx", max_size=40)
SECRETS = st.lists(st.text(alphabet="ab", min_size=1, max_size=5), min_size=1, max_size=4)


def streamed(mask: Mask, pieces: list[bytes]) -> bytes:
    stream = mask.stream()
    return b"".join(map(stream.feed, pieces)) + stream.flush()


@given(SECRETS, st.lists(TEXT, max_size=8))
def test_no_secret_is_left_whatever_the_pieces(secrets: list[str], pieces: list[str]) -> None:
    masked = streamed(Mask(secrets), [piece.encode() for piece in pieces]).decode()
    assert not any(secret in part for secret in secrets for part in masked.split(MASK))


@given(SECRETS, TEXT)
def test_what_is_no_secret_stays(secrets: list[str], text: str) -> None:
    masked = streamed(Mask(secrets), [text.encode()]).decode()
    assert masked.count("x") == text.count("x")


def test_nothing_waits_that_cannot_become_a_secret() -> None:
    stream = Mask(["secret"]).stream()
    assert stream.feed(b"said: ") == b"said: "
    assert stream.feed(b"sec") == b""
    assert stream.feed(b"ond") == b"second"
    assert stream.feed(b"sec") == b""
    assert stream.flush() == b"sec"


def test_a_secret_inside_json_is_masked_as_it_looks_there() -> None:
    secret = 'a"b\nc'
    assert Mask([secret]).text('{"x": "a\\"b\\nc"}') == f'{{"x": "{MASK}"}}'


def test_data_is_masked_in_keys_and_values_and_can_become_json() -> None:
    data = {"k-secret": ["x secret", {"n": float("inf")}, 3, None]}
    assert Mask(["secret"]).data(data) == {f"k-{MASK}": [f"x {MASK}", {"n": None}, 3, None]}


UNSEEN = [b"\x1b[0m", b"\x1b[38;5;1m", b"\x1b]0;title\x07", b"\x1b]8;;http://x\x1b\\", b"\x1b(B", b"\x00", b"\x08",
          "\u200b".encode(), "\u202e".encode(), b"\x1b[0m\x1b[1m\x7f",
          "\u00ad".encode(), "\x9b31m".encode(), "\x9b".encode(), b"\r"]  # fmt: skip


@given(st.integers(1, 11), st.sampled_from(UNSEEN), st.integers(1, 9))
def test_a_secret_is_found_through_what_nobody_sees(at: int, unseen: bytes, size: int) -> None:
    data = b"a \x1b[31m" + b"supersecret!"[:at] + unseen + b"supersecret!"[at:] + b" \x1b[0mz"
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    masked = f"a \x1b[31m{MASK} \x1b[0mz"
    assert streamed(Mask(["supersecret!"]), pieces).decode() == masked
    assert Mask(["supersecret!"]).text(data.decode()) == masked


def test_what_tidying_joins_is_masked_before() -> None:
    for unseen in UNSEEN:
        text = Mask(["supersecret!"]).text(b"supersec".decode() + unseen.decode() + "ret!")
        assert tidy(text) == MASK
    assert "supersecret!" not in tidy("supersec\x1b]" + "x" * 5000 + "\x07ret!")  # which is too long to be a title


def test_the_start_of_a_secret_whose_end_never_came_is_masked_and_a_file_is_whole() -> None:
    assert streamed(Mask(["supersecret!"]), [b"it is supersec\x1b[0"]).decode() == f"it is {MASK}"
    assert streamed(Mask(["supersecret!"]), [b"it is sup"]) == b"it is sup"
    stream = Mask(["supersecret!"]).stream(exact=True)
    assert stream.feed(b"it is supersec") + stream.flush() == b"it is supersec"


def test_what_waits_is_bounded() -> None:
    stream = Mask(["supersecret!"]).stream()
    written = len(stream.feed(b"supersec")) + sum(len(stream.feed(b"\x1b[0m" * 1000)) for _ in range(100))
    assert written > 300_000


# ---- other ways to write a secret


def csv_of(secret: str) -> str:
    file = io.StringIO()
    csv.writer(file, quoting=csv.QUOTE_ALL).writerow([secret])
    return file.getvalue()


AWKWARD = "pä$$ 'wör\"d/+\\&<é>\x07=?"


@pytest.mark.parametrize("secret", ["hunter2-Hunter2", AWKWARD])
@pytest.mark.parametrize(
    "write",
    [
        lambda secret: f"Authorization: Basic {base64.b64encode(f'user:{secret}'.encode()).decode()}",
        lambda secret: base64.b64encode(f"us:{secret}".encode()).decode(),
        lambda secret: base64.b64encode(f"{secret}:u".encode()).decode(),
        lambda secret: base64.urlsafe_b64encode(f"a{secret}bc".encode()).decode(),
        repr,
        ascii,
        lambda secret: repr(secret.encode()),
        shlex.quote,
        lambda secret: subprocess.run(
            ["bash", "-c", 'printf %q "$1"', "bash", secret], capture_output=True, env={"LC_ALL": "C.UTF-8"}, check=True
        ).stdout.decode(),
        lambda secret: subprocess.run(
            ["sh", "-xc", ': "$1"', "sh", secret], capture_output=True, env={"LC_ALL": "C.UTF-8"}, check=True
        ).stderr.decode(),
        lambda secret: subprocess.run(
            ["bash", "-c", 'export X="$1"; declare -p X', "bash", secret], capture_output=True, check=True
        ).stdout.decode(),
        lambda secret: csv_of(secret),
        json.dumps,
        lambda secret: json.dumps({"log": json.dumps({"token": secret})}),
        lambda secret: json.dumps(secret, ensure_ascii=False),
        lambda secret: json.dumps(secret).replace("/", "\\/"),
        urllib.parse.quote,
        lambda secret: urllib.parse.quote(secret, safe="").lower().replace(secret.lower(), secret),
        urllib.parse.quote_plus,
        lambda secret: urllib.parse.quote(urllib.parse.quote(secret, safe=""), safe=""),
        lambda secret: secret.encode().hex(),
        lambda secret: secret.encode().hex().upper(),
        lambda secret: secret.encode().hex(":"),
        html.escape,
        lambda secret: html.escape(secret, quote=False),
        lambda secret: str(markupsafe.escape(secret)),
        lambda secret: html.escape(secret).encode("ascii", "xmlcharrefreplace").decode(),
    ],
)
def test_a_secret_is_masked_however_it_is_spelled(secret: str, write: Callable[[str], str]) -> None:
    text = write(secret)
    for masked in (Mask([secret]).text(text), streamed(Mask([secret]), [text.encode()]).decode()):
        rest = masked.replace(MASK, "")
        assert MASK in masked
        # What is left is what stood around it, and at most a character of base64 that is half of that.
        assert len(rest) <= len(write("")) + 10, masked


@pytest.mark.parametrize("word", ["code", "event", "done", "value", "loss", "exited", "outcome", "imported", "step"])
def test_a_secret_that_is_a_word_of_ours_is_masked_where_somebody_else_wrote_it(word: str) -> None:
    mask = Mask([word], [{"name": "train", "args": {"values": {"loss": "loss: (.*)"}, "never": ["step"]}}])
    record = {"event": "done", "step": 0, "outcome": "exited", "code": 0, "output": f"the {word} is {word}",
              "result": {"state": "imported", "values": {"loss": {"count": 1}}, "never": {"step": {"text": word}},
                         "version": word, f"a {word} b": word}}  # fmt: skip
    masked = mask.data(record)
    assert masked == {
        "event": "done", "step": 0, "outcome": "exited", "code": 0, "output": f"the {MASK} is {MASK}",
        "result": {"state": "imported", "values": {"loss": {"count": 1}}, "never": {"step": {"text": MASK}},
                   "version": MASK, f"a {MASK} b": MASK},
    }  # fmt: skip
