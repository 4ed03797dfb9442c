"""The history: the database of past runs, their attempts and metrics, and the marks that users set.

1. `add` is keyed by run: adding a run again replaces it in one transaction. Its marks stay.
2. Several processes may write and read concurrently, in SQLite and in PostgreSQL. Writers wait for each other; readers
   do not wait.
3. A database that does not exist is an empty history. Every other problem raises HistoryError and nothing else; the
   run still has its `results.json`.
4. A series has metrics of one benchmark, one fingerprint and one unit.
5. Error messages never contain the password of a PostgreSQL URL.
"""

from seatrial.record.history.data import (
    ACCEPTED,
    IMPORTED,
    MARKS,
    RECENT,
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
    recent_values,
)
from seatrial.record.history.history import History, add_missed, add_or_mark, add_run, open_history
from seatrial.record.history.schema import benchmark_of
from seatrial.record.history.suites import CauseRow, Found, RunCell, SuiteRow, SuiteRun
