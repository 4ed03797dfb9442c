"""The records of several hosts as one: what each host's agent told, put together."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.job import ObservedStep, Outcome, Records, Step, merged, read_records

STEPS = (Step("train", "command"), Step("files", "read"))
HARDWARE = {"cpu": "one", "cores": 2, "memory_bytes": 100, "gpu": ["A100"]}


def host(
    train: dict[str, Any] | None = None,
    files: dict[str, Any] | None = None,
    *,
    wall_s: float = 1000.0,
    hardware: dict[str, Any] = HARDWARE,
    notes: list[dict[str, Any]] | None = None,
    end: dict[str, Any] | None = None,
) -> Records:
    """What the agent of one host wrote. `train` and `files` are the `done` records of its steps; None: not ended."""
    lines: list[dict[str, Any]] = [{"event": "begin", "at_s": 10.0, "wall_s": wall_s, "hardware": hardware}]
    for number, done in enumerate((train, files)):
        lines.append({"event": "step", "step": number, "at_s": 11.0 + number})
        if number == 0:
            lines += [{"event": "note", "step": 0, "at_s": 11.5, "data": note} for note in notes or []]
        if done is not None:
            lines.append(
                {"event": "done", "step": number, "at_s": 12.0 + number, "outcome": "exited", "code": 0, **done}
            )
    if end is not None:
        lines.append({"event": "end", "at_s": 20.0, "outcome": "exited", **end})
    return read_records([json.dumps(line).encode() for line in lines], STEPS)


def step(records: Records, number: int = 0) -> ObservedStep:
    return records.steps[number]


def sought(count: int, host: int, line: int = 1) -> dict[str, Any]:
    return {"count": count, "host": {str(host): count} if count else {}, "line": line, "text": f"of {host}"}


def test_one_host_is_as_it_is() -> None:
    alone = host({}, {}, end={"message": "done"})
    assert merged([alone]) is alone


def test_all_that_passed_is_told_as_the_slowest_tells_it_and_sums_are_of_all() -> None:
    quick = host({"at_s": 12.0, "output": "quick\n", "cpu_s": 1.0, "peak_memory_bytes": 7, "oom_kills": 1}, {})
    slow = host({"at_s": 19.0, "output": "slow\n", "cpu_s": 2.5, "peak_memory_bytes": 5}, {})
    seen = step(merged([quick, slow]))
    assert (seen.outcome, seen.code) == (Outcome.EXITED, 0)
    assert seen.output == "[1] slow\n"
    assert seen.seconds == 8.0
    assert (seen.cpu_s, seen.peak_memory_bytes, seen.oom_kills) == (3.5, 7, 1)


def test_the_host_that_failed_first_by_the_wall_clock_is_told_and_named() -> None:
    later = host({"code": 1, "output": "connection reset\n"}, wall_s=1000.5)
    first = host({"code": 7, "output": "the cause\n"}, wall_s=1000.0)
    well = host({}, wall_s=999.0)
    seen = step(merged([well, later, first]))
    assert seen.code == 7
    assert seen.output == "[2] the cause\n[2] --- host 2 ended with code 7\n"


def test_what_was_only_ended_because_another_failed_does_not_hide_the_failure() -> None:
    ended = host({"outcome": "cancelled", "code": None, "signal": 15}, wall_s=900.0)
    cause = host({"outcome": "memory", "code": None, "signal": 9, "output": "big\n"}, wall_s=1000.0)
    seen = step(merged([ended, cause]))
    assert (seen.outcome, seen.signal) == (Outcome.MEMORY, 9)


def test_a_host_that_left_no_records_keeps_the_others_from_having_passed() -> None:
    silent = read_records([], STEPS)
    both = merged([host({}, {}, end={}), silent])
    assert step(both).outcome is None
    assert both.outcome is None
    assert both.hardware == HARDWARE


def test_the_message_of_the_whole_names_its_host() -> None:
    both = merged([host({}, {}, end={}), host(None, None, end={"outcome": "infra", "message": "the disk is full"})])
    assert (both.outcome, both.message) == (Outcome.INFRA, "host 1: the disk is full")


def test_what_was_read_of_each_log_is_kept_by_host() -> None:
    def result(number: int, found: int) -> dict[str, Any]:
        return {
            "lines": 10, "long_lines": number, "steps": 5, "stopped": None,
            "dropped": [{"pattern": "slow", "why": "x"}],
            "must": {"done": sought(found, number)}, "never": {"Traceback": sought(0, number)},
            "values": {"loss": {str(number): {"count": 5, "last": 0.5 + number}}},
        }  # fmt: skip

    seen = step(
        merged([host({"result": result(0, 0)}), host({"result": result(1, 2)}), host({"result": result(2, 1)})])
    )
    assert seen.result["lines"] == 30
    assert seen.result["long_lines"] == 3
    assert seen.result["steps"] == 15
    assert seen.result["must"] == {"done": {"count": 3, "host": {"1": 2, "2": 1}, "line": 1, "text": "of 1"}}
    assert seen.result["never"]["Traceback"]["count"] == 0
    assert {name: one["last"] for name, one in seen.result["values"]["loss"].items()} == {"0": 0.5, "1": 1.5, "2": 2.5}
    assert seen.result["dropped"] == [{"pattern": "slow", "why": "x"}]


def test_why_a_host_was_stopped_is_that_of_the_host_which_is_told() -> None:
    stopped = {"what": "never", "pattern": "Traceback", "host": 1}
    both = merged([host({"result": {"stopped": None}}), host({"outcome": "stopped", "result": {"stopped": stopped}})])
    assert step(both).outcome is Outcome.STOPPED
    assert step(both).result["stopped"] == stopped


def test_notes_are_those_of_all_hosts_in_their_order() -> None:
    both = merged([host({}, notes=[{"note": "values", "host": 0}]), host({}, notes=[{"note": "values", "host": 1}])])
    assert [note["host"] for note in step(both).notes] == [0, 1]


def found(*paths: str, count: int | None = None, modified_s: float = 5.0, **more: Any) -> dict[str, Any]:
    files = [{"path": path, "bytes": 3, "modified_s": modified_s} for path in paths]
    return {"result": {"profile": {"count": len(paths) if count is None else count, "files": files, **more}}}


def files_of(*hosts: dict[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = step(merged([host({}, one) for one in hosts]), 1).result["profile"]
    return entry


def test_files_count_as_if_all_hosts_had_one_folder() -> None:
    apart = files_of(found("out-0.json"), found("out-1.json", modified_s=6.0))
    assert apart["count"] == 2
    assert [one["path"] for one in apart["files"]] == ["hosts/0/out-0.json", "hosts/1/out-1.json"]
    each = files_of(found("out.json"), found("out.json", modified_s=6.0))
    assert each["count"] == 1
    assert [one["path"] for one in each["files"]] == ["hosts/0/out.json", "hosts/1/out.json"]
    assert files_of(found("out.json"), found())["count"] == 1


def test_a_file_that_several_hosts_see_in_a_shared_folder_is_one_file() -> None:
    shared = files_of(found("profile/0-0/a.pb", "profile/0-1/a.pb"), found("profile/0-0/a.pb", "profile/0-1/a.pb"))
    assert shared["count"] == 2
    assert [one["path"] for one in shared["files"]] == ["profile/0-0/a.pb", "profile/0-1/a.pb"]


def test_files_of_the_same_size_and_instant_with_other_values_are_each_hosts_own() -> None:
    def wrote(step_time: float) -> dict[str, Any]:
        one = {"path": "metrics.json", "bytes": 19, "modified_s": 5.0, "values": {"step_time": step_time}}
        return {"result": {"profile": {"count": 1, "files": [one]}}}

    told = files_of(wrote(0.25), wrote(1.25))["files"]
    assert [one["path"] for one in told] == ["hosts/0/metrics.json", "hosts/1/metrics.json"]


def test_files_that_were_counted_and_not_told_stay_counted_and_what_was_cut_says_where() -> None:
    many = files_of(found("a", count=1500, cut="more than can be looked at"), found("b"))
    assert many["count"] == 1501
    assert many["cut"] == "host 0: more than can be looked at"


def test_hosts_of_other_hardware_are_told_and_memory_to_the_byte_is_not_counted() -> None:
    same = merged([host({}), host({}, hardware={**HARDWARE, "memory_bytes": 99})])
    assert same.hardware == HARDWARE
    other = merged([host({}), host({}, hardware={**HARDWARE, "gpu": ["H100"]})])
    assert other.hardware["others"] == {"1": {"cpu": "one", "cores": 2, "gpu": ["H100"]}}


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
words = st.sampled_from(
    ["must", "never", "values", "stopped", "dropped", "errors", "lines", "profile", "error", "files"]
)


fields = st.sampled_from(["cpu_s", "peak_memory_bytes", "oom_kills", "output", "output_omitted_bytes", "result"])


@settings(max_examples=60)
@given(st.lists(st.dictionaries(words, plain, max_size=4), min_size=2, max_size=3))
def test_whatever_a_result_holds_is_no_error(results: list[dict[str, Any]]) -> None:
    both = merged([host({"result": result}, {"result": result}) for result in results])
    assert len(both.steps) == 2


@settings(max_examples=60)
@given(st.lists(st.dictionaries(fields, plain, max_size=4), min_size=2, max_size=3))
def test_whatever_a_record_holds_is_no_error(records: list[dict[str, Any]]) -> None:
    both = merged([host(record, record) for record in records])
    assert len(both.steps) == 2
