"""How a trial measured: clocks that differ, gaps, the audit log, the server's metrics, and what is said of them."""

import math
import random
from pathlib import Path
from typing import Any

import orjson
import pytest

from seatrial.http.http1 import RequestAttempt
from seatrial.job import ObservedStep, Outcome, Series, Verdict
from seatrial.kinds.scale.driver.audit import read_audit, use_audit
from seatrial.kinds.scale.driver.clock import ServerClock, agreements
from seatrial.kinds.scale.driver.health import (
    gaps,
    health_columns,
    longest_idle,
    outages_of,
    read_lines,
    read_sample,
)
from seatrial.kinds.scale.driver.stages import reached_stages
from seatrial.kinds.scale.followed import POD_CREATED, SCHEDULED, UNSCHEDULABLE
from seatrial.kinds.scale.measured import check_limits, check_measured, limited_by, measured_charts
from seatrial.kinds.scale.work import ClockMetrics, Limit, MeasuredScale, Stamp, StampAgreement, Submission

STEP = ObservedStep("driver", "drive", outcome=Outcome.EXITED, code=0)
EPOCH_S = 1_800_000_000.0


def sent(number: int, at_s: float = 100.0) -> Submission:
    return Submission(number, at_s, at_s + 0.001, at_s + 0.004, 1)


# ---- clocks


@pytest.mark.parametrize("offset_s", [EPOCH_S + 0.37, EPOCH_S + 3600.9, EPOCH_S - 3599.25])
def test_the_offset_of_a_server_is_found_from_whole_seconds_to_less_than_a_round_trip(offset_s: float) -> None:
    clock, chance, now_s = ServerClock(), random.Random(1), 50.0
    for _ in range(4):  # turns of a second
        for at_s in clock.probes(now_s):
            now_s = max(at_s, now_s)
            there_s, back_s = chance.uniform(0.0005, 0.003), chance.uniform(0.0005, 0.003)
            clock.take(now_s, now_s + there_s + back_s, math.floor(now_s + there_s + offset_s))
            now_s += there_s + back_s
    assert clock.low_s <= offset_s <= clock.high_s
    assert clock.high_s - clock.low_s < 0.01
    assert clock.jumps == 0


def test_a_clock_that_is_set_meanwhile_is_told() -> None:
    clock = ServerClock()
    clock.take(10.0, 10.01, 1000.0)
    clock.take(11.0, 11.01, 4600.0)
    assert clock.jumps == 1
    assert clock.low_s <= 4600 - 11 <= clock.high_s


def stamp(at_s: float, server: str, stage: str = POD_CREATED) -> Stamp:
    return Stamp(0, "p", stage, at_s, server=server)


@pytest.mark.parametrize(
    ("second", "disagree", "worst_s"),
    [("09:00:00", 0, 0.0), ("09:00:01", 0, 0.0), ("10:00:00", 1, 3598.5), ("08:00:00", 1, -3599.0)],
)
def test_stamps_of_a_server_are_whole_seconds_that_must_hold_what_was_seen(
    second: str, disagree: int, worst_s: float
) -> None:
    """Sent at 09:00:00.0 and seen at 09:00:01.5 by the API server's clock; one hour off is not one of ours."""
    clock = ServerClock()
    clock.low_s = clock.high_s = 32400.0 - 100.001  # 1970-01-01T09:00:00Z when it was sent
    (found,) = agreements(clock, [stamp(101.501, f"1970-01-01T{second}Z")], {0: sent(0)})
    assert (found.stage, found.stamps, found.disagree) == (POD_CREATED, 1, disagree)
    assert found.worst_s == pytest.approx(worst_s, abs=0.01)


def test_stamps_that_are_no_time_or_of_none_are_left_out() -> None:
    clock = ServerClock()
    assert agreements(clock, [stamp(101.0, "1970-01-01T09:00:00Z")], {0: sent(0)}) == []
    clock.low_s = clock.high_s = 0.0
    assert agreements(clock, [stamp(101.0, ""), stamp(101.0, "soon")], {0: sent(0)}) == []
    assert agreements(clock, [stamp(101.0, "1970-01-01T09:00:00Z")], {}) == []


def test_a_wrong_clock_is_a_finding_and_changes_no_verdict() -> None:
    agree = ClockMetrics(0.0004, 0.0007, 0, [StampAgreement(SCHEDULED, 10, 0, 0.0)])
    assert _findings(MeasuredScale(["pods"], clock=agree))["clock"][0] is Verdict.PASSED
    wrong = ClockMetrics(3600.0, 0.0007, 1, [StampAgreement(SCHEDULED, 10, 10, 3599.0)])
    verdict, message = _findings(MeasuredScale(["pods"], clock=wrong))["clock"]
    assert verdict is Verdict.SKIPPED
    assert "10 of 10 timestamps of scheduled are wrong" in message
    assert "no metric uses these timestamps" in message


def _findings(measured: MeasuredScale) -> dict[str, tuple[Verdict, str]]:
    return {one.check: (one.verdict, one.message) for one in check_measured(STEP, measured)}


# ---- gaps and health


def test_gaps_and_the_lag_of_the_own_loop_are_read_from_the_file_of_stamps(tmp_path: Path) -> None:
    path = tmp_path / "stamps.jsonl"
    assert read_lines(path) == []
    lines: list[dict[str, Any]] = [{"loop_s": 0.01, "at_s": 1.0}, {"loop_s": 0.4, "at_s": 2.0}]
    lines += [{"gap_s": 3.0, "at_s": 8.0, "kind": "Pod"}, {"canary": "1-1", "at_s": 9.0}]
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines) + b'{"workload":1,"po')
    found = read_lines(path)
    assert [line.loop_s for line in found] == [0.01, 0.4, None, None]
    assert gaps(found) == (1, 5.0)


METRICS = b"""# HELP x y
apiserver_request_duration_seconds_bucket{verb="POST",resource="pods",le="0.05"} %d
apiserver_request_duration_seconds_bucket{verb="POST",resource="pods",le="1"} %d
apiserver_request_duration_seconds_bucket{verb="POST",resource="pods",le="+Inf"} %d
apiserver_request_duration_seconds_bucket{verb="WATCH",resource="pods",le="+Inf"} 7
apiserver_request_total{code="429",verb="POST"} %d
apiserver_request_total{code="201",verb="POST"} 99
apiserver_current_inflight_requests{request_kind="mutating"} 3
apiserver_current_inflight_requests{request_kind="readOnly"} 4
apiserver_storage_size_bytes{storage_cluster_id="etcd-0"} 1.5e+06
process_cpu_seconds_total 12
garbage{ 1
"""


def test_the_metrics_of_a_server_are_differences_between_two_looks() -> None:
    samples = [read_sample(METRICS % (100, 100, 100, 0), 10.5), read_sample(METRICS % (190, 200, 200, 6), 15.5)]
    samples.append(read_sample(METRICS % (1, 1, 1, 0), 20.5))
    columns = health_columns({0: sent(0, 10.0)}, [], [], samples, 20.6)
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    points = {row["seconds"]: row for row in rows}
    unknown = {"rejected": None, "POST p99": None}
    first = {"seconds": 0.0, "offered": 1, "acknowledged": 1, "create p99": points[0]["create p99"], **unknown}
    assert points[0] == {**first, "in flight": 7, "size": 1_500_000}
    assert points[5]["POST p99"] == 1.0, "10 of the 100 since then took more than 50 ms"
    assert (points[5]["rejected"], points[5]["in flight"], points[5]["size"]) == (6, 7, 1_500_000)
    assert points[10]["in flight"] == 7
    assert points[10]["rejected"] is None, "it was restarted"
    all_in_one = health_columns({}, [], [], samples[:2], 0.0)
    assert (all_in_one["rejected"], all_in_one["POST p99"]) == ([6], [1.0]), "of several the last"


def test_load_lag_and_health_are_on_one_axis_of_time() -> None:
    submissions = {0: sent(0, 100.0), 1: sent(1, 101.2), 2: Submission(2, 101.3, 101.4, None, 2, (429, 429), "no")}
    lines = [*read_lines(Path("/none"))]
    columns = health_columns(submissions, [(101.5, 0.25), (90.0, 0.1)], lines, [], 103.5)
    assert columns["seconds"] == [0.0, 1.0, 2.0, 3.0]
    assert columns["offered"] == [1, 2, 0, 0]
    assert columns["refused"] == [0, 2, 0, 0]
    assert columns["watch lag"] == [0.1, 0.25, None, None], "what was not measured is not 0"
    assert columns["create p99"][1] == pytest.approx(0.003)
    chart = measured_charts(MeasuredScale(health=columns), [])[0]
    assert isinstance(chart, Series)
    assert chart.columns[:4] == ["seconds", "offered", "acknowledged", "refused"]
    assert "etcd" not in chart.columns, "what was never known is no column"
    limit = limited_by(MeasuredScale(health=columns))
    assert limit.startswith("the API server rejected requests (2 from this trial, 2 in total)")
    assert len(health_columns(submissions, [], [], [], 100_000.0)["seconds"]) <= 121


def test_an_api_server_without_an_answer_and_a_scheduler_that_stops_are_named() -> None:
    def asked(at_s: float, problem: str = "", answered_s: float | None = None) -> RequestAttempt:
        return RequestAttempt(at_s, answered_s=answered_s, problem=problem)

    attempts = [asked(1.0, answered_s=1.1), asked(2.0, "refused"), asked(3.0, "refused"), asked(7.0, answered_s=7.2)]
    attempts += [asked(8.0, "one broken connection"), asked(8.1, answered_s=8.2), asked(50.0, "refused"), asked(60.0)]
    assert outages_of(attempts, 0.0, 9.0) == [(2.0, 7.2)]
    assert outages_of(attempts, 4.0, 70.0) == [(4.0, 7.2), (50.0, 70.0)], "of the trial, to its end"
    assert outages_of([], 0.0, 9.0) == []
    down = MeasuredScale(outages=[(2.0, 7.2)])
    assert _findings(down)["API server"] == (Verdict.SKIPPED, "API server unreachable for 5.2 s")
    assert limited_by(down) == "API server unreachable for 5.2 s"
    assert limited_by(MeasuredScale()) == ""


def test_the_longest_time_without_a_decision_while_pods_wait_is_found() -> None:
    stamps = [Stamp(0, "a", POD_CREATED, 10.0), Stamp(0, "a", SCHEDULED, 10.5), Stamp(1, "b", POD_CREATED, 30.0)]
    assert longest_idle(stamps, {0, 1}, [], 30.5) == (0.5, 1), "without a pod there is nothing to decide"
    stamps += [Stamp(2, "c", POD_CREATED, 31.0), Stamp(1, "b", UNSCHEDULABLE, 49.0), Stamp(2, "c", SCHEDULED, 49.1)]
    assert longest_idle(stamps, {0, 1, 2}, [], 90.0) == (19.0, 2), "one that fits nowhere was decided"
    assert longest_idle(stamps, {0, 1, 2}, [(31.0, 48.5)], 90.0) == (1.0, 2), "the scheduler cannot be heard then"
    assert longest_idle(stamps, {0, 1, 2}, [], 45.0)[0] <= 19.0
    gap = [Stamp(1, "b", POD_CREATED, 30.0), Stamp(1, "b", SCHEDULED, 49.0, since_s=30.2)]
    assert longest_idle(gap, {1}, [], 90.0)[0] == pytest.approx(0.2), "the watch did not see when"
    idle = MeasuredScale(idle_s=19.0, idle_pods=2)
    assert limited_by(idle) == "the scheduler: no binding for 19 s while 2 pods waited for it"


def test_what_may_limit_a_trial_is_told_and_judged_by_nobody() -> None:
    assert [one.verdict for one in check_limits(STEP, [])] == [Verdict.PASSED]
    (told,) = check_limits(STEP, [Limit("quota", "50 of 60 jobs")])
    assert (told.check, told.verdict, told.message) == ("preflight quota", Verdict.SKIPPED, "50 of 60 jobs")


def test_what_could_not_be_followed_is_told() -> None:
    verdict, message = _findings(MeasuredScale(["pods"], ["watch events in namespace x"], 2, 3.5))["watch"]
    assert verdict is Verdict.SKIPPED
    assert "2 gaps" in message
    assert "watch events in namespace x" in message


# ---- the audit log

PREFIX = "scale-12"


def audit_line(name: str, received_s: float, done_s: float, sub: str = "", code: int = 201, **more: Any) -> bytes:
    resource = "pods" if sub else "jobs"
    line = {
        "kind": "Event", "stage": "ResponseComplete", "verb": "create",
        "objectRef": {"resource": resource, "namespace": "x", "name": name, "subresource": sub},
        "responseStatus": {"metadata": {}, "code": code},
        "requestReceivedTimestamp": stamp_text(received_s), "stageTimestamp": stamp_text(done_s), **more,
    }  # fmt: skip
    return orjson.dumps(line) + b"\n"


def stamp_text(at_s: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(EPOCH_S + at_s, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def written(folder: Path, *lines: bytes) -> Path:
    path = folder / "audit.log"
    path.write_bytes(b"".join(lines))
    return path


def test_when_pods_were_bound_is_in_the_audit_log_by_our_clock(tmp_path: Path) -> None:
    """Its clock is brought to ours by submissions: received after they were sent and before they were answered."""
    submissions = {0: sent(0, 100.0), 1: sent(1, 101.0)}
    path = written(
        tmp_path,
        audit_line(f"{PREFIX}-0", 99.2, 99.3, requestURI="/apis/batch/v1/namespaces/x/jobs?dryRun=All"),
        audit_line(f"{PREFIX}-0", 100.0015, 100.0035),
        audit_line(f"{PREFIX}-1", 101.0011, 101.0038),
        audit_line(f"{PREFIX}-0-abcde", 100.4, 100.5, "binding"),
        audit_line(f"{PREFIX}-0-fghij", 100.6, 100.7, "binding"),
        audit_line(f"{PREFIX}-1-klmno", 101.4, 101.5, "binding"),
        audit_line(f"{PREFIX}-1-pqrst", 101.4, 101.6, "binding", code=409),
        audit_line(f"{PREFIX}9-1-x", 101.4, 101.6, "binding"),
        audit_line(f"{PREFIX}-1", 101.2, 101.3, verb="delete"),
        b'{"objectRef": {"name": "' + PREFIX.encode() + b"-1",
    )
    audited = read_audit(path, PREFIX, submissions)
    assert audited.offset_s == pytest.approx(EPOCH_S, abs=0.002)
    assert audited.within_s < 0.002
    watched = [Stamp(0, uid, SCHEDULED, at_s) for uid, at_s in (("a", 100.51), ("b", 100.72))]
    watched.append(Stamp(1, "c", SCHEDULED, 101.9))
    reached = reached_stages(submissions, watched, {0: 2, 1: 2})
    better, metrics = use_audit(path, PREFIX, submissions, reached, {0: 2, 1: 2})
    assert better.times[SCHEDULED][0][1] == pytest.approx(100.7, abs=0.003)
    assert 1 not in better.times[SCHEDULED], "one of its two pods is bound"
    assert metrics.workloads == 1
    assert metrics.watch_p50_s == pytest.approx(0.02, abs=0.003)


def test_a_log_that_was_rotated_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "audit-2026-11-17T06-00-00.000.log").write_bytes(audit_line(f"{PREFIX}-0", 100.0015, 100.0035))
    path = written(tmp_path, audit_line(f"{PREFIX}-0-a", 100.4, 100.5, "binding"))
    assert list(read_audit(path, PREFIX, {0: sent(0)}).bound) == [0]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((), "has no requests for these workloads"),
        ((audit_line("other-0", 100.0, 100.1),), "has no requests for these workloads"),
        ((audit_line(f"{PREFIX}-0-a", 100.4, 100.5, "binding"),), "cannot align the clock"),
        (
            (audit_line(f"{PREFIX}-0", 100.002, 100.003), audit_line(f"{PREFIX}-1", 3700.0, 3700.1)),
            "was adjusted during the trial",
        ),
    ],
)
def test_a_log_that_is_of_no_use_is_said_and_nothing_is_taken_from_it(
    tmp_path: Path, lines: tuple[bytes, ...], message: str
) -> None:
    path = written(tmp_path, *lines)
    submissions = {0: sent(0), 1: sent(1)}
    with pytest.raises(match=message):
        read_audit(path, PREFIX, submissions)
    reached = reached_stages(submissions, [], {})
    same, metrics = use_audit(path, PREFIX, submissions, reached, {})
    assert same is reached
    assert message in metrics.problem
    assert _findings(MeasuredScale(audit=metrics))["audit log"][0] is Verdict.INVALID
    with pytest.raises(match="cannot read the audit log"):
        read_audit(tmp_path / "none.log", PREFIX, submissions)
