"""The history: the database of past runs, their attempts and metrics, and what people said of them.

1. `add` is keyed by the run: adding it again replaces what is known of it, in one transaction. What people said of a
   run (`mark`) stays.
2. Several processes may add and read at the same time, on a SQLite file and on a PostgreSQL server; a writer waits its
   turn, a reader waits for nobody.
3. A place where there is nothing yet is an empty history. One that cannot be read or written raises HistoryError and
   nothing else: whoever ends a run can report it and still has `results.json`.
4. Metrics of two benchmarks, two fingerprints or two units are never in one series.
5. A password in a PostgreSQL URL is in no error.
"""

from seatrial.record.history.data import (
    ACCEPTED,
    IMPORTED,
    MARKS,
    Alarm,
    CellRow,
    HistoryError,
    PastResult,
    Point,
    RunPast,
    Series,
    TimeWindow,
    TrialRow,
    outcome_class,
)
from seatrial.record.history.history import History, add_missed, add_or_mark, add_run, open_history
from seatrial.record.history.schema import benchmark_of
from seatrial.record.history.suites import PastCell, RunCell, SuiteRow, SuiteRun
