"""Files that a training job left, and the metrics in them, from values."""

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from seatrial.checks.files import JobWindow, check_files, job_window
from seatrial.checks.metrics import check_metric, value_name
from seatrial.job import Exit, Observation, ObservedStep, Outcome, Place, Stage, StageTime, Verdict
from seatrial.suite.command import Files, Metric
from seatrial.suite.values import parse_requirement
from trained import EXITED, brief, train, values

UNTIMED = Observation("j", 1, Place("here", "m"), EXITED)
TIMES = [StageTime(Stage.STARTED, 1002.0, "supervisor"), StageTime(Stage.FINISHED, 1998.0, "target")]
RAN = replace(UNTIMED, stages=TIMES)  # a job between 1000 and 2000 s, with room for clocks
WANT_ONE = parse_requirement(1)


def file(path: str, size: int = 100, at_s: float = 1500.0, **more: Any) -> dict[str, Any]:
    return {"path": path, "bytes": size, "modified_s": at_s, "error": None, "values": {}, **more}


def files(*entries: dict[str, Any], name: str = "out", **others: list[dict[str, Any]]) -> ObservedStep:
    result = {name: {"count": len(entries), "files": list(entries)}}
    result |= {other: {"count": len(found), "files": found} for other, found in others.items()}
    return ObservedStep("files", "read", outcome=Outcome.EXITED, code=0, result=result)


def judged(seen: ObservedStep, job: Observation = RAN, **expected: Any) -> dict[str, tuple[str, str]]:
    return brief(check_files(seen, job, "out", Files(match="**/*", **expected)))


def test_none_is_too_few_unless_none_is_what_is_asked() -> None:
    assert judged(files()) == {"count": ("failed", "files")}
    assert judged(files(), count=parse_requirement(0)) == {"count": ("passed", "")}
    assert judged(files(file("a"), file("b")), count=WANT_ONE)["count"] == ("failed", "files")


def test_what_was_not_searched_is_not_counted_as_absent() -> None:
    few = files(file("a"))
    few.result["out"]["cut"] = "more than 5 files and folders; the rest was not searched"
    assert judged(few) == judged(few, count=parse_requirement(">=1"))
    assert judged(few)["count"] == ("passed", "")
    assert judged(few, count=WANT_ONE)["count"] == ("invalid", "unjudged")
    (finding, *_) = check_files(few, RAN, "out", Files(match="*", count=parse_requirement(">1")))
    assert "(expected >1); more than 5 files" in finding.message


def test_every_hosts_folder_has_the_count() -> None:
    both = files(file("job/profile/0-0/a"), file("job/profile/0-1/b"))
    assert judged(both, count=WANT_ONE)["count"] == ("passed", "")
    lopsided = files(file("job/profile/0-0/a"), file("job/profile/0-0/b"))
    assert judged(lopsided, count=WANT_ONE)["count"] == ("failed", "files")


def test_a_host_that_left_other_files_and_not_these_is_missed() -> None:
    seen = files(file("profile/0-0/a"), metrics=[file("outputs/0-0/m"), file("outputs/1-3/m")])
    (finding, _) = check_files(seen, RAN, "out", Files(match="*", count=WANT_ONE))
    assert finding.verdict is Verdict.FAILED
    assert "0 files matching '*' in the folder of host 1-3" in finding.message


def test_size_is_of_each() -> None:
    seen = files(file("a", 10), file("b", 2048))
    assert judged(seen, size=parse_requirement(">=1Ki"))["size"] == ("failed", "files")
    assert judged(seen, size=parse_requirement("<1Mi"))["size"] == ("passed", "")


def test_a_file_of_another_time_is_not_this_jobs() -> None:
    assert judged(files(file("a")))["fresh"] == ("passed", "")
    assert judged(files(file("a", at_s=990.0)))["fresh"] == ("failed", "files")
    assert judged(files(file("a", at_s=2010.0)))["fresh"] == ("failed", "files")
    assert judged(files(file("a", modified_s=None)))["fresh"] == ("failed", "files")
    assert judged(files(file("a")), job=UNTIMED)["fresh"] == ("skipped", "")
    assert "fresh" not in judged(files(file("a", at_s=1.0)), fresh=False)


def test_the_window_is_from_start_to_end_with_room_for_clocks() -> None:
    stages = [StageTime(Stage.STARTED, 100.0, "supervisor"), StageTime(Stage.FINISHED, 200.0, "target", 30.0)]
    observation = Observation("j", 1, Place("here", "m"), Exit(Outcome.EXITED, 0), stages)
    assert job_window(observation) == JobWindow(98.0, 232.0)
    assert job_window(UNTIMED) is None


def test_files_that_cannot_be_read_are_broken_and_named() -> None:
    seen = files(*(file(f"f{n}", error="not JSON: line 1") for n in range(12)), file("good"))
    found = check_files(seen, RAN, "out", Files(match="*", valid="json"))
    finding = next(one for one in found if one.check == "valid")
    assert (finding.verdict, finding.class_) == (Verdict.FAILED, "broken")
    assert finding.message == "12 of 13 files: f0: not JSON: line 1"
    assert finding.evidence.endswith("and 2 more")


def test_a_job_that_never_came_to_its_files_says_why() -> None:
    seen = ObservedStep("files", "read")
    (finding,) = check_files(seen, replace(UNTIMED, exit=Exit(Outcome.TIMEOUT)), "out", Files(match="*"))
    assert (finding.step, finding.verdict, finding.class_) == ("files out", Verdict.TIMEOUT, "timeout")


METRIC = value_name("m")
metric_files = partial(files, name=METRIC)


def measured(
    seen: ObservedStep, ran: ObservedStep | None = None, hosts: int = 0, **expected: Any
) -> tuple[str, str, dict[str, Any] | None]:
    finding, metric = check_metric(ran or train(), seen, "m", Metric(**expected), hosts)
    return str(finding.verdict), finding.message, metric


def test_a_metric_of_a_file_names_its_place() -> None:
    seen = metric_files(file("outputs/0-0/train_metrics.json", values={"step_execution_time": 2.5}))
    wanted = {"file": "*.json", "key": "step_execution_time", "unit": "s"}
    verdict, message, metric = measured(seen, **wanted, better="lower")
    assert (verdict, message) == ("passed", "2.5 s, from step_execution_time of outputs/0-0/train_metrics.json")
    assert metric == {
        "value": 2.5,
        "unit": "s",
        "better": "lower",
        "source": "step_execution_time of outputs/0-0/train_metrics.json",
    }
    assert "better" not in measured(seen, **wanted)[2]


def test_of_several_hosts_the_worst_counts() -> None:
    seen = metric_files(file("a", values={"k": 2.0}), file("b", values={"k": 3.0}))
    assert measured(seen, file="*.json", key="k", better="lower")[2]["value"] == 3.0
    assert measured(seen, file="*.json", key="k", better="higher")[2]["value"] == 2.0
    assert measured(seen, file="*.json", key="k", aggregate="mean")[2]["value"] == 2.5


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([], "no file matches '*.json'"),
        ([file("a", values={"k": None})], "a has no number at 'k'"),
        ([file("a", values={"k": "fast"})], "a has no number at 'k'"),
        ([file("a", values={"k": True})], "a has no number at 'k'"),
        ([file("a", values={"k": "nan"})], "'k' of a is nan"),
        ([file("a", values={"k": 2.0}), file("b", values={"k": "nan"})], "'k' of b is nan"),
        ([file("a", values={"k": "-inf"}), file("b", values={"k": 2.0})], "'k' of a is -inf"),
        ([file("a", error="truncated")], "a: truncated"),
    ],
)
def test_a_metric_that_is_not_there_is_a_failure_that_says_why(entries: list[dict[str, Any]], why: str) -> None:
    verdict, message, metric = measured(metric_files(*entries), key="k", file="*.json")
    assert (verdict, message, metric) == ("failed", f"not measured: {why}", None)
    assert measured(metric_files(*entries), file="*.json", key="k", required=False)[0] == "skipped"


def test_a_hosts_folder_without_the_file_of_a_metric_is_missed() -> None:
    one = file("outputs/0-0/m.json", values={"k": 2.0})
    seen = metric_files(one, profile=[file("profile/0-0/p"), file("profile/0-1/p")])
    verdict, message, _ = measured(seen, key="k", file="outputs/*/m.json")
    assert verdict == "failed"
    assert message == "not measured: no file matches 'outputs/*/m.json' in the folder of host 0-1"
    assert measured(
        metric_files(file("m.json", values={"k": 2.0}), profile=[file("profile/0-1/p")]), file="*.json", key="k"
    )[2]


def test_of_more_files_than_were_read_there_is_no_metric() -> None:
    seen = metric_files(file("a", values={"k": 2.0}))
    seen.result[METRIC]["count"] = 1001
    assert "1,001 files match" in measured(seen, file="*.json", key="k")[1]


def test_numbers_at_the_end_of_what_a_float_holds_come_to_no_metric() -> None:
    seen = metric_files(file("a", values={"k": 1.7e308}), file("b", values={"k": 1.7e308}))
    for how in ("mean", "median"):
        assert "too large" in measured(seen, file="*.json", key="k", aggregate=how)[1]


def test_of_a_job_that_was_ended_early_no_metric_is_missed() -> None:
    ended = train(outcome=Outcome.STOPPED, code=None)
    assert measured(metric_files(), ended, file="*.json", key="k")[0] == "skipped"
    assert measured(ObservedStep("files", "read"), file="*.json", key="k")[0] == "skipped"


def test_fixed_limits_are_inclusive() -> None:
    seen = metric_files(file("a", values={"k": 2.0}))
    for limits, verdict in (({"min": 2.0}, "passed"), ({"max": 2.0}, "passed"), ({"min": 2.1}, "failed"),
                            ({"max": 1.9}, "failed")):  # fmt: skip
        found = measured(seen, file="*.json", key="k", **limits)
        assert found[0] == verdict
        assert found[2]["value"] == 2.0  # a metric out of its limits is still a metric


def test_a_rate_of_the_log_loses_its_slow_beginning() -> None:
    log = train(values(METRIC, [1.0, 50.0, *[100.0] * 10]))
    verdict, message, metric = measured(metric_files(), log, log="r(.)", unit="tokens/s", better="higher")
    assert (verdict, metric["value"]) == ("passed", 100.0)
    assert message == "100 tokens/s, from the log (median of 10, first 2 left out)"
    assert measured(metric_files(), log, log="r(.)", aggregate="min", warmup=0)[2]["value"] == 1.0
    assert measured(metric_files(), log, log="r(.)", aggregate="last")[2]["source"] == "the log (last value)"
    assert measured(metric_files(), train(), log="r: (.)")[1] == "not measured: no line matches 'r: (.)'"


@pytest.mark.parametrize("aggregate", ["median", "last", "max"])
def test_a_reading_that_is_no_number_leaves_no_metric_of_the_others(aggregate: str) -> None:
    log = train(values(METRIC, [100.0, "nan", "?", 100.0]))
    verdict, message, metric = measured(metric_files(), log, log="r(.)", better="higher", min=50.0, aggregate=aggregate)
    assert (verdict, metric) == ("failed", None)
    assert message == "not measured: 2 of 4 values are not numbers: nan, other text"
    assert measured(metric_files(), log, log="r(.)", required=False, aggregate=aggregate)[0] == "skipped"


def test_a_last_reading_that_is_no_number_is_known_from_the_count() -> None:
    for last, kind in (("?", "other text"), ("inf", "inf")):
        summary = {"0": {"count": 4, "last": last, "unread": int(last == "?")}}
        log = train(values(METRIC, [100.0, 100.0, 100.0]), values={METRIC: summary})
        assert measured(metric_files(), log, log="r(.)")[1] == f"not measured: 1 of 4 values is not a number: {kind}"


def test_a_host_whose_log_tells_no_metric_is_named() -> None:
    log = train(values(METRIC, [100.0, 100.0, 100.0]))
    verdict, message, _ = measured(metric_files(), log, log="r(.)", hosts=2)
    assert (verdict, message) == (
        "failed",
        "not measured: no line of host 1 matches 'r(.)'; if one host is enough, set `log: {hosts: any}`",
    )
    assert measured(metric_files(), log, log="r(.)", hosts=1)[0] == "passed"
