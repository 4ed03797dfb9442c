"""Editing a file of bounds: the named entry changes, and nothing else of the file does, byte for byte."""

import difflib
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from seatrial.baseline import OURS, THEIRS, read_baselines
from seatrial.baseline.edit import Edit, edited
from seatrial.suite.yaml.document import CannotEdit, scalar
from seatrial.suite.yaml.document import flow_text as flow

WHY = {"at": "2026-11-16T06:00:00Z", "what": "updated from 41 runs", "why": 'new "compiler": 2.9 # now'}

THEIR = """\
# Bounds of the step time; ask the perf team before you touch it.
benchmarks:

  llama-3-8b:        # the one that everybody watches
    name: 'Llama 3.0 8B'
    step_time_lower_bound: 2.68109009   # s
    step_time_upper_bound: 2.789223
    confidence_interval: 0.05407
    average: 2.7352
    sample_size:   427
    owner: "team #1"
  # copyed from llama-3-8b
  ds-v3-shallow:
    name: DeepSeek
    step_time_lower_bound: 1.0  # dummy number
    step_time_upper_bound: 12
    confidence_interval: 5.5
    average: 6.5
    sample_size: 3

    target_loss:    0.4735
    loss_tolerance: 1e-3
    # of this one too

# the end of the list
metadata: {query_start: '2025-07-01T00:00:00-07:00',   confidence_level: 0.999}
"""


def edit(benchmark: str, metric: str = "step_time", untrue: tuple[int, ...] = (), **values: Any) -> Edit:
    return Edit(benchmark, metric, values, WHY, untrue=untrue)


def changed_lines(before: str, after: str) -> list[str]:
    return [line for line in difflib.ndiff(before.splitlines(True), after.splitlines(True)) if line[0] in "+-"]


def test_only_the_keys_of_the_named_entry_change_in_their_file() -> None:
    after = edited(THEIR, "f", THEIRS, [edit("llama-3-8b", lower=2.5, upper=2.7, center=2.6, runs=41)])
    start, end = THEIR.index("    step_time_lower_bound"), THEIR.index("  # copyed from")
    assert after.startswith(THEIR[:start])
    assert after.endswith(THEIR[end:])
    assert after[start : after.index("  # copyed from")].splitlines() == [
        "    step_time_lower_bound: 2.5   # s",
        "    step_time_upper_bound: 2.7",
        "    confidence_interval: 0.1",
        "    average: 2.6",
        "    sample_size:   41",
        '    owner: "team #1"',
        "    seatrial:",
        "      reasons:",
        f"        - {flow(WHY)}",
    ]


def test_comments_which_call_the_number_invented_go_with_it_and_no_other_does() -> None:
    made = edit("ds-v3-shallow", untrue=(12, 15), lower=4.1, upper=4.5, center=4.3, runs=9)
    after = edited(THEIR, "f", THEIRS, [made])
    assert "dummy" not in after
    assert "copyed" not in after
    assert "    target_loss:    0.4735\n    loss_tolerance: 1e-3\n" in after
    assert "    # of this one too\n\n# the end of the list\nmetadata: {query_start" in after
    assert "team #1" in after
    assert "    step_time_lower_bound: 4.1\n" in after


def test_what_their_tool_cannot_say_goes_into_one_key_beside_and_comes_back(tmp_path: Path) -> None:
    made = edit(
        "llama-3-8b",
        lower=2.5,
        upper=2.7,
        center=2.6,
        runs=41,
        floor=0.03,
        unit="s",
        better="lower",
        fingerprint="12345678",
        false_alarm=0.001,
        left_out={"failed": 3},
    )
    path = tmp_path / "f.yaml"
    path.write_text(edited(THEIR, "f", THEIRS, [made]))
    entry = read_baselines(path).entries["llama-3-8b"]["step_time"]
    assert (entry.keys.floor, entry.bound.fingerprint, entry.bound.false_alarm) == (0.03, "12345678", 0.001)
    assert entry.keys.left_out == {"failed": 3}
    assert entry.keys.reasons == (WHY,)
    assert [one for one in read_baselines(path).warnings if "by hand" in one] == []


def test_a_benchmark_that_their_file_lacks_is_added_at_the_end_of_the_list() -> None:
    after = edited(THEIR, "f", THEIRS, [edit("new", lower=1.0, upper=1.2, center=1.1, runs=5)])
    assert [line for line in changed_lines(THEIR, after) if line[0] == "-"] == []
    assert yaml.safe_load(after)["benchmarks"]["new"] | {"seatrial": None} == {
        **{"name": "new", "step_time_lower_bound": 1.0, "step_time_upper_bound": 1.2, "confidence_interval": 0.1},
        **{"average": 1.1, "sample_size": 5, "seatrial": None},
    }
    assert list(yaml.safe_load(after)) == ["benchmarks", "metadata"]


def test_a_new_file_of_ours_is_read_back_as_it_was_meant(tmp_path: Path) -> None:
    made = [
        edit("a[x=1]", lower=1.0, upper=2.0, center=1.5, used=["r1", "r2"], state="usable"),
        edit("a[x=1]", "loss", upper=1e-05, unit="nats"),
        edit("b: {#}", "tokens/s", lower=5.0, better="higher"),
    ]
    path = tmp_path / "bounds.yaml"
    path.write_text(edited("", "bounds.yaml", OURS, made))
    found = read_baselines(path)
    assert [(name, list(metrics)) for name, metrics in found.entries.items()] == [
        ("a[x=1]", ["step_time", "loss"]),
        ("b: {#}", ["tokens/s"]),
    ]
    assert found.entries["a[x=1]"]["loss"].bound.upper == 1e-05
    assert yaml.safe_load(path.read_text())["baselines"]["a[x=1]"]["loss"]["upper"] == 1e-05  # also for YAML 1.1


OURS_TEXT = """\
version: 1
baselines:
  a:
    x:
      lower: 1   # low
      upper: 2
      why: too few runs  # so far
      used:
        - r1
        - r2
      left_out:
        the run failed: [r0]
      reasons:
      - {at: "1", what: made, why: first}   # by me
      owner: somebody
    y: {lower: 1, upper: 2, reasons: [{at: "1", what: made, why: first}], owner: me}  # on one line
    z:
  b: {}
"""


def test_keys_are_set_added_and_taken_out_in_every_style() -> None:
    made = [
        edit("a", "x", lower=1.5, why=None, used=["r3"], left_out=None, center=1.7),
        edit("a", "y", lower=1.5, upper=None, center=1.7),
        edit("a", "z", lower=3.0),
        edit("b", "x", lower=4.0),
    ]
    after = edited(OURS_TEXT, "f", OURS, made)
    reason = flow(WHY)
    assert (
        after
        == f"""\
version: 1
baselines:
  a:
    x:
      lower: 1.5   # low
      upper: 2
      used:
        - r3
      reasons:
      - {{at: "1", what: made, why: first}}   # by me
      - {reason}
      owner: somebody
      center: 1.7
    y: {{lower: 1.5, reasons: [{{at: "1", what: made, why: first}}, {reason}], owner: me, center: 1.7}}  # on one line
    z:
      lower: 3.0
      reasons:
        - {reason}
  b: {{x: {{lower: 4.0, reasons: [{reason}]}}}}
"""
    )


@pytest.mark.parametrize("value", [1e300, -1e99, 5e-324])
def test_a_metric_that_no_reader_would_take_for_a_number_is_refused(value: float) -> None:
    with pytest.raises(CannotEdit, match="out of range"):
        edited(OURS_TEXT, "f", OURS, [edit("b", "x", upper=value)])


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("end", ["", "\n", "\n\n# over\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_byte_order_mark_and_a_missing_last_line_break_are_kept(newline: str, end: str, mark: str) -> None:
    lines = ["version: 1", "baselines:", "   ä😀:  # 😀", "      x: {lower: 1, upper: 2}", "   b:", "      x:"]
    before = mark + newline.join([*lines, "         lower: 1  # é", "         upper: 2"]) + end.replace("\n", newline)
    after = edited(before, "f", OURS, [edit("ä😀", "x", lower=1.5), edit("b", "x", upper=2.5)])
    assert after.startswith(mark + newline.join(lines[:3]))
    assert after.endswith(end.replace("\n", newline))
    assert ("\r\n" in after) is (newline == "\r\n")
    assert "\n" not in after.replace(newline, "")
    assert f"         lower: 1  # é{newline}         upper: 2.5{newline}         reasons:" in after
    assert yaml.safe_load(after)["baselines"]["ä😀"]["x"]["lower"] == 1.5


def test_an_entry_that_shares_its_text_with_another_is_refused_and_not_half_changed() -> None:
    anchored = "baselines:\n  a: &a\n    x: {lower: 1, upper: 2}\n  b: *a\n"
    with pytest.raises(CannotEdit, match="an alias"):
        edited(anchored, "f", OURS, [edit("a", "x", lower=1.5)])
    with pytest.raises(CannotEdit):
        edited(anchored, "f", OURS, [edit("b", "x", lower=1.5)])


def test_a_merged_entry_gets_keys_of_its_own() -> None:
    text = "baselines:\n  a:\n    x: &x {lower: 1, upper: 2}\n  b:\n    x:\n      <<: *x\n      upper: 3\n"
    after = edited(text, "f", OURS, [edit("b", "x", lower=1.5)])
    data = yaml.safe_load(after)["baselines"]
    assert (data["a"]["x"], data["b"]["x"]["lower"], data["b"]["x"]["upper"]) == ({"lower": 1, "upper": 2}, 1.5, 3)


def test_an_edit_that_would_make_the_file_unsound_is_refused() -> None:
    with pytest.raises(CannotEdit, match="above the upper bound"):
        edited(OURS_TEXT, "f", OURS, [edit("a", "x", lower=5.0)])


@pytest.mark.parametrize(
    "value",
    [
        *(
            "plain",
            "no",
            "Null",
            "1.5",
            "2026-10-03",
            "a: b",
            "a #b",
            "- a",
            "'",
            '"',
            "\\",
            "",
            " x",
            "x ",
            "\t",
            "\n",
        ),
        *(
            "\x85\u2028\x07\x1b[31m",
            "😀",
            "é",
            "{a}",
            "[a]",
            "a, b",
            "*a",
            "&a",
            "!a",
            "%a",
            "@a",
            "`a",
            "~",
            "<<",
            "=",
            "y",
        ),
        *(0.25, 1e-05, 1e16, -0.0, 12, -3, True, False, None),
    ],
)
def test_every_value_comes_back_as_it_was(value: Any) -> None:
    after = edited("", "f", OURS, [Edit("b", "x", {"lower": 1.0, "note": [value], "map": {"k": value}}, WHY)])
    entry = yaml.safe_load(after)["baselines"]["b"]["x"]
    assert (entry["note"], entry["map"]) == ([value], {"k": value})
    assert yaml.safe_load(f"k: {scalar(value)}\n")["k"] == value


def test_hand_written_files_of_every_look_keep_every_other_byte() -> None:
    """Thousands of files in random style; the entry is changed, and the lines around it are compared."""
    chance = random.Random(7)
    for _ in range(600):
        lines, target = _file(chance)
        newline = chance.choice(["\n", "\n", "\r\n"])
        before = newline.join(lines) + chance.choice(["", newline])
        after = edited(before, "f", OURS, [edit(target, "x", lower=0.5, upper=9.5, center=5.0, why=None)])
        old, new = before.split(newline), after.split(newline)
        first = next(n for n, line in enumerate(old) if line.strip().startswith(f"{target}:"))
        last = next((n for n in range(first + 1, len(old)) if "#END" in old[n]), len(old))
        assert new[:first] == old[:first]
        kept = [line for line in old[last:] if line]
        assert [line for line in new if line][len([line for line in new if line]) - len(kept) :] == kept
        own = [line for line in old[first:last] if line.strip().startswith(("mine", "text", "#"))]
        assert [line for line in own if line not in new] == []


def _file(chance: random.Random) -> tuple[list[str], str]:
    """Benchmarks b0, b1, ... in random style, each followed by a comment `#END`; which of them to change."""
    step = " " * chance.choice([1, 2, 3, 4])
    lines = ["# head", *(["version: 1"] if chance.random() < 0.5 else []), "baselines:"]
    count = chance.randint(1, 4)
    for number in range(count):
        lines += ["" for _ in range(chance.randint(0, 2))]
        style = chance.choice(["block", "block", "flow", "empty", "long"])
        name = f"{step}b{number}:"
        tail = chance.choice(["", "  # note", "   "])
        if style == "block":
            keys = ["lower: 1", "upper: 2", "why: gone", "mine: 'it''s # mine'", "mine2: |", "center: 1.5"]
            chance.shuffle(keys)
            lines += [name + tail, f"{step * 2}x:{tail}"]
            for key in keys:
                lines.append(f"{step * 3}{key}" + (tail if key[-1] not in "|e'" else ""))
                lines += [f"{step * 4}text # mine"] if key.endswith("|") else []
                lines += [f"{step * 3}# note"] if chance.random() < 0.2 and not key.endswith("|") else []
        elif style == "flow":
            lines.append(
                f"{name} {{x: {{lower: 1 , upper: 2,why: gone, mine: [1,  2]}}}}{tail}".replace("  # note", "")
            )
        elif style == "long":
            lines += [f"{name}", f"{step * 2}x: {{lower: 1,", f"{step * 3}upper: 2, why: gone,", f"{step * 3}}}"]
        else:
            lines += [name, f"{step * 2}x:{tail}"]
        lines.append(f"{step}#END")
    return lines, f"b{chance.randrange(count)}"
