"""Files of bounds: what both forms say, every error at its place, and hand edits that break their own convention."""

from pathlib import Path

import pytest

from seatrial.baseline import OURS, THEIRS, Baselines, read_baselines
from seatrial.job import BoundState, Level
from seatrial.suite import SuiteError

OWN = """\
version: 1
baselines:
  train[model=small]:
    step_time:
      lower: 2.39
      upper: 2.49
      center: 2.44
      unit: s
      better: lower
      runs: 41
      since: "2026-10-03T06:00:00Z"
      method: prediction interval (Student's t)
      false_alarm: 0.001
      floor: 0.015
      cap: 0.2
      state: usable
      fingerprint: 12345678
      hardware: some CPU, 2 cores
      used: [nightly-1, nightly-2]
      left_out:
        the run failed: [nightly-3, nightly-4]
      changed: {run: nightly-9, at: "2026-11-12T06:00:00Z", before: 2.44, after: 2.6}
      accepted: {run: nightly-9, at: "2026-11-12T06:00:00Z"}
      reasons:
        - {at: "2026-10-20T06:00:00Z", what: updated, why: first bounds}
      owner: somebody
    tokens: {lower: 900, better: higher}
"""

THEIR = """\
benchmarks:
  llama-3-8b:
    name: Llama 3.0 8B
    step_time_lower_bound: 2.68109009
    step_time_upper_bound: 2.789223
    confidence_interval: 0.05407
    average: 2.7352
    sample_size: 427
  llama-3-8b-sft:
    name: Llama 3.0 8B SFT
    step_time_lower_bound: 0.75
    step_time_upper_bound: 0.85
    confidence_interval: 0.05
    average: 0.8
    sample_size: 11
    target_loss: 0.4735
    loss_tolerance: 0.001
metadata:
  query_start: '2025-07-01T00:00:00-07:00'
  query_end: '2025-07-23T12:20:48-07:00'
  confidence_level: 0.999
"""


def read(tmp_path: Path, text: str | bytes) -> Baselines:
    path = tmp_path / "bounds.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_baselines(path)


def problems(tmp_path: Path, text: str | bytes) -> list[tuple[str, str]]:
    with pytest.raises(SuiteError) as caught:
        read(tmp_path, text)
    return [(one.where.removeprefix(f"{tmp_path}/bounds.yaml:"), one.message) for one in caught.value.problems]


def warnings(tmp_path: Path, text: str) -> list[str]:
    return [one.removeprefix(f"{tmp_path}/bounds.yaml:") for one in read(tmp_path, text).warnings]


def test_every_key_of_our_form_is_read(tmp_path: Path) -> None:
    found = read(tmp_path, OWN)
    assert (found.form, found.warnings) == (OURS, ())
    entry = found.entries["train[model=small]"]["step_time"]
    bound = entry.bound
    assert (bound.lower, bound.upper, bound.center, bound.runs, bound.unit) == (2.39, 2.49, 2.44, 41, "s")
    assert bound.since_s == 1791007200.0
    assert (bound.false_alarm, bound.state, bound.fingerprint) == (0.001, BoundState.USABLE, "12345678")
    assert bound.changed == Level("nightly-9", 1794463200.0, 2.44, 2.6)
    assert bound.source == f"{tmp_path}/bounds.yaml:4"
    assert entry.keys.left_out == {"the run failed": 2}  # as Seatrial 0.1 listed them
    assert (entry.keys.accepted.run, entry.keys.accepted.at) == ("nightly-9", 1794463200.0)
    assert entry.keys.reasons[0]["why"] == "first bounds"
    other = found.entries["train[model=small]"]["tokens"].bound
    assert (other.lower, other.upper, other.better) == (900.0, None, "higher")


def test_a_benchmark_has_the_bounds_of_all_its_metrics_and_one_without_entry_has_none(tmp_path: Path) -> None:
    found = read(tmp_path, OWN)
    assert [bound.metric for bound in found.bounds("train[model=small]")] == ["step_time", "tokens"]
    assert found.bounds("other") == ()


def test_torchprimes_file_is_read_as_it_is(tmp_path: Path) -> None:
    found = read(tmp_path, THEIR)
    assert (found.form, found.warnings) == (THEIRS, ())
    (bound,) = found.bounds("llama-3-8b")
    assert (bound.metric, bound.lower, bound.upper, bound.center) == ("step_time", 2.68109009, 2.789223, 2.7352)
    assert (bound.runs, bound.unit, bound.better, bound.since_s) == (427, "s", "lower", 1751353200.0)
    assert bound.false_alarm is None  # theirs is no share of runs
    sft = found.entries["llama-3-8b-sft"]["step_time"]
    assert (sft.title, sft.target_loss, sft.loss_tolerance) == ("Llama 3.0 8B SFT", 0.4735, 0.001)


@pytest.mark.parametrize(
    ("written", "since_s"),
    [
        ("'2025-05-29 17:52:00 America/Los_Angeles'", 1748476800.0),
        ("2025-05-29", 1748476800.0),
        ("three days ago", None),
        ("''", None),
    ],
)
def test_times_of_their_query_may_be_any_text(tmp_path: Path, written: str, since_s: float | None) -> None:
    text = THEIR.replace("'2025-07-01T00:00:00-07:00'", written)
    assert read(tmp_path, text).bounds("llama-3-8b")[0].since_s == since_s


def test_a_switched_off_entry_keeps_its_reason_in_both_forms(tmp_path: Path) -> None:
    ours = OWN.replace("    tokens: {", "    tokens: {disabled: waits for the new driver, ")
    off = read(tmp_path, ours).bounds("train[model=small]")[1]
    assert (off.state, off.why) == (BoundState.DISABLED, "waits for the new driver")
    theirs = THEIR.replace("    name: Llama 3.0 8B\n", "    name: Llama 3.0 8B\n    disabled: no TPUs this week\n")
    (off,) = read(tmp_path, theirs).bounds("llama-3-8b")
    assert (off.state, off.why) == (BoundState.DISABLED, "no TPUs this week")
    whole = "baselines: {a: {disabled: too noisy, x: {upper: 1}, y: {upper: 2}}}"
    assert [bound.why for bound in read(tmp_path, whole).bounds("a")] == ["too noisy", "too noisy"]


@pytest.mark.parametrize("value", ["true", "", "''", "1", "[]"])
def test_switching_off_without_a_reason_is_an_error(tmp_path: Path, value: str) -> None:
    found = problems(tmp_path, f"baselines:\n  a:\n    x:\n      upper: 1\n      disabled: {value}\n")
    assert [place for place, message in found if "expected the reason" in message]


def test_all_errors_are_told_at_once_each_at_its_place(tmp_path: Path) -> None:
    text = """\
version: 2
baselines:
  a:
    x: {lower: nan, upper: "2.5", runs: 1.5}
    y: {lower: 3, upper: 2}
    z: {state: fine, better: more, since: yesterday, false_alarm: 1.5}
    w: [1, 2]
    v: {lower: {a: 1}, changed: 5, floor: true, conditions: x}
"""
    found = problems(tmp_path, text)
    assert [place for place, _ in found] == [
        *("1:10", "4:16", "4:28", "4:41", "5:16", "6:16", "6:30", "6:43", "6:67"),
        *("7:5", "8:9", "8:33", "8:43", "8:61"),
    ]
    told = dict(found)
    assert "remove the line" in told["4:16"]
    assert "without quotes" in told["4:28"]
    assert "above the upper bound 2" in told["5:16"]
    assert "a time like 2026-10-03T12:00:00Z" in told["6:43"]


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        (".nan", "remove the line"),
        ("-.inf", "remove the line"),
        ("2.5 s", "expected a number, got '2.5 s'"),
        ("1e999", "expected a number"),
        ("yes", "expected a number"),
        ("[2.5]", "got a list"),
    ],
)
def test_what_is_no_number_is_an_error_in_their_form_too(tmp_path: Path, value: str, advice: str) -> None:
    found = problems(tmp_path, THEIR.replace("2.68109009", value))
    assert [place for place, _ in found] == ["4:5" if value == "[2.5]" else "4:28"]
    assert advice in found[0][1]


def test_lower_above_upper_is_an_error_in_their_form(tmp_path: Path) -> None:
    assert problems(tmp_path, THEIR.replace("2.68109009", "2.9"))[0][1].startswith("the lower bound 2.9 is above")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trials: {}", "found neither"),
        ("benchmark: {}", "did you mean 'benchmarks'?"),
        ("", "found neither"),
        ("- 1", "found neither"),
        ("baselines: {}\nbenchmarks: {}", "found both"),
        ("baselines: [", "invalid YAML"),
        ("baselines: {}\nbaselines: {}", "duplicate 'baselines'; first at"),
        ("baselines: 5", "expected a map of benchmarks"),
        ("baselines: {a: {1: {}}}", "expected text as a key"),
        ("a: &a [*a]", "inside its own anchor"),
    ],
)
def test_what_is_no_file_of_bounds_says_so(tmp_path: Path, text: str, message: str) -> None:
    assert message in " ".join(told for _, told in problems(tmp_path, text))


def test_bytes_that_are_no_text_and_files_without_end_are_errors(tmp_path: Path) -> None:
    assert "not UTF-8" in problems(tmp_path, b"baselines:\n  \xff: 1\n")[0][1]
    bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(f'*{chr(97 + n)}' for _ in range(10))}]\n" for n in range(8)
    )
    assert "values" in problems(tmp_path, bomb)[0][1]
    assert "levels" in problems(tmp_path, "baselines: " + "[" * 100)[0][1]
    with pytest.raises(SuiteError, match="cannot read the file"):
        read_baselines(tmp_path / "none.yaml")


def test_hand_edits_that_break_their_convention_are_warnings_with_their_place(tmp_path: Path) -> None:
    shifted = THEIR.replace("step_time_lower_bound: 2.68109009", "step_time_lower_bound: 2.55")
    assert warnings(tmp_path, shifted) == [
        "4:28: step_time_upper_bound - step_time_lower_bound is 0.239223 (expected 2 x confidence_interval, 0.10814); "
        "edited by hand? the bounds are used"
    ]
    outside = THEIR.replace("average: 2.7352", "average: 1.6172")
    assert warnings(tmp_path, outside) == ["7:14: `average` 1.6172 is outside its bounds 2.68109009 to 2.789223"]


def test_rounding_and_a_lower_bound_cut_off_at_zero_are_no_hand_edits(tmp_path: Path) -> None:
    assert warnings(tmp_path, THEIR.replace("0.05407", "0.05406646")) == []
    assert warnings(tmp_path, THEIR.replace("0.05407", "0.05405")) != []
    cut = """\
benchmarks:
  a: {step_time_lower_bound: 0, step_time_upper_bound: 5.5, confidence_interval: 3.5, average: 2, sample_size: 9}
"""
    assert [one for one in warnings(tmp_path, cut) if "by hand" in one] == []


def test_bounds_wider_than_the_cap_are_a_warning_unless_the_entry_allows_it(tmp_path: Path) -> None:
    wide = "baselines: {a: {x: {lower: 1.0, upper: 3.0, center: 2.0}}}"
    assert warnings(tmp_path, wide) == ["1:28: ±50.0% exceeds the cap of ±20% and would miss most regressions"]
    assert warnings(tmp_path, wide.replace("center: 2.0", "center: 2.0, cap: 0.5")) == []


def test_comments_that_call_a_number_invented_are_warnings(tmp_path: Path) -> None:
    text = THEIR.replace("sample_size: 11", "sample_size: 11  # dummy number").replace(
        "  llama-3-8b-sft:", "  # copyed from llama-3-8b\n  llama-3-8b-sft:"
    )
    found = warnings(tmp_path, text)
    assert [one.split(": ")[0] for one in found] == ["9:3", "16:22"]
    assert "llama-3-8b-sft: a comment marks the number as invented" in found[0]
    entries = read(tmp_path, text).entries
    assert entries["llama-3-8b-sft"]["step_time"].invented == (9, 16)
    assert entries["llama-3-8b"]["step_time"].invented == ()


def test_the_word_dummy_in_a_value_is_no_comment(tmp_path: Path) -> None:
    text = THEIR.replace("name: Llama 3.0 8B\n", 'name: "Llama #1 # dummy number"\n    note: a#dummy number\n')
    assert warnings(tmp_path, text) == []


def test_a_key_that_is_nearly_a_known_one_is_a_warning_and_any_other_is_the_users_own(tmp_path: Path) -> None:
    text = "baselines: {a: {x: {lower: 1, uper: 2, owner: me}}}"
    assert warnings(tmp_path, text)[1:] == ["1:31: unknown key 'uper' has no effect; did you mean 'upper'?"]
    theirs = THEIR.replace("confidence_interval: 0.05407", "confidence_intervall: 0.05407")
    assert "did you mean 'confidence_interval'?" in warnings(tmp_path, theirs)[0]


def test_an_entry_that_can_judge_nothing_is_a_warning(tmp_path: Path) -> None:
    assert "the metric is not checked" in warnings(tmp_path, "baselines: {a: {x: {center: 1}}}")[0]
    (bound,) = read(tmp_path, "benchmarks: {a: {name: A}}").bounds("a")
    assert bound.state is BoundState.RECORDING


def test_a_file_with_the_runs_of_many_entries_can_be_read(tmp_path: Path) -> None:
    runs = ", ".join(f"nightly-20261003-{number:06d}-abcd" for number in range(400))
    entries = "".join(f"  b{n}:\n    step_time: {{lower: 1, upper: 1.1, used: [{runs}]}}\n" for n in range(200))
    assert len(read(tmp_path, f"baselines:\n{entries}").entries) == 200


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("{lower: 1, upper: null}", "`upper` is missing with `better: lower`, so a slower run is never reported"),
        ("{upper: 1, better: higher}", "`lower` is missing with `better: higher`, so a slower run is never reported"),
        ("{lower: 0, upper: 50, center: 2, cap: 13}", "±1,250% accepts almost any value"),
        ("{upper: 50, center: 2}", "±2,400% accepts almost any value"),
    ],
)
def test_bounds_that_no_run_can_fail_are_warnings(tmp_path: Path, entry: str, told: str) -> None:
    (found,) = warnings(tmp_path, f"baselines: {{a: {{x: {entry}}}}}")
    assert found.endswith((f"{told}; add it", f"{told}; narrow the bounds, or run `seatrial baseline update`"))
    off = entry.replace("}", ", disabled: not measured here}")
    assert warnings(tmp_path, f"baselines: {{a: {{x: {off}}}}}") == []
