"""How metrics read, and that foreign text cannot act on a terminal."""

import pytest
import sample
from hypothesis import given
from hypothesis import strategies as st

from seatrial.report.html.notebook import coloured_html
from seatrial.report.view.words import (
    duration_text,
    first_line,
    fit,
    one_line,
    shorten,
    size_text,
    strip_controls,
    width,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (0.0, "0 s"),
        (0.0004, "0.4 ms"),
        (0.043, "43 ms"),
        (0.5, "0.50 s"),
        (4.21, "4.2 s"),
        (59.9, "59.9 s"),
        (59.97, "1 min 00 s"),
        (65, "1 min 05 s"),
        (3599.7, "1 h 00 min"),
        (7325, "2 h 02 min"),
    ],
)
def test_seconds_read_as_a_person_says_them(value: float | None, text: str) -> None:
    assert duration_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, ""), (12, "12 B"), (1536, "1.5 KiB"), (410 * 2**20, "410 MiB"), (3 * 2**41, "6.0 TiB")]
)
def test_sizes_have_binary_units(value: int | None, text: str) -> None:
    assert size_text(value) == text


@sample.untimed
@given(st.text())
def test_clean_text_holds_nothing_that_a_terminal_acts_upon(text: str) -> None:
    for char in strip_controls(text):
        assert char in "\n\t" or not (ord(char) < 32 or 0x7F <= ord(char) < 0xA0 or 0xD800 <= ord(char) < 0xE000)


def test_colours_titles_and_turned_writing_go_while_letters_stay() -> None:
    assert one_line(sample.HOSTILE).endswith("onerror=alert(1)>")
    assert "red" in one_line(sample.HOSTILE)
    assert "title" not in one_line(sample.HOSTILE)
    assert "\u202e" not in one_line(sample.HOSTILE)
    assert strip_controls("a\r\nb\rc\u2028d") == "a\nb\nc\nd"
    assert first_line("\n \x1b[31m\x1b[0m\n  real \n more") == "real"


@sample.untimed
@given(st.text(), st.integers(1, 40))
def test_fitted_text_never_needs_more_columns(text: str, columns: int) -> None:
    assert width(fit(strip_controls(text), columns)) <= columns


def test_wide_letters_count_twice() -> None:
    assert width("漢字") == 4
    assert fit("漢字漢字", 5) == "漢字…"


def test_bounded_text_keeps_both_ends_and_counts_the_rest() -> None:
    text = shorten("a" * 1000 + "b" * 1000, 300)
    assert text.startswith("a" * 200)
    assert text.endswith("b" * 100)
    assert "1,700 characters left out" in text


def test_terminal_colours_become_spans_and_text_stays_text() -> None:
    assert coloured_html("\x1b[0;31m<b>\x1b[0m\x1b[1mx\x1b[0m") == (
        '<span class="ansi-red">&lt;b&gt;</span><span class="ansi-bold">x</span>'
    )
    assert coloured_html("\x1b[38;5;9mq\x1b[39m\x1b[48;2;1;2;3mr\x1b[2J") == '<span class="ansi-red">q</span>r'


@sample.untimed
@given(st.text(alphabet=st.sampled_from("\x1b[0123456789;m<>&a\"'")))
def test_no_mix_of_colours_opens_a_tag_of_its_own(text: str) -> None:
    html = coloured_html(text)
    assert html.count("<") == html.count("<span class=") + html.count("</span>")
