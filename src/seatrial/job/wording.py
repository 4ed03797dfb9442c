"""Former wordings of messages, so that a reworded message does not make a known cause new.

The id of a cause is a hash of its message. A message that was reworded is hashed in its first wording.
"""

import re
from functools import cache
from itertools import combinations

# kinds/scale: each subset of these reasons makes a message, alone or with the lag of the watch.
_SCALE_DOUBTS = (
    (
        "the load generator was killed and restarted, so arrival times differ from the plan",
        "the driver was killed and began again, so the arrivals were not those that were asked for",
    ),
    ("the load generator was stopped before the end", "it was stopped before it was done"),
    ("the load generator sent late: p99 {a}", "the driver itself was late: p99 {a}"),
    ("the watch lagged: p99 {b}", "its watch was late: p99 {b}"),
    ("the watch lag could not be measured", "how late its watch was could not be measured"),
)
_SCALE_LAGS = (
    (" (watch lag p50 {c}, p99 {d}; limit {e})", " (watch lag p50 {c}, p99 {d}; at most {e} is allowed)"),
    ("", ""),
)
# kinds/scale: bounds with the operator that the suite left out, or wrote.
_SCALE_BOUNDS = (
    ("{a}: {b} (expected BOUND), # % {e}", "{a}: {b}, # % {e}, and should be BOUND"),
    ("{a}: {b} of # workloads (expected BOUND)", "{a}: {b} of #, and should be BOUND"),
    ("refused: {b} error responses (expected BOUND)", "refused: {b} of #, and should be BOUND"),
    ("rate: {b}/s (expected BOUND)", "rate: {b} of #, and should be BOUND"),
)
_SCALE_OPERATORS = (
    ("< {d}", "< < {d}"),
    ("> {d}", "> > {d}"),
    ("{c} {d}", "{c} {d}"),
    ("<={d}", "<= <={d}"),
    (">={d}", ">= >={d}"),
    ("<{d}", "< <{d}"),
    (">{d}", "> >{d}"),
)

# Today's wording, and the first one. `{a}`, `{b}` stand for values, `#` for a number that today's wording leaves out.
FORMER = (
    (
        "token {a} is not the server's own most likely token (behind by {b})",
        "token {a} is not the likeliest by the server's own figures: it is {b} behind",
    ),
    # kinds
    ("the load is empty: no arrival before its end", "the load is empty: none of its arrivals is before its end"),
    ("unknown arrivals {a}", "this Seatrial has no arrivals {a}"),
    # kinds/scale
    ("the load generator exited {a} without output", "it failed without a word"),
    ("cannot read the records: {a}", "they cannot be read: {a}"),
    ("no totals were reported", "it reported nothing of the whole"),
    ("{a}: no workload reached that stage", "{a}: no workload came to that stage"),
    *(
        (today.replace("BOUND", bound), first.replace("BOUND", first_bound))
        for today, first in _SCALE_BOUNDS
        for bound, first_bound in _SCALE_OPERATORS
    ),
    *(
        ("; ".join(today for today, _ in doubts) + lag, "; ".join(first for _, first in doubts) + first_lag)
        for count in range(len(_SCALE_DOUBTS) - 1, 0, -1)  # the longest first: a value at the end matches any text
        for doubts in combinations(_SCALE_DOUBTS, count)
        for lag, first_lag in _SCALE_LAGS
    ),
    (
        "workloads were not all deleted: the clean-up did not run; run `seatrial reap` to try again",
        "its workloads are not all removed: it did not get to it; `seatrial reap` tries again",
    ),
    (
        "workloads were not all deleted: some still exist; run `seatrial reap` to try again",
        "its workloads are not all removed: some are still there; `seatrial reap` tries again",
    ),
    (
        "workloads were not all deleted: {a}; run `seatrial reap` to try again",
        "its workloads are not all removed: {a}; `seatrial reap` tries again",
    ),
    (
        "workloads at {a}/s were not all deleted: some still exist",
        "the workloads at {a}/s are not all removed: some are still there",
    ),
    ("workloads at {a}/s were not all deleted: {b}", "the workloads at {a}/s are not all removed: {b}"),
    ("{a} incomplete: # of # workloads reached {b}", "the {a} is not there: # of # workloads came to {b}"),
    ("cannot use the cluster: {a}", "the cluster cannot be used: {a}"),
    (
        "missing permissions (#): {a}; docs/scale.md has a Role that grants them",
        "# rights are missing: {a}; docs/scale.md has the Role that grants them",
    ),
    ("the server rejected the {a} ({b}) in a dry run: {c}", "the server refuses such a {a} ({b}): {c}"),
    (
        "workload {a} needs a cluster; on this machine use `kind: pod` or `kind: job`",
        "workload {a} is a template, an object of a cluster; on this machine a workload is a process: "
        "take `kind: pod` or `kind: job`",
    ),
    (
        "{a}: unknown stage {b}; the file is damaged or from a newer Seatrial",
        "{a}: {b} is no stage that this version knows: it is damaged, or of a newer Seatrial, which reads it",
    ),
    ("the watch received nothing within # s", "the watch of the workloads saw nothing within # s"),
    ("cannot watch the workloads: the watch process exited {a}", "the workloads cannot be watched: it ended with {a}"),
    ("cannot watch the workloads: {a}", "the workloads cannot be watched: {a}"),
    (
        "the watch stopped early: the watch process exited {a}",
        "the watch of the workloads ended before they did: it ended with {a}",
    ),
    ("the watch stopped early: {a}", "the watch of the workloads ended before they did: {a}"),
    (
        "{a} has no requests for these workloads; "
        "check that it is this API server's log and covers their kind and pods",
        "{a} has no request for these workloads: is it this API server's, with their kind and pods?",
    ),
    (
        "cannot align the clock of {a}: it was set during the trial, or the log is from several servers",
        "the clock of {a} cannot be brought to ours: it was set meanwhile, or is of several servers",
    ),
    ("cannot read the audit log {a}: {b}", "{a} cannot be read: {b}"),
    ("invalid time {a} in the audit log", "{a} is no time"),
)
_VALUE = re.compile(r"\{([a-z])\}")


@cache
def _rows() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Each row as a pattern of today's wording, in which every number is `#`, and the template of the first one."""
    found = []
    for today, first in FORMER:
        parts = _VALUE.split(re.sub(r"\d+(?:[.,:]\d+)*", "#", today))
        pattern = "".join(f"(?P<{part}>.+?)" if place % 2 else re.escape(part) for place, part in enumerate(parts))
        found.append((re.compile(pattern), re.sub(r"\d+(?:[.,:]\d+)*", "#", first)))
    return tuple(found)


@cache
def first_wording(normalised: str) -> str:
    """A normalised message in its first wording; one that was never reworded is returned unchanged."""
    for pattern, first in _rows():
        if match := pattern.fullmatch(normalised):
            return _VALUE.sub(lambda value: match[value[1]], first)
    return normalised
