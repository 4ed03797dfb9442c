"""A log is read right however it is cut into pieces, whatever is in it, and as quickly as a job can write it."""

import json
import math
import re
import time
import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reads import LOSS, STEP, STEP_TIME, pattern, read_log, values

from seatrial.agent.readers.lines import LINE_BYTES, OVERLAP_BYTES, WINDOW_BYTES, Block, Lines, rank_of
from seatrial.agent.readers.log import LINGER_S, QUIET_S, Reading
from seatrial.agent.readers.patterns import Pattern
from seatrial.agent.readers.series import FULL, all_plain, number
from seatrial.agent.readers.values import Shapes

LOG = b"".join(
    b"Epoch: %.4f, step: %d, loss: %.4f, step_time: 0.0%d s\n" % (n / 10, n, 3 / (n + 1), 10 + n) for n in range(50)
)
ALL = {"loss": LOSS, "step": STEP, "step_time": STEP_TIME}


@pytest.mark.parametrize("chunk", [1, 2, 7, 64, 1000, 1 << 18])
def test_pieces_of_any_size_read_the_same(chunk: int) -> None:
    result, notes = read_log(LOG + b"Finished", chunk, must=[pattern("Finished", "Finished")], values=ALL)
    assert result["lines"] == 51
    assert result["must"]["Finished"] == {"count": 1, "host": {"0": 1}, "line": 51, "text": "Finished"}
    assert values(notes, "step") == values(notes, "loss", field="steps") == list(range(50))
    assert values(notes, "loss", field="lines") == list(range(1, 51))
    assert values(notes, "loss")[:2] == [3, 1.5]
    assert result["values"]["loss"]["0"]["last"] == pytest.approx(3 / 50)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nan", math.nan), ("NaN", math.nan), ("-nan", math.nan), ("inf", math.inf), ("-inf", -math.inf),
        ("Infinity", math.inf), ("1e-05", 1e-5), ("1E+3", 1e3), ("-3.2", -3.2), (".5", 0.5), ("5.", 5.0), ("+7", 7.0),
        ("2.31,", 2.31), ("'2.31'", 2.31), ('"2.31",', 2.31), ("(2.31)", 2.31), ("2.31.", 2.31), ("1e999", math.inf),
        ("tensor(2.31,", 2.31), ("tensor(nan,", math.nan), ("np.float32(1.5)", 1.5), ("1_000", None), ("3.2s", None),
        ("", None), ("fast", None), ("1.2.3", None), ("--1", None), ("0x10", None), ("1" * 500, None), ("nano", None),
        ("info", None), ("1,000.5", 1000.5), ("1,234,567", 1234567.0), ("1,23", None), ("1,2345", None),
        ("-1,234.5,", -1234.5), ("١", None),
    ],
)  # fmt: skip
def test_numbers_are_read_as_programs_print_them(text: str, expected: float | None) -> None:
    found = number(text.encode())
    assert found is expected or found == expected or (expected is not None and math.isnan(expected) and found != found)


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        ("[rank1]: step: 3", 1), ("[Rank 12] step: 3", 12), ("rank=0 step: 3", 0), ("INFO local_rank: 2 step: 3", 2),
        ("[default3]:step: 3", 3), ("[1,5]<stdout>:step: 3", 5), ('{"rank": 4, "step": 3}', 4), ("step: 3", None),
        ("[3] step: 3", None), ("frank 3 step: 3", None), ("ranking 3", None), ("x" * 500 + " rank 1", None),
    ],
)  # fmt: skip
def test_a_line_is_of_the_rank_that_it_names(line: str, rank: int | None) -> None:
    assert rank_of(line.encode()) == rank


def test_the_values_of_each_rank_are_known_by_it() -> None:
    log = b"".join(b"[rank%d]: step: %d\n" % (rank, step) for rank, step in ((0, 1), (0, 2), (1, 1), (1, 2)))
    _, notes = read_log(log, values={"step": STEP})
    assert values(notes, "step", field="ranks") == [0, 0, 1, 1]
    _, plain = read_log(LOG, values={"step": STEP})
    assert all("ranks" not in note for note in plain)


@given(st.lists(st.sampled_from([b"1.5", b"2,", b"-3e-5", b"nan", b"inf", b"1e999", b"", b"x", b"1e5", b"'7'"])))
def test_what_is_told_for_thousands_at_once_is_true_of_each(tokens: list[bytes]) -> None:
    each = [number(token) for token in tokens]
    finite = all(value is not None and math.isfinite(value) for value in each)
    assert not all_plain(tokens) or finite


def test_other_losses_are_not_taken_for_the_loss() -> None:
    _, notes = read_log(b"val_loss: 3\neval/loss: 4\naux-loss: 5\nloss: 6 val_loss: 7\n", values={"loss": LOSS})
    assert values(notes, "loss") == [6]


def test_a_metric_belongs_to_the_step_of_its_line_or_the_last_one_before() -> None:
    log = b"loss: 9\nstep: 1\nloss: 8\nx\nloss: 7\nstep: 2 loss: 6\n"
    for chunk in (1, 9, 1000):
        _, notes = read_log(log, chunk, values={"loss": LOSS, "step": STEP})
        assert values(notes, "loss", field="steps") == [None, 1, 1, 2]


def test_what_is_no_number_is_kept_as_such_and_counted() -> None:
    result, notes = read_log(b"loss: abc\nloss: 1\n", values={"loss": LOSS})
    assert values(notes, "loss") == ["?", 1]
    assert result["values"]["loss"]["0"]["unread"] == 1


def test_infinities_are_words_in_records() -> None:
    _, notes = read_log(b"loss: nan\nloss: inf\nloss: -Infinity\n", values={"loss": LOSS}, finite=["loss"])
    assert values(notes, "loss") == ["nan", "inf", "-inf"]


# ---- what a log may hold


def test_colours_do_not_hide_words() -> None:
    log = b"\x1b[1;31mTrace\x1b[0mback\x1b]0;title\x07 \x1b(Bhere\n"
    result, _ = read_log(log, never=[pattern("Traceback here", "Traceback here")])
    assert result["never"]["Traceback here"]["text"] == "Traceback here"


def test_an_escape_sequence_that_does_not_end_hides_nothing() -> None:
    result, _ = read_log(
        b"\x1b]0;Traceback\n\x1b]8;;Fatal \x1b[1mhere\n", never=[pattern("Traceback"), pattern("Fatal here")]
    )
    assert [found["count"] for found in result["never"].values()] == [1, 1]


@pytest.mark.parametrize("chunk", [1, 7, 4096, 1 << 20])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_text_of_several_lines_is_found_wherever_it_is(chunk: int, end: bytes) -> None:
    """No part of the output is kept here: it is found while it passes."""
    texts = ["one\ntwo", "two\n\nthree", "end\r\nnext", "one\nthree", "x\ny"]
    size = 3000 if chunk == 1 else 200_000
    lines = [b"-" * 50] * (size // 50) + [b"one", b"two", b"", b"three"] + [b"x" * size + b" end", b"next of it"]
    result, _ = read_log(end.join(lines), chunk, never=[pattern(re.escape(text), text) for text in texts])
    assert [found["count"] for found in result["never"].values()] == [1, 1, 1, 0, 0]


def test_a_text_of_several_lines_is_of_one_host() -> None:
    text = "one\ntwo"
    log = b"[0] one\n[1] one\n[1] two\n[0] three\n[0] two\n"
    result, _ = read_log(log, 5, hosts=2, never=[pattern(re.escape(text), text)])
    assert result["never"][re.escape(text)]["host"] == {"1": 1}


def test_each_state_of_a_progress_bar_counts_and_lines_are_numbered_as_in_an_editor() -> None:
    log = b"start\r\nstep: 1 loss: 3\rstep: 2 loss: 2\rstep: 3 loss: 1\r\ndone\r\n"
    for chunk in (1, 5, 1000):
        result, notes = read_log(log, chunk, values={"loss": LOSS}, must=[pattern("^done$", "done")])
        assert values(notes, "loss") == [3, 2, 1]
        assert values(notes, "loss", field="lines") == [2, 2, 2]
        assert result["must"]["^done$"]["line"] == 3


def test_a_byte_order_mark_is_not_part_of_the_first_line() -> None:
    result, _ = read_log(b"\xef\xbb\xbfstart\n", 1, must=[pattern("^start")])
    assert result["must"]["^start"]["count"] == 1


def test_bytes_that_are_no_text_break_nothing() -> None:
    log = b"\xff\xfe\x00\x80 loss: 1\n\x00\x00\nw\xc3\xa4hrend \xc3(\n" + bytes(range(256)) + b"\nloss: 2"
    result, notes = read_log(log, values={"loss": LOSS}, must=[pattern("während", "während")])
    assert values(notes, "loss") == [1, 2]
    assert result["must"]["während"]["text"] == "während \ufffd("


@pytest.mark.parametrize("chunk", [4096, 1 << 18, 100 << 20])
def test_a_line_of_any_length_is_looked_at_in_all_its_parts(chunk: int) -> None:
    log = b"loss: 1 " + b"x" * (3 << 20) + b" loss: 2\nloss: 3\n" + b"y" * LINE_BYTES + b"\nloss: 4\n" + b"z" * 200_000
    result, notes = read_log(log, chunk, values={"loss": LOSS})
    assert values(notes, "loss") == [1, 2, 3, 4]
    assert values(notes, "loss", field="lines") == [1, 1, 2, 4]
    assert result["long_lines"] == 2
    assert result["lines"] == 5


@given(st.lists(st.integers(1, 150_000), min_size=1, max_size=4), st.sampled_from([5000, 1 << 16, 1 << 20]))
@settings(max_examples=60)
@example([WINDOW_BYTES - 7], 1 << 20)
@example([WINDOW_BYTES + OVERLAP_BYTES - 4], 1 << 20)
def test_in_a_long_line_everything_is_found_once_wherever_windows_end(gaps: list[int], chunk: int) -> None:
    words = [b"step: %d loss: %d.5 Trace\x1b[1mback" % (n, n) for n in range(len(gaps))]
    line = b"".join(b"x" * gap + b" " + word for gap, word in zip(gaps, words, strict=True)) + b" " + b"y" * 70_000
    patterns = ["Traceback", "^x+", r"y$", "^.*Traceback", "(?s)Traceback.", "Traceback.*", r"\bTraceback\b"]
    absent = ["^ ", "^Traceback", "x$", r"\Astep", r"5\b$"]
    never = [pattern(text) for text in [*patterns, *absent]]
    result, notes = read_log(b"a\n" + line + b"\nlast", chunk, values={"loss": LOSS, "step": STEP}, never=never)
    assert values(notes, "loss") == [n + 0.5 for n in range(len(gaps))]
    assert values(notes, "loss", field="steps") == values(notes, "step") == list(range(len(gaps)))
    assert set(values(notes, "loss", field="lines")) == {2}
    found = result["never"]
    assert {text: found[text]["count"] for text in [*patterns, *absent]} == dict.fromkeys(patterns, 1) | dict.fromkeys(
        absent, 0
    )
    assert (found["Traceback"]["line"], result["lines"], result["long_lines"]) == (2, 3, 1)
    assert "Traceback" in found["Traceback"]["text"]
    assert not result["dropped"]


@pytest.mark.parametrize("gap", [1, 60_000, OVERLAP_BYTES - 20])
def test_words_far_apart_in_a_long_line_are_one_match(gap: int) -> None:
    for before in (0, WINDOW_BYTES - 10, 3 * WINDOW_BYTES):
        line = b"x" * before + b" Error" + b"y" * gap + b"fatal " + b"z" * 70_000
        result, _ = read_log(line, never=[pattern("Error.*fatal", "Error")])
        assert result["never"]["Error.*fatal"]["count"] == 1, before


def test_forbidden_words_deep_in_a_line_that_does_not_end_stop_it() -> None:
    reading = live(never=[pattern("Traceback", "Traceback")], values={"loss": LOSS}, finite=["loss"])
    for tick in range(3):
        reading.feed(b"x" * 60_000, 105.0 + tick)
    reading.feed(b" Traceback", 108.0)
    assert reading.stopped is None
    reading.over(108.0 + QUIET_S)
    assert reading.over(108.0 + QUIET_S + LINGER_S) == "stopped"
    reading.flush(111.0)
    assert reading.result(111.0)["never"]["Traceback"]["count"] == 1


def test_a_long_line_of_a_host_is_that_hosts() -> None:
    log = b"[0] loss: 1\n[1] Traceback " + b"x" * 100_000 + b" loss: 7 Fatal\n[0] loss: 2\n"
    never = [pattern("^Traceback"), pattern("Fatal")]
    result, notes = read_log(log, values={"loss": LOSS}, never=never, hosts=2)
    assert [values(notes, "loss", host) for host in (0, 1)] == [[1, 2], [7]]
    assert [found["host"] for found in result["never"].values()] == [{"1": 1}, {"1": 1}]


def test_memory_is_bounded_by_a_line_of_100_mb_and_by_thousands_of_metrics() -> None:
    reading = Reading({"values": ALL, "never": [pattern("Traceback", "Traceback")]})
    block = LOG * 100
    tracemalloc.start()
    for _ in range(400):
        reading.feed(b"x" * (1 << 18))
    reading.feed(b"\n")
    for _ in range(5):
        reading.feed(block)
        reading.notes(None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    result = reading.result()
    assert result["values"]["loss"]["0"]["count"] == 5 * 100 * 50
    assert FULL <= result["values"]["loss"]["0"]["kept"] < 2 * FULL
    assert peak < 24 << 20


def test_metrics_beyond_what_is_kept_are_counted_and_the_odd_ones_among_them_kept() -> None:
    log = b"".join(b"step: %d, loss: %.3f\n" % (n, n / 7) for n in range(30_000))
    log = log.replace(b"step: 25000, loss: 3571.429", b"step: 25000, loss: nan") + b"step: 30000, loss: 5,\n"
    result, notes = read_log(log, values={"loss": LOSS, "step": STEP}, finite=["loss"])
    found = result["values"]["loss"]["0"]
    assert (found["count"], found["last"], found["last_step"], found["last_line"]) == (30_001, 5, 30_000, 30_001)
    assert result["steps"] == 30_001
    steps, kept = values(notes, "loss", field="steps"), values(notes, "loss")
    assert steps[:FULL] == list(range(FULL))
    assert kept[steps.index(25_000)] == "nan"
    assert len(kept) == found["kept"] < FULL + 3_000
    pairs = zip(steps, kept, values(notes, "loss", field="lines"), strict=True)
    assert all(value in ("nan", 5) or value == round(step / 7, 3) for step, value, line in pairs)
    assert steps == sorted(steps)
    assert [line - 1 for line in values(notes, "loss", field="lines")] == steps


def test_the_losses_at_the_steps_of_a_recorded_curve_are_kept_whatever_the_count() -> None:
    log = b"".join(b"step: %d, loss: %.3f\n" % (n, n / 7) for n in range(40_000))
    apart = b"".join(b"step: %d\n loss: %.3f\nx\n" % (n, n / 7) for n in range(40_000))
    wanted = [5, *range(11_003, 40_000, 997), 39_998]
    for text, lines in ((log, 1), (apart, 3)):
        for chunk in (1 << 18, 9_999):
            result, notes = read_log(text, chunk, values={"loss": LOSS, "step": STEP}, wanted=wanted)
            steps = values(notes, "loss", field="steps")
            assert set(wanted) <= set(steps)
            assert len(steps) == len(set(steps)) == result["values"]["loss"]["0"]["kept"] < FULL + 3_000
            assert steps == sorted(steps)
            told = zip(steps, values(notes, "loss"), values(notes, "loss", field="lines"), strict=True)
            assert all(value == round(step / 7, 3) and (line - 1) // lines == step for step, value, line in told)
            last = result["values"]["loss"]["0"]
            assert (last["count"], last["first"], last["last"], last["last_step"]) == (40_000, 0, 5714.143, 39_999)


def test_a_step_that_is_told_for_ever_is_not_kept_for_ever() -> None:
    result, _ = read_log(b"step: 7 loss: 1\n" * 50_000, values={"loss": LOSS, "step": STEP}, wanted=[7])
    assert result["values"]["loss"]["0"]["count"] == 50_000
    assert result["values"]["loss"]["0"]["kept"] < 2 * FULL + 3_000


# ---- patterns

WORDS = st.sampled_from(["loss: 1", "loss:", "val_loss: 2", "step: 3", " ", "\t", "x", "ä", "Error", "loss: nan,", "-"])
PATTERNS = [
    (r"loss: (\S+)", "loss: "), (r"(?<![\w/-])loss: (\S+)", "loss: "), (r"\bloss:\s*(\S+)", "loss"),
    (r"^loss:(.*)$", "loss:"), (r"loss:\s*([^x]+)", "loss:"), (r"(?<=\s)loss: (\d)", "loss: "), (r"\W(\d)", ""),
    (r"[^\d]+(\d)", ""), (r"Error|x", ""), (r"\Aloss: (\S+)", "loss: "), (r"(\S+)\Z", ""), (r"(?i)LOSS: (\S+)", ""),
    (r"[\s-]+(\w)", ""), (r"(?s)loss.(.*)", "loss"), (r"step: (\d)(?!\S)", "step: "), (r"(?<!\s)x()", "x"),
    (r"(loss|step): (\d)", ""), (r"\D(\d)$", ""), (r"loss: (?=\S)", "loss: "), (r"[\t-\r ]x", "x"),
]  # fmt: skip


@given(
    st.lists(st.lists(WORDS, max_size=5).map("".join), max_size=8),
    st.integers(1, 60),
    st.sampled_from(PATTERNS),
)
@settings(max_examples=200)
@example(["loss:", "5"], 60, PATTERNS[2])
def test_a_pattern_on_blocks_finds_what_it_finds_line_by_line(
    lines: list[str], chunk: int, sought: tuple[str, str]
) -> None:
    log = "".join(line + "\n" for line in lines).encode()
    compiled = re.compile(sought[0].encode(), re.MULTILINE)
    each = [list(compiled.finditer(line)) for line in log.split(b"\n")[:-1]]
    tokens = [found.group(1 if compiled.groups else 0) for line in each for found in line]
    result, notes = read_log(log, chunk, must=[pattern(*sought)], values={"v": pattern(*sought)})
    assert result["must"][sought[0]]["count"] == sum(map(bool, each))
    assert result["values"]["v"].get("0", {"count": 0})["count"] == len(tokens)
    numbers = [None if token is None else number(token) for token in tokens]
    assert [value for value in values(notes, "v") if value not in ("?", "nan")] == [n for n in numbers if n == n and n]
    assert values(notes, "v", field="lines") == [n for n, line in enumerate(each, 1) for _ in line]


DIGITS = st.lists(
    st.sampled_from(["loss: ", "1", "22", "9", ".", "e+", "nan", " ", "step: ", "x", ", ", "-"]), max_size=9
)


@given(
    st.lists(DIGITS.map("".join), max_size=12),
    st.sampled_from([*PATTERNS, (r"(\d{2})\b", ""), (r"loss: ([0-9.]+)", "")]),
)
@settings(max_examples=200)
def test_metrics_counted_by_the_shapes_of_lines_are_as_many_as_there_are(
    lines: list[str], sought: tuple[str, str]
) -> None:
    found, (block,) = Pattern(*sought), Lines().feed("".join(line + "\n" for line in lines).encode() + b"\n")
    assert isinstance(block, Block)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seatrial.agent.readers.values.FEWER", 0)
        counted = Shapes().count(found, block)
    tokens = found.tokens(block)
    assert counted in (None, len(tokens))
    assert counted is None or all_plain(tokens)


@pytest.mark.parametrize("text", [r"loss: 1", r"epoch 3 (\d)", r"(\d)\1", r"(?P<a>\d)(?P=a)", r"\x31", r"[1-9]"])
def test_a_pattern_that_tells_digits_apart_is_not_asked_by_shape(text: str) -> None:
    assert not Pattern(text).digits_alike
    assert Pattern(r"loss: ([-+0-9.]{1,9})\d").digits_alike


def test_what_is_before_a_literal_is_asked_after_it_is_found() -> None:
    """A search that starts with a question about what is before takes ten times as long."""
    assert Pattern(*PATTERNS[1])._block.pattern.startswith(b"loss: (?<=")
    assert Pattern(r"\bloss: (a|b)", "loss: ")._block.pattern.startswith(b"loss: (?<=")
    assert not Pattern(r"\bloss: a|b", "loss: ")._block.pattern.startswith(b"loss: (?<=")


def test_words_with_or_between_them_need_no_literal() -> None:
    assert Pattern("Traceback|Segmentation fault").literals == [b"Traceback", b"Segmentation fault"]
    assert Pattern("a.b|c").literals == []


@pytest.mark.parametrize("endless", [r"(x+x+)+y", r"(?:x|x)*z", r"^(x+)+$"])
def test_a_pattern_that_does_not_end_is_dropped_and_told_and_the_others_go_on(endless: str) -> None:
    log = b"loss: 1\n" + b"x" * 5000 + b"!\nTraceback\nloss: 2\n"
    never = [pattern(endless), pattern("Traceback", "Traceback")]
    began_s = time.process_time()
    result, notes = read_log(log, values={"loss": LOSS}, never=never)
    assert time.process_time() - began_s < 10
    assert [dropped["pattern"] for dropped in result["dropped"]] == [endless]
    assert "CPU time" in result["dropped"][0]["why"]
    assert result["never"]["Traceback"]["count"] == 1
    assert values(notes, "loss") == [1, 2]


def test_what_is_no_pattern_is_dropped_and_told() -> None:
    result, _ = read_log(b"x\n", must=[pattern("(")], values={"loss": pattern("(?u)x")})
    assert [dropped["pattern"] for dropped in result["dropped"]] == ["(", "(?u)x"]


@given(
    st.lists(st.binary(max_size=60) | st.sampled_from([b"loss: ", b"step: ", b"\n", b"\r", b"[1] ", b"nan", b"\x1b["]))
)
@settings(max_examples=150)
def test_no_bytes_at_all_break_the_reading(pieces: list[bytes]) -> None:
    reading = Reading(
        {"values": ALL, "finite": ["loss"], "stall": {"factor": 2}, "must": [pattern("x|y")]}, hosts=2, begun_s=0
    )
    for tick, piece in enumerate(pieces):
        reading.feed(piece, float(tick))
        reading.over(float(tick))
        reading.notes(float(tick))
    reading.flush(1e6)
    told = json.dumps([reading.notes(1e6, last=True), reading.result(1e6)], allow_nan=False)
    assert reading.result()["lines"] >= b"".join(pieces).count(b"\n")
    assert told


# ---- several hosts


def test_lines_of_several_hosts_are_told_apart() -> None:
    log = b"[0] step: 1 loss: 5\n[1] step: 1 loss: 6\n[10] loss: nan\nno host\n[1] Traceback\n[1] step: 2 loss: 4\n"
    for chunk in (3, 1000):
        args = {"values": {"loss": LOSS, "step": STEP}, "never": [pattern("^Traceback", "Traceback")], "hosts": 11}
        result, notes = read_log(log, chunk, **args)
        assert [values(notes, "loss", host) for host in (0, 1, 10)] == [[5], [6, 4], ["nan"]]
        assert values(notes, "loss", 1, "lines") == [2, 6]
        assert values(notes, "loss", 1, "steps") == [1, 2]
        assert result["never"]["^Traceback"] == {"count": 1, "host": {"1": 1}, "line": 5, "text": "Traceback"}


# ---- while it runs


def live(hosts: int = 1, **follow: object) -> Reading:
    return Reading(follow, hosts, begun_s=100.0)


def test_a_forbidden_line_ends_it_after_the_lines_that_say_why() -> None:
    reading = live(never=[pattern("Traceback", "Traceback")])
    reading.feed(b"fine\nTraceback (most recent call last):\n", 105.0)
    assert reading.over(105.0) is None
    assert reading.due_s() == 105.0 + LINGER_S
    assert reading.over(105.0 + LINGER_S) == "stopped"
    assert [note["note"] for note in reading.notes(105.3)] == ["never"]
    stopped = reading.result(107.0)["stopped"]
    assert (stopped["what"], stopped["line"], stopped["seconds_after"]) == ("never", 2, 2.0)


def test_a_loss_that_is_no_longer_a_number_ends_it_and_another_metric_does_not() -> None:
    reading = live(values={"loss": LOSS, "norm": pattern(r"norm: (\S+)", "norm: ")}, finite=["loss"])
    reading.feed(b"norm: inf loss: 1\n", 105.0)
    assert reading.over(110.0) is None
    reading.feed(b"loss: inf\n", 111.0)
    assert reading.over(112.0) == "stopped"
    assert reading.stopped is not None
    assert (reading.stopped["what"], reading.stopped["name"], reading.stopped["value"]) == ("value", "loss", "inf")


def test_a_line_that_does_not_end_is_looked_at_when_nothing_follows() -> None:
    reading = live(values={"loss": LOSS}, finite=["loss"])
    reading.feed(b"\r 5% loss: 2\r 6% loss: nan", 105.0)
    assert reading.over(105.5) is None
    assert reading.due_s() is not None
    assert reading.due_s() <= 105.0 + QUIET_S  # type: ignore[operator]
    reading.over(105.0 + QUIET_S)
    assert reading.over(105.0 + QUIET_S + LINGER_S) == "stopped"
    reading.flush(107.0)
    assert reading.result(107.0)["values"]["loss"]["0"]["count"] == 2


STALL = {"factor": 10, "least_s": 1.0, "steps": 3}


def fed(reading: Reading, until: int, every_s: float, at_s: float = 100.0) -> float:
    for step in range(until):
        at_s += every_s
        reading.feed(b"step: %d\n" % step, at_s)
        assert reading.over(at_s) is None
    return at_s


def test_no_new_step_for_many_times_the_usual_is_a_stall() -> None:
    reading = live(values={"step": STEP}, stall=STALL)
    last_s = fed(reading, 20, 0.5)
    for tick in range(9):
        reading.feed(b"heartbeat\nstep: 19\n", last_s + tick / 2)  # words, and the same step again
    assert reading.over(last_s + 4.9) is None
    reading.notes(last_s + 4.9)
    assert reading.due_s() == pytest.approx(last_s + 5.0)
    assert reading.over(last_s + 5.1) == "stall"
    assert reading.stopped is not None
    assert (reading.stopped["what"], reading.stopped["step"]) == ("stall", 19)


def test_the_first_steps_may_take_as_long_as_they_like() -> None:
    reading = live(values={"step": STEP}, stall=STALL)
    at_s = 100.0
    for step, took_s in enumerate([300, 100, 50, 0.1, 0.1, 0.1]):
        at_s += took_s
        assert reading.over(at_s - 0.01) is None
        reading.feed(b"step: %d\n" % step, at_s)
    assert reading.over(at_s + 1.1) == "stall"


def test_steps_that_come_together_because_output_is_buffered_are_no_stall() -> None:
    reading = live(values={"step": STEP}, stall=STALL)
    at_s, step = 100.0, 0
    for _ in range(10):
        at_s += 60
        assert reading.over(at_s - 0.1) is None
        reading.feed(b"".join(b"step: %d\n" % (step + n) for n in range(70)), at_s)
        step += 70
    assert reading.over(at_s + 599) is None
    assert reading.over(at_s + 601) == "stall"


def test_counting_anew_in_each_epoch_is_progress() -> None:
    reading = live(values={"step": STEP}, stall=STALL)
    at_s = fed(reading, 10, 0.5)
    at_s = fed(reading, 10, 0.5, at_s)
    assert reading.over(at_s + 4.9) is None


def test_without_a_pattern_for_steps_other_metrics_count_them() -> None:
    reading = live(values={"loss": LOSS}, stall=STALL)
    for tick in range(10):
        reading.feed(b"loss: 1\n", 100.0 + tick)
    assert reading.result()["steps"] == 10
    assert reading.over(109.0 + 10.1) == "stall"


def test_the_same_step_told_thousands_of_times_is_no_progress() -> None:
    reading = live(values={"step": STEP}, stall=STALL)
    at_s = 100.0
    for tick in range(30):
        at_s += 1
        reading.feed(b"".join(b"step: %d\n" % (tick * 1000 + n) for n in range(1000)), at_s)
    for tick in range(20):
        reading.feed(b"step: 29999\n" * 1000, at_s + tick / 2)
    assert reading.over(at_s + 9.9) is None
    assert reading.over(at_s + 10.1) == "stall"


def test_after_the_words_that_it_is_done_there_is_no_stall() -> None:
    reading = live(values={"step": STEP}, stall=STALL, must=[pattern("Finished", "Finished")])
    last_s = fed(reading, 20, 0.5)
    reading.feed(b"Finished\n", last_s)
    assert reading.over(last_s + 1000) is None


def two_hosts(reading: Reading, ticks: int, hang_at: int, then: bytes = b"") -> float:
    """Both tell a step every half second, until host 1 tells no more."""
    for tick in range(ticks):
        mine = b"[1] step: %d\n" % tick if tick < hang_at else then if tick == hang_at else b""
        reading.feed(b"[0] step: %d\n" % tick + mine, 100.0 + tick / 2)
        if reading.over(100.0 + tick / 2):
            break
    return 100.0 + tick / 2


def test_a_host_that_hangs_while_another_goes_on_is_a_stall_that_names_it() -> None:
    reading = live(values={"step": STEP}, stall=STALL, hosts=2)
    assert two_hosts(reading, 60, 11) == 110.0
    assert reading.stopped is not None
    assert (reading.stopped["what"], reading.stopped["host"], reading.stopped["step"]) == ("stall", 1, 10)
    assert reading.stopped["text"] == "host 1: no new step for 5.0 s (limit 5.0 s); last step 10"


def test_a_host_that_hangs_when_another_is_done_is_a_stall_unless_one_is_enough() -> None:
    for any_host, over in ((False, "stall"), (True, None)):
        reading = live(values={"step": STEP}, stall=STALL, hosts=2, must=[pattern("Finished")], any=any_host)
        at_s = two_hosts(reading, 20, 19)
        reading.feed(b"[0] Finished\n", at_s)
        assert reading.over(at_s + 5.1) == over
    assert live(values={"step": STEP}, stall=STALL, hosts=2).over(1e6) is None


def test_a_host_that_is_done_or_has_ended_or_tells_no_steps_is_not_waited_for() -> None:
    done = live(values={"step": STEP}, stall=STALL, hosts=2, must=[pattern("Finished")])
    assert two_hosts(done, 60, 11, b"[1] Finished\n") == 129.5
    ended = live(values={"step": STEP}, stall=STALL, hosts=2)
    ended.ended(1)
    assert two_hosts(ended, 60, 11) == 129.5
    silent = live(values={"step": STEP}, stall=STALL, hosts=2)
    assert two_hosts(silent, 60, 2) == 129.5
    assert (done.stopped, ended.stopped, silent.stopped) == (None, None, None)


def test_notes_come_in_batches_and_say_where_it_is() -> None:
    reading = live(values={"loss": LOSS, "step": STEP})
    noted = []
    for step in range(100):
        now_s = 100.0 + step / 50
        reading.feed(b"step: %d loss: 2.5\n" % step, now_s)
        noted.append(reading.notes(now_s))
    assert len([batch for batch in noted if batch]) <= 3
    last = reading.notes(102.5, last=True)
    every = [note for batch in noted for note in batch] + last
    assert values(every, "loss") == [2.5] * 100
    assert values(every, "step", field="at")[-1] == pytest.approx(1.98)
    assert [note["text"] for note in every if note["note"] == "progress"][-1].startswith("step ")


def test_a_block_gives_its_lines_whatever_ends_them() -> None:
    lines = Lines()
    (block,) = lines.feed(b"a\r\nb\rc\n\nd")
    assert block.data == b"a\n\nb\nc\n\n"
    assert [block.line_at(block.data.index(word)) for word in (b"a", b"b", b"c")] == [1, 2, 2]
    (rest,) = lines.flush()
    assert (rest.data, rest.line_at(0)) == (b"d", 4)
