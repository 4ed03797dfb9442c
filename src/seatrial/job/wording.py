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

# What ended, and how: today's words, and the first ones.
_SUBJECTS = (
    ("the step", "it"),
    ("the client", "the driver"),
    ("the load generator", "the driver"),
    *((f"the {part}", f"the {part}") for part in ("job", "server", "driver")),
    *((f"{when} this step the job", f"{when} this step the job") for when in ("during", "before")),
)
_EXITS = (
    ("was killed", "was killed"),
    ("ran out of memory", "ran out of memory"),
    ("timed out", "ran out of time"),
    ("stalled", "stood still for too long"),
    ("was stopped early", "was stopped early"),
    ("was evicted", "was evicted: its place was taken away"),
    ("was not scheduled in time", "got no place in time"),
    ("was not ready in time", "was not ready in time"),
    ("was stopped because it was no longer needed", "was ended, because it was no longer needed"),
    ("was cancelled", "was cancelled"),
    ("was lost; how it ended is unknown", "was lost: how it ended is not known"),
    ("was refused", "was refused"),
    ("could not finish: infrastructure failure", "could not be run to its end, through no fault of its own"),
)

# How a part or a step ended: today's words, and the first ones.
_EXITS = (
    ("was killed", "was killed"),
    ("ran out of memory", "ran out of memory"),
    ("timed out", "ran out of time"),
    ("stalled", "stood still for too long"),
    ("was stopped early", "was stopped early"),
    ("was evicted", "was evicted: its place was taken away"),
    ("was not scheduled in time", "got no place in time"),
    ("was not ready in time", "was not ready in time"),
    ("was stopped because it was no longer needed", "was ended, because it was no longer needed"),
    ("was cancelled", "was cancelled"),
    ("was lost; how it ended is unknown", "was lost: how it ended is not known"),
    ("was refused", "was refused"),
    ("could not finish: infrastructure failure", "could not be run to its end, through no fault of its own"),
)

# Today's wording, and the first one. `{a}`, `{b}` stand for values, `#` for a number that today's wording leaves out.
# A value may be a reworded message itself.
FORMER = (
    # checks
    *(
        (f"{who_today} {today}{how_today}{end}", f"{who_first} {first}{how_first}{end}")
        for who_today, who_first in _SUBJECTS
        for today, first in _EXITS
        for how_today, how_first in (("", ""), (" and was killed by {a}", " and was ended by {a}"))
        for end in (": {b}", "")
    ),
    *(
        (f"{today} was killed by {{a}}{end}", f"{first} was killed by {{a}}{end}")
        for today, first in _SUBJECTS
        for end in (": {b}", "")
    ),
    ("the job ended before this step did, without a reason", "the job ended before this step did, and did not say why"),
    ("exited {a} (expected {b})", "exit code {a}, and should be {b}"),
    (
        "exited {a}; its output and files are unknown: {b}",
        "it ended with exit code {a}; what it said and made is not known: {b}",
    ),
    ("killed by {a} (exit code # from its shell)", "it was killed by {a} (exit code # of its shell)"),
    (
        "killed on host # by {a} (exit code # from its shell)",
        "it was killed on host # by {a} (exit code # of its shell)",
    ),
    ("a process was killed (out of memory)", "a process was killed for memory"),
    ("# processes were killed (out of memory)", "# processes were killed for memory"),
    (
        "{a} during this step, but the step exited 0",
        "{a} during this step, which ended with exit code 0 all the same",
    ),
    (
        "no kept files were fetched: their total size is over the limit",
        "none of the files that it kept were fetched: together they are larger than is allowed",
    ),
    (
        "{a} not fetched (# bytes): over the size limit: {b}",
        "{a} that it kept, # bytes, were not fetched: more than is allowed: {b}",
    ),
    (
        "{a} not fetched (# bytes): over the size limit",
        "{a} that it kept, # bytes, were not fetched: more than is allowed",
    ),
    ("output was not searched", "its output was not searched"),
    ("output contains forbidden text {a}", "it printed {a}, and never should"),
    ("output does not contain {a}", "it did not print {a}"),
    ("output does not match {a}", "nothing that it printed matches {a}"),
    ("cannot clone {a}", "{a} could not be cloned"),
    (
        "# log for # hosts, none from the {a}; if one host is enough, set `log: {hosts: any}`",
        "there is # log for # hosts, and none of the {a}; where one is enough: `log: {hosts: any}`",
    ),
    (
        "# logs for # hosts, none from the {a}; if one host is enough, set `log: {hosts: any}`",
        "there are # logs for # hosts, and none of the {a}; where one is enough: `log: {hosts: any}`",
    ),
    (
        "only {a} printed it, not {b}; if one host is enough, set `log: {hosts: any}`",
        "only {a} printed it, and not {b}; where one is enough: `log: {hosts: any}`",
    ),
    (
        "pattern stopped: {a}; avoid nested repeats such as (a+)+",
        "the pattern was given up: {a}; write it so that it has no repeat inside a repeat",
    ),
    ("it did not finish on a line of this log", "it does not end on a line of this log"),
    (
        "output matches forbidden pattern {a} (line {b}); stopped {c} that line",
        "it printed what matches {a}, and never should (line {b}); it was ended {c} that line",
    ),
    ("output matches forbidden pattern {a} (line {b})", "it printed what matches {a}, and never should (line {b})"),
    (
        "output matches forbidden pattern {a}; stopped {b} that line",
        "it printed what matches {a}, and never should; it was ended {b} that line",
    ),
    ("output matches forbidden pattern {a}", "it printed what matches {a}, and never should"),
    ("the files could not be checked", "the files could not be looked for"),
    ("{a} has # bytes (expected {b})", "{a} has # bytes, and should have {b}"),
    ("# file matching {a} (expected {b})", "# file match {a}, and should be {b}"),
    ("# files matching {a} (expected {b})", "# files match {a}, and should be {b}"),
    ("{a} has no modification time", "when {a} was written is not known"),
    ("{a} was written # s before the job started", "{a} was written # s before the job began"),
    ("{a} was written # s after the job ended", "{a} was written # s after the job had ended"),
    (
        "expected to fail ({a}) but everything passed; remove the xfail",
        "known to fail ({a}), and everything passed: take the xfail out",
    ),
    (
        "expected to fail ({a}) but passed; narrow or remove the xfail: {b}",
        "known to fail ({a}), and passed here: narrow the xfail, or take it out: {b}",
    ),
    (
        "expected to fail ({a}) but passed; narrow or remove the xfail",
        "known to fail ({a}), and passed here: narrow the xfail, or take it out",
    ),
    ("{a} was not measured ({b} has bounds for it)", "{a} was not measured, and {b} has bounds for it"),
    (
        "{a} was not checked: {b}; run `seatrial baseline update` to compute bounds from five or more runs, or set "
        "`unjudged: record`",
        "{a} was not judged: {b}; `seatrial baseline update` makes others from five runs or more, `unjudged: record` "
        "in the trial lets it pass",
    ),
    ("measured in {a}, bounds are in {b}", "it is in {a}, and the bounds are in {b}"),
    ("{a} (expected at least {b}), from {c}", "{a}, and should be at least {b} (from {c})"),
    ("{a} (expected at most {b}), from {c}", "{a}, and should be at most {b} (from {c})"),
    ("output: {a}", "its output: {a}"),
    (
        "output was not kept: more than 64 MiB, or the disk was full",
        "its output was not kept: it printed more than 64 MiB, or the disk was full",
    ),
    ("# files match {a} (expected one)", "# files match {a}, and a reader reads one"),
    ("output is empty", "it printed nothing to read"),
    ("no steps are marked", "no step is marked"),
    ("no metrics found", "no metric is in it"),
    ("# files match {a}, but only # were read", "# files match {a}, and only # of them were read"),
    (
        "no line of {a} matches {b}; if one host is enough, set `log: {hosts: any}`",
        "no line of {a} matches {b}; where one is enough: `log: {hosts: any}`",
    ),
    ("the {a} of # values is too large", "the {a} of # values is too large a number"),
    ("no values were kept", "none of its values was kept"),
    ("# of # values is not a number: {a}", "# of # readings is no number: {a}"),
    ("# of # values are not numbers: {a}", "# of # readings are no numbers: {a}"),
    # kinds/runtime
    ("command not found: {a}", "there is no command {a} on PATH"),
    ("the import reported no result", "the import did not report how it went"),
    ("{a} crashed on import", "{a} crashed when it was imported"),
    (
        "{a} was imported, but Python then failed: exit code {b}",
        "{a} was imported, and then Python did not end well: it ended with exit code {b}",
    ),
    ("{a} was imported, but Python then failed: {b}", "{a} was imported, and then Python did not end well: {b}"),
    ("version unknown (expected {a})", "its version is not known, and should be {a}"),
    ("version {a} (expected {b})", "its version is {a}, and should be {b}"),
    ("could not collect facts: {a}", "the facts could not be gathered: {a}"),
    ("{a} CPUs available ({b} declared)", "the job may use {a} CPU, and {b} are declared"),
    ("{a} memory available ({b} declared)", "the job may use {a}, and {b} are declared"),
    ("no python on PATH, but notebooks use {a}", "there is no python on PATH, while notebooks get {a}"),
    ("# GPUs available (# declared)", "# GPUs, and # are declared"),
    ("GPU model {a} ({b} declared)", "{a}, and {b} is declared"),
    ("{a} per GPU ({b} declared)", "{a} a GPU, and {b} are declared"),
    (
        "the notebook runner exited {a} without a result, after cell {b}",
        "the notebook's driver ended with exit code {a} and no verdict, after cell {b}",
    ),
    (
        "the notebook runner exited {a} without a result",
        "the notebook's driver ended with exit code {a} and no verdict",
    ),
    # kinds/training
    ("{a} is too large for a curve (limit # MiB)", "{a} is larger than # MiB, which no curve needs to be"),
    ("cannot read curve {a}: not UTF-8 text; use JSON or CSV", "{a} is no text; a curve is JSON or CSV"),
    ("cannot read curve {a}: {b}", "the recorded curve cannot be read: {a}: {b}"),
    (
        "{a} the loss at step {b} is {c} (expected a number); remove it",
        "{a} the loss at step {b} is {c}, and each of a recorded curve is a number; leave it out",
    ),
    ("{a} has no pairs of step and loss", "{a} holds no pair of a step and a loss"),
    (
        'invalid curve {a} ({b}); use {"0": 5.5, "10": 4.2} or [[0, 5.5], …]',
        '{a} is no curve ({b}); write {"0": 5.5, "10": 4.2} or [[0, 5.5], …]',
    ),
    (
        "invalid curve {a} ({b}); use one step and loss per line",
        "{a} is no curve ({b}); write a step and a loss in each line",
    ),
    ("invalid step {a}", "{a} is no step"),
    (
        "{a} reported no loss, but {b} did; if one host is enough, set `log: {hosts: any}`",
        "{a} reported no loss, and {b} did; where one is enough: `log: {hosts: any}`",
    ),
    *(
        (f"no loss in the log: no line matches {today}{hint}", f"no line reports a loss: none matches {first}{former}")
        for today, first in (("the default pattern", "the pattern that Seatrial has for it"), ("{a}", "{a}"))
        for hint, former in (
            (
                "; set `pattern` to match the lines below",
                "; a line that says loss is below, for a `pattern` of your own",
            ),
            ("", ""),
        )
    ),
    ("the loss is {a}; stopped {b} s after that line", "the loss is {a}; it was ended {b} s after that line"),
    ("final loss {a} (expected {b})", "the last loss is {a}, and should be {b}"),
    (
        "cannot compare the curve: log lines have no step number",
        "the curve cannot be compared: its lines have no step number",
    ),
    (
        "cannot compare the curve on host #: log lines have no step number",
        "the curve cannot be compared on host #: its lines have no step number",
    ),
    (
        "cannot compare the curve: the log has none of the recorded steps",
        "the curve cannot be compared: it has none of the steps of the recorded curve",
    ),
    (
        "# of {a} differ from the recorded curve, first step {b}: {c} (expected {d})",
        "# of {a} are off the recorded curve, first step {b}: {c}, and should be {d}",
    ),
    (
        "the log ends at step {a}; the recorded curve goes to step {b}",
        "the recorded curve goes to step {b}, and this log only to {a}",
    ),
    (
        "the log on host # ends at step {a}; the recorded curve goes to step {b}",
        "the recorded curve goes to step {b}, and this log on host # only to {a}",
    ),
    ("a step takes {a} apart (limit {b})", "a step takes {a} apart, and should be within {b}"),
    ("{a}: a step takes {b} apart (limit {c})", "{a}: a step takes {b} apart, and should be within {c}"),
    ("{a} has no events (# planes)", "{a} holds no event (# planes)"),
    (
        "{a}: # of # events have no name; the file is damaged",
        "{a}: # of # events have no name: it is damaged",
    ),
    (
        "{a}: cannot tell which events are steps; candidates: {b}",
        "{a}: which events are the steps is ambiguous, for they have several names: {b}",
    ),
    (
        "{a} has # steps (expected {b}); no steps are marked",
        "{a} has # steps, and should have {b}: no step is marked in it",
    ),
    ("{a} has # steps (expected {b})", "{a} has # steps, and should have {b}"),
    ("{a} has # step (expected {b})", "{a} has # step, and should have {b}"),
    ("{a} has no {b} events; devices: none", "{a} has no event of a {b}; it has no device at all"),
    ("{a} has no {b} events; devices: {c}", "{a} has no event of a {b}; it has {c}"),
    ("{a} has # {b} devices (expected {c})", "{a} has # {b}, and should have {c}"),
    ("{a} has steps {b} (expected only # to #)", "{a} has steps {b}, and should have none but # to #"),
    ("# step (expected {a})", "# step, and should be {a}"),
    ("# step{a} (expected {b})", "# step{a}, and should be {b}"),
    ("last step {a} (expected {b})", "the last is step {a}, and should be {b}"),
    ("no steps (expected {a})", "no step at all, and should be {a}"),
    ("no steps on host # (expected {a})", "no step at all on host #, and should be {a}"),
    (
        "token {a} is not the server's own most likely token (behind by {b})",
        "token {a} is not the likeliest by the server's own figures: it is {b} behind",
    ),
    # record
    ("unreadable record {a}: {b}", "{a} cannot be read any more: {b}"),
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
    # kinds/serving, http
    ("message # of the stream reports # tokens after #", "message # of the stream says # tokens after #"),
    (
        "message # of the stream reports # tokens after listing #",
        "message # of the stream says # tokens, and # have come",
    ),
    (
        "the stream has only # message (expected one for the input, then others)",
        "the stream has # message; the input is one, and what is generated others",
    ),
    (
        "the input text was requested, but the first message has none",
        "the input's text is asked for, and the first message has none",
    ),
    ("the input text was not requested", "the input's text was not asked for"),
    ("the first message has a different input: {a}", "the first message has {a} as the input"),
    (
        "the second message must have only the requested input tokens",
        "the second message is not the input's tokens alone, which are asked for",
    ),
    ("message # has a seed; only the last message may", "message # has the seed, which only the last one has"),
    ("the last message has seed {a} (expected #)", "the last message has seed {a}; # was asked for"),
    ("expected an answer, got an error: {a}", "an answer is expected, and an error came: {a}"),
    (
        "no expected answer; run `seatrial record` with a trusted server to add it",
        "nothing is expected of this case: `seatrial record` writes what a trusted server answers",
    ),
    ("# answers (expected #)", "# answers; expected #"),
    ("the errors differ", "one way gave an error"),
    ("# tokens generated (limit #)", "# tokens were generated; at most # were asked for"),
    ("stopped at the limit of # tokens after only #", "it stopped for # tokens, and generated #"),
    ("# tokens generated (minimum #)", "# tokens were generated; at least # were asked for"),
    ("requested generated tokens are missing", "the generated tokens were asked for, and are not there"),
    ("requested input tokens are missing", "the input tokens were asked for, and are not there"),
    ("requested log-probabilities are missing", "log-probabilities were asked for, and are not there"),
    ("# input tokens (expected #)", "# input tokens; expected #"),
    ("the input tokens differ", "the input's tokens are others"),
    ("no stop reason (expected {a})", "it has no stop reason; expected {a}"),
    ("stop reason {a} (expected {b})", "stop reason {a}; expected {b}"),
    ("# generated tokens (expected #)", "# generated tokens; expected #"),
    ("count {a} (expected {b})", "count {a}; expected {b}"),
    ("tokens {a} (expected {b})", "tokens {a}; expected {b}"),
    ("offsets {a} (expected {b})", "offsets {a}; expected {b}"),
    ("expected an error ({a}), got an answer: {b}", "an error is expected ({a}), and an answer came: {b}"),
    ("wrong error: {a} (expected {b})", "another error: {a}; expected {b}"),
    ("wrong error message: {a} (expected prefix {b})", "another message: {a}; expected at its beginning {b}"),
    ("wrong error message: {a} (expected pattern {b})", "another message: {a}; expected as a pattern {b}"),
    ("wrong error message: {a} (expected {b})", "another message: {a}; expected {b}"),
    (
        "# of # answers differ at a near tie (about # expected from how far the log-probabilities moved)",
        "# of # answers went the other way at a near tie; by how far the log-probabilities moved, # would",
    ),
    (
        "{a}; # of # answers differ at a near tie (about # expected from how far the log-probabilities moved)",
        "{a}; # of # answers went the other way at a near tie; by how far the log-probabilities moved, # would",
    ),
    ("expected tokens, got none", "tokens are expected, and there are none"),
    ("expected input tokens, got none", "input tokens are expected, and there are none"),
    ("# generated tokens reported, # listed", "it says # generated tokens, and lists #"),
    ("# input tokens reported, # listed", "it says # input tokens, and lists #"),
    ("invalid log-probability of token #: {a}", "the log-probability of token # is {a}, of which there is none"),
    ("the input differs from token # on", "the input is another from token # on"),
    ("the text differs from character # on: {a}", "another text from character # on: {a}"),
    ("token # lacks the expected log-probabilities", "token # has not the log-probabilities that are expected"),
    ("stop sequence {a} (expected {b})", "stop sequence {a}; expected {b}"),
    ("seed # (expected #)", "seed #; expected #"),
    (
        "a log-probability of {a} # moved by {b} (tolerance {c})",
        "a log-probability of {a} # moved by {b}; the tolerance is {c}",
    ),
    (
        "the log-probabilities moved by {a} on average (tolerance {b})",
        "the log-probabilities moved by {a} on average; the tolerance is {b}",
    ),
    (
        "the text differs from token # on: {a} (tolerance {b})",
        "another text from token # on: {a}; the tolerance is {b}",
    ),
    (
        "the text ends at token #, unlike the expected text (stop reason {a})",
        "it ends at token #, where what is expected does not (stop reason {a})",
    ),
    (
        "the text continues at token #, unlike the expected text (stop reason {a})",
        "it goes on at token #, where what is expected does not (stop reason {a})",
    ),
    ("not compared: no embedding of this text", "there is no embedding of this text: it could not be compared"),
    (
        "different text with similarity {a} (minimum {b})",
        "another text, with a similarity of {a}; at least {b} is asked for",
    ),
    ("input_count is {a} (expected {b})", "input_count is {a}; expected {b}"),
    ("generated_count is {a} (expected {b})", "generated_count is {a}; expected {b}"),
    ("stop_sequence is {a} (expected {b})", "stop_sequence is {a}; expected {b}"),
    ("seed is {a} (expected {b})", "seed is {a}; expected {b}"),
    ("stop_reason is {a} (expected {b})", "stop_reason is {a}; expected {b}"),
    ("# tokens (expected #)", "# tokens; expected #"),
    ("# input_tokens (expected #)", "# input_tokens; expected #"),
    ("tokens # is {a} (expected {b})", "tokens # is {a}; expected {b}"),
    ("input_tokens # is {a} (expected {b})", "input_tokens # is {a}; expected {b}"),
    ("the most likely tokens of {a} differ", "the likeliest of {a} are others"),
    ("the server exited on its own with code {a}", "the server ended by itself, with exit code {a}"),
    ("{a}: the server exited on its own with code {b}", "{a}: the server ended by itself, with exit code {b}"),
    ("the client exited with code {a}", "the driver ended with exit code {a}"),
    ("the client failed", "the driver could not go on"),
    ("the client has no record of it", "the driver has no record of it"),
    *(
        (f"the client {today}{how_today}{end}", f"the driver {first}{how_first}{end}")
        for today, first in _EXITS
        for how_today, how_first in (("", ""), (" and was killed by {a}", " and was ended by {a}"))
        for end in (": {b}", "")
    ),
    *((f"the client was killed by {{a}}{end}", f"the driver was killed by {{a}}{end}") for end in (": {b}", "")),
    (
        "the server refused the first generation: {a}; check `server.token`",
        "the server refuses to generate: {a}; is `server.token` the one that it wants?",
    ),
    ("the server refused the first generation: {a}", "the server refuses to generate: {a}"),
    (
        "no connection to the server within {a} (# tries): no response",
        "the server took no connection within {a} (# tries): nothing came back",
    ),
    (
        "no connection to the server within {a} (# tries): {b}",
        "the server took no connection within {a} (# tries): {b}",
    ),
    (
        "no generation answered within {a} (# tries): no response",
        "no generation was answered within {a} (# tries): nothing came back",
    ),
    ("no generation answered within {a} (# tries): {b}", "no generation was answered within {a} (# tries): {b}"),
    ("no connection to the server for # s: {a}", "the server took no connection for # s: {a}"),
    (
        "the server stopped answering: # requests in a row timed out",
        "the server stopped answering: # requests in a row had no answer in time",
    ),
    ("cannot read the load record: {a}", "its record cannot be read: {a}"),
    ("all # requests failed: {a}", "every one of # failed: {a}"),
    (
        "the client started requests {a} late (p99, limit {b}), so this measures the client, not the server; lower the "
        "rate or free up the client's machine",
        "requests began {a} late (p99), more than {b}: this measures the driver, not the server; offer less, or give "
        "the driver's machine fewer other things to do",
    ),
    (
        "{a} alone adds {b}, more than the bound {c}, so the bound cannot be checked",
        "{a} alone adds {b}, more than the bound of {c}: it says nothing of the server",
    ),
    ("{a} not measured (bound {b})", "{a} was not measured; its bound is {b}"),
    ("{a} is {b} (bound {c})", "{a} is {b}; its bound is {c}"),
    ("the client was late", "the driver was late"),
    ("cannot get an embedding from {a}: {b}", "{a} gives no embedding of a text: {b}"),
    (
        "cannot load sentence-transformers model {a}: {b}",
        "{a} cannot be loaded as a model of sentence-transformers: {b}",
    ),
    ("embeddings have different lengths: # and #", "embeddings of # and # numbers are not of one model"),
    ("cannot use the TLS files: {a}", "the TLS files cannot be used: {a}"),
    (
        "invalid server address {a}; use for example http://#",
        "{a} is not an address of a server: write for example http://#",
    ),
    (
        "no case is usable as a load; add one with a single input and an expected answer",
        "no case can be a load: one is needed that has one input and expects an answer",
    ),
    (
        "content type {a} (expected {b}); the body begins with {c}",
        "its content type is {a}, and {b} was asked for: it begins with {c}",
    ),
    (
        "timed out before the answer was complete (# bytes received)",
        "no whole answer within its limit; # bytes had come",
    ),
    (
        "timed out before the answer was complete (nothing received)",
        "no whole answer within its limit; nothing had come",
    ),
    ("timed out before the answer was complete", "no whole answer within its limit"),
    ("invalid HTTP response: {a}", "what came is not HTTP: {a}"),
    ("{a} before any response", "{a} before anything came"),
    ("server certificate rejected: {a}", "its certificate is refused: {a}"),
    ("TLS handshake failed: {a}", "TLS cannot be spoken with it: {a}"),
    ("the JSON schema is not valid JSON: {a}", "its JSON schema is not JSON: {a}"),
    ("got # choices for # {a}: {b}", "# choices came for # {a}: {b}"),
    ("an event has # choices (expected #): {a}", "an event has # choices, and one was asked for: {a}"),
    ("unknown finish_reason {a}; known: {b}", "finish_reason {a} is none of {b}"),
    (
        "protocol `tgis` has no chat messages; use a `prompt` in the format of the model",
        "TGIS's protocol has no chats: write the prompt as the model wants it",
    ),
    ("UNAVAILABLE: health status {a}", "UNAVAILABLE: its health is {a}"),
    (
        "gRPC always verifies the server's certificate; set `tls.ca`, and `tls.name` if the name differs",
        "gRPC always verifies the server's certificate: give `tls.ca`, and `tls.name` for another name",
    ),
    ("invalid gRPC message: {a}", "what came is not the protocol: {a}"),
    ("no response for # s on a reused connection", "nothing came for # s over a connection that was kept"),
    (
        "{a}: no response for # s on a reused connection{b}",
        "{a}: nothing came for # s over a connection that was kept{b}",
    ),
    ("{a}the proxy {b} closed the connection{c}", "{a}the proxy {b} closes the connection{c}"),
    ("{a}the proxy {b} requires another login method{c}", "{a}the proxy {b} wants another way to log in{c}"),
)
# Wordings that never changed, with a value that may be a reworded message.
_NESTING = (
    "{a} while it served",
    "{a} while it served; {b}",
    "{a}; the last was step #",
    "{a}, after cell {b}",
    "# of # files: {a}",
    "not measured: {a}",
    *(f"the {part} {{a}}" for part in ("job", "server", "driver")),
    "was killed by {a}: {b}",
    *(f"{how}: {{a}}" for how in ("not asked", "not answered", "not measured", "cut short", "certificate")),
)
_VALUE = re.compile(r"\{([a-z])\}")


@cache
def _rows() -> tuple[tuple[tuple[str, ...], str, str], ...]:
    """Each row as the literal parts and the pattern of today's wording, with `#` for numbers, and the first wording."""
    found = []
    for today, first in (*FORMER, *((one, one) for one in _NESTING)):
        parts = _VALUE.split(re.sub(r"\d+(?:[.,:]\d+)*", "#", today))
        pattern = "".join(f"(?P<{part}>.+?)" if place % 2 else re.escape(part) for place, part in enumerate(parts))
        found.append((tuple(parts[::2]), pattern, re.sub(r"\d+(?:[.,:]\d+)*", "#", first)))
    return tuple(found)


@cache
def first_wording(normalised: str) -> str:
    """A normalised message in its first wording; one that was never reworded is returned unchanged."""
    for literals, pattern, first in _rows():
        # Few rows have to be compiled.
        if all(part in normalised for part in literals) and (match := re.fullmatch(pattern, normalised)):
            return _VALUE.sub(lambda value: first_wording(match[value[1]]), first)
    return normalised
