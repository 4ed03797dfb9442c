"""What is made of the files of Run:ai's scale test tool, of an earlier run of theirs and of our own."""

import csv
import json
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from seatrial import SeatrialError
from seatrial.job import Unreadable
from seatrial.migrate.runai.files import SampledWorkload, SubmittedWorkload
from seatrial.migrate.runai.plot import captions, figure_of
from seatrial.migrate.runai.times import (
    DONE,
    ERROR,
    MILESTONES,
    NOT_SEEN,
    REFUSED,
    UNFINISHED,
    compatible,
    compatible_entries,
    csv_text,
    join_samples,
    metrics_of,
    read_folder,
)
from world import World

EARLIER = Path(__file__).parents[1] / "kinds/scale/runai" / "earlier"
PLACE = ("project-0", "runai-project-0")
DECISION = "Total Pod Scheduling Decision"


def at(seconds: float, zone: str = "Z") -> str:
    text = f"2026-05-04T10:00:{seconds:06.3f}" if seconds % 1 else f"2026-05-04T10:00:{int(seconds):02d}"
    return text + zone


def sent(name: str, seconds: float, **more: str) -> SubmittedWorkload:
    return SubmittedWorkload(name, *PLACE, at(seconds), **more)


def seen(name: str, *seconds: float | None, **more: Any) -> SampledWorkload:
    """Created: workload, job, first pod, last pod, pod group; then the decision."""
    times = [None if one is None else at(one) for one in seconds]
    return SampledWorkload(name, PLACE[1], PLACE[0], *times, **{"sampled_timestamp": at(50), **more})


def test_an_earlier_run_of_their_tool_is_read_with_the_workloads_that_it_left_out() -> None:
    joined = read_folder(EARLIER)
    states = [row.state for row in joined.rows]
    assert len(states) == 12
    assert (states.count(NOT_SEEN), states.count(ERROR), states.count(DONE)) == (2, 1, 9)
    assert joined.strangers == ["j-ffffff"]
    metrics = metrics_of(joined.rows, DECISION)
    assert (metrics.count, metrics.unfinished) == (12, 2)


def test_what_their_tool_filled_with_another_time_is_not_taken_for_a_time() -> None:
    rows = read_folder(EARLIER).rows
    (bound,) = [row for row in rows if "First PVC Bind" in row.deltas]
    assert bound.deltas["First PVC Bind"].value == 3.0  # from its request, not from itself
    assert not any("First Eviction" in row.deltas or "Backend Job Creation" in row.deltas for row in rows)


def test_columns_stand_below_their_headers(tmp_path: Path) -> None:
    headers, first, *_ = csv.reader(csv_text(read_folder(EARLIER).rows).splitlines())
    assert len(headers) == len(first) == 3 + 11 + len(MILESTONES) + 1
    assert ",".join(headers) == (
        "Job Name,Namespace,projectName,Workload Created,Job Created,First Pod Created,Last Pod Created,"
        "Pod Group Created,Pod Scheduling Decision,Workload Submitted,Backend Job Created,Workload Creation,"
        "Job Creation,First Pod Creation,Last Pod Creation,Pod Group Creation,Pod Scheduling Decision,First Eviction,"
        "First PVC Bind Request,First PVC Bind,Backend Job Creation,Total Pod Scheduling Decision,"
        "Total Backend Job Creation,"  # up to here as their tool
        "First Evicted,First PVC Bind Requested,First PVC Bound,State"
    )
    assert first[8].startswith("2024-09-08 13:40:"), "when it was decided"
    assert float(first[16]) >= 0, "how long that took"
    row = dict(zip(headers, first, strict=True))
    sent_at = {one["jobName"]: one["submitTimestamp"] for one in json.loads((EARLIER / "submitted.json").read_text())}
    assert row["Workload Submitted"] == sent_at[row["Job Name"]].replace("T", " ")[:23]
    assert row["Workload Created"].startswith("2024-09-08 13:40:3")
    assert row["State"] == DONE


def test_what_is_sampled_can_be_read_by_their_plotter_and_ours_knows_the_rest(tmp_path: Path) -> None:
    """Theirs needs each of these fields, in this order for its table, and parses all with Time in their names."""
    sampled = [seen("j-a", 2, 2, 3, 3, 3, 4.25), seen("j-b", 2, 2, None)]
    made = compatible(sampled)
    (entry,) = compatible_entries(sampled)
    assert list(entry) == list(json.loads((EARLIER / "sampled.json").read_text())[0])
    for name in (one for one in entry if "Time" in one):
        text = entry[name].replace("T", " ").partition(".")[0].partition("Z")[0].partition("+")[0]
        assert datetime.strptime(text, "%Y-%m-%d %H:%M:%S").year == 2026
    assert entry["firstEvictionTimestamp"] == entry["firstPVCBindTimestamp"] == entry["podSchedulingDecisionTimestamp"]
    assert entry["backendJobCreatedTimestamp"] == entry["workloadCreatedTimestamp"]
    for name, content in (
        ("submitted", [sent("j-a", 1.5), sent("j-b", 1.5)]),
        ("sampled", compatible_entries(sampled)),
        ("sampled-all", sampled),
    ):
        (tmp_path / f"{name}.json").write_bytes(msgspec.json.encode(content))
    rows = read_folder(tmp_path).rows
    assert [row.state for row in rows] == [DONE, UNFINISHED]
    assert "First Eviction" not in rows[0].deltas
    (tmp_path / "sampled.json").write_bytes(msgspec.json.encode([replace(made[0], job_name="j-b")]))
    assert [row.state for row in read_folder(tmp_path).rows] == [NOT_SEEN, DONE], "their sampler wrote a newer one"


def test_the_general_plot_keeps_its_titles() -> None:
    rows = join_samples([sent("j-a", 1.5)], [seen("j-a", 2, 2, 3, 3, 3, 4)]).rows
    figure = figure_of(rows, "general")
    assert figure.get_suptitle() == "Total number of jobs run: 1"
    title = figure.axes[0].get_title()
    assert title.startswith("Total Pod Scheduling Decision Time from Workload Submission (average: 3.00 seconds)\np50 ")


def test_series_of_one_workload_stay_together_when_many_are_sent_in_the_same_second() -> None:
    submitted = [sent("j-b", 1.5), sent("j-a", 1.5)]
    sampled = [seen("j-a", 2, 2, 2, 2, 2, 9), seen("j-b", 8, 8, 8, 8, 8, 8)]
    rows = join_samples(submitted, sampled).rows
    assert [(row.name, row.deltas["Workload Creation"].value, row.deltas[DECISION].value) for row in rows] == [
        ("j-a", 1.0, 8.0),
        ("j-b", 7.0, 7.0),
    ]


def test_what_has_not_happened_counts_as_longer_than_it_was_seen_to_last() -> None:
    submitted = [sent(f"j-{number}", 10.5) for number in range(10)]
    sampled = [seen(f"j-{number}", 11, 11, 11, 11, 11, 12) for number in range(6)]
    sampled += [seen(f"j-{number}", 11, 11, 11, 11, 11, None) for number in (6, 7)]
    rows = join_samples(submitted, sampled).rows
    assert [row.state for row in rows] == [DONE] * 6 + [UNFINISHED] * 2 + [NOT_SEEN] * 2
    metrics = metrics_of(rows, DECISION)
    assert (metrics.count, metrics.unfinished, metrics.average) == (10, 4, 2.0)
    (_, low50, high50), (_, low90, high90), _ = metrics.quantiles
    assert (low50, high50) == (1.5, 2.5)  # both ends of its second
    assert (low90, high90) == (40.5, None)
    assert captions(metrics) == (
        "average: 2.00 seconds",
        "p50 1.5 to 2.5, p90 above 40.5, p99 above 40.5, 4 unfinished",
    )


def test_times_below_a_second_are_kept_where_both_ends_have_them() -> None:
    (row,) = join_samples([sent("j-a", 1.25)], [seen("j-a", 1, 1, 1, 1, 1, 1.875)]).rows
    assert row.deltas[DECISION].value == pytest.approx(0.625)
    assert row.deltas["Workload Creation"].value == 0.0
    assert row.deltas["Workload Creation"].upper == pytest.approx(0.75)
    assert row.state == DONE


def test_zones_are_honoured() -> None:
    submitted = replace(sent("j-a", 1.5), submit_timestamp="2026-05-04T12:00:01.500000+02:00")
    (row,) = join_samples([submitted], [seen("j-a", 3, 3, 3, 3, 3, 4)]).rows
    assert row.deltas["Workload Creation"].value == 2.0


def test_a_workload_that_the_server_refused_is_a_row_without_times() -> None:
    (row,) = join_samples([sent("j-a", 1.5, error="exceeded quota")], []).rows
    assert (row.state, row.deltas) == (REFUSED, {})
    assert csv_text([row]).splitlines()[1].endswith(",refused")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"[{}]", "missing required field `jobName`"),
        (b"{", "cannot read .*submitted.json"),
        (b'[{"jobName":"a","projectName":"b","jobNamespace":"c","submitTimestamp":"soon"}]', "invalid time 'soon'"),
    ],
)
def test_a_file_that_is_something_else_is_told_with_its_place(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "submitted.json").write_bytes(data)
    (tmp_path / "sampled.json").write_bytes(b"[]")
    with pytest.raises(SeatrialError, match=message):
        read_folder(tmp_path)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59Z", "1e9", ""])
def test_what_is_no_time_of_a_workload_is_told_with_its_name(text: str) -> None:
    with pytest.raises(Unreadable, match=r"workload 'j-a': invalid time .*; use 2024"):
        join_samples([replace(sent("j-a", 1), submit_timestamp=text)], [])


def test_a_plot_is_a_picture_and_says_what_it_shows(world: World) -> None:
    shutil.copytree(EARLIER, world.folder / "logs")
    told = world.seatrial("scale", "plot", "--plot", "detailed", check=0).stdout
    assert (world.folder / "logs/detailed.png").read_bytes().startswith(b"\x89PNG")
    assert "1 of 12 workloads with impossible times skipped" in told
    assert "1 sampled workloads missing from submitted.json" in told
    assert "2 unfinished" in told
    shown = world.seatrial("scale", "plot", "--no-skip-errors", "--head", "5", "--tail", "2", check=0)
    assert (world.folder / "logs/general.png").read_bytes().startswith(b"\x89PNG"), "the default"
    assert "1 of 12 workloads with impossible times shown" in shown.stdout
    assert " (2): average" in shown.stdout


def test_what_is_missing_is_told_with_what_to_do(world: World) -> None:
    assert "`seatrial scale submit` creates it" in world.seatrial("scale", "plot", check=2).stderr
    told = world.seatrial("scale", "submit", "-n", "5", check=2).stderr
    assert "cannot read yaml/training.yaml" in told
    assert "--templates DIR" in told
    assert "folder not found: " in world.seatrial("scale", "sample", check=2).stderr
    assert "cannot read logs/submission.json" in world.seatrial("scale", "clean", check=2).stderr
