-- The tables of the history and their migrations. Only append: a section has the statements that migrate a database
-- from the version before. PostgreSQL ignores WITHOUT ROWID. No comment has a semicolon: it ends a statement.

-- version 2
-- Version 1 was never released. `points` is clustered in read order and repeats columns of its cell, so that
-- reading 100,000 points needs no joins. Its `id` is empty if it equals the benchmark.
CREATE TABLE runs (
    run TEXT PRIMARY KEY, suite TEXT NOT NULL, suite_path TEXT NOT NULL, verdict TEXT NOT NULL,
    started_s DOUBLE PRECISION NOT NULL, seconds DOUBLE PRECISION NOT NULL, interrupted INTEGER NOT NULL,
    seatrial TEXT NOT NULL, "commit" TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX runs_by_time ON runs (started_s);
CREATE TABLE cells (
    run TEXT NOT NULL REFERENCES runs (run) ON DELETE CASCADE, hash TEXT NOT NULL, id TEXT NOT NULL,
    trial TEXT NOT NULL, kind TEXT NOT NULL, verdict TEXT NOT NULL, flaky INTEGER NOT NULL, why TEXT NOT NULL,
    benchmark TEXT NOT NULL, fingerprint TEXT NOT NULL, host TEXT NOT NULL, at_s DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (run, hash)
) WITHOUT ROWID;
CREATE INDEX cells_by_hash ON cells (hash, run);
CREATE TABLE attempts (
    run TEXT NOT NULL REFERENCES runs (run) ON DELETE CASCADE, hash TEXT NOT NULL, number INTEGER NOT NULL,
    target TEXT NOT NULL, machine TEXT NOT NULL, host TEXT NOT NULL, verdict TEXT NOT NULL, outcome TEXT NOT NULL,
    started_s DOUBLE PRECISION NOT NULL, seconds DOUBLE PRECISION,
    PRIMARY KEY (run, hash, number)
) WITHOUT ROWID;
CREATE INDEX attempts_that_passed ON attempts (hash, started_s DESC, seconds)
    WHERE verdict IN ('passed', 'xfail') AND seconds IS NOT NULL;
CREATE TABLE series (
    id BIGINT PRIMARY KEY, trial TEXT NOT NULL, benchmark TEXT NOT NULL, fingerprint TEXT NOT NULL,
    metric TEXT NOT NULL, unit TEXT NOT NULL, better TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX series_of_trial ON series (trial);
CREATE INDEX series_of_benchmark ON series (benchmark);
CREATE TABLE points (
    series BIGINT NOT NULL, at_s DOUBLE PRECISION NOT NULL,
    run TEXT NOT NULL REFERENCES runs (run) ON DELETE CASCADE, hash TEXT NOT NULL,
    value DOUBLE PRECISION NOT NULL, verdict TEXT NOT NULL, host TEXT NOT NULL, id TEXT NOT NULL, source TEXT NOT NULL,
    PRIMARY KEY (series, at_s, run, hash)
) WITHOUT ROWID;
CREATE INDEX points_of_run ON points (run);
CREATE TABLE marks (
    run TEXT NOT NULL, benchmark TEXT NOT NULL, at_s DOUBLE PRECISION NOT NULL, word TEXT NOT NULL,
    reason TEXT NOT NULL, said_by TEXT NOT NULL,
    PRIMARY KEY (run, benchmark, at_s)
) WITHOUT ROWID;
CREATE INDEX cells_with_alarm ON cells (at_s) WHERE verdict IN ('slower', 'faster');
CREATE INDEX cells_of_trial ON cells (trial, run);

-- version 3
-- Marks of a single metric of a benchmark.
CREATE TABLE marks_of_metrics (
    run TEXT NOT NULL, benchmark TEXT NOT NULL, metric TEXT NOT NULL, at_s DOUBLE PRECISION NOT NULL,
    word TEXT NOT NULL, reason TEXT NOT NULL, said_by TEXT NOT NULL,
    PRIMARY KEY (run, benchmark, metric, at_s)
) WITHOUT ROWID;
INSERT INTO marks_of_metrics SELECT run, benchmark, '', at_s, word, reason, said_by FROM marks;
DROP TABLE marks;
ALTER TABLE marks_of_metrics RENAME TO marks;

-- version 4
-- Conditions by fingerprint, and what is under test by its digest. Each set is stored once.
CREATE TABLE settings (id TEXT PRIMARY KEY, fields TEXT NOT NULL) WITHOUT ROWID;
ALTER TABLE cells ADD COLUMN under_test TEXT NOT NULL DEFAULT '';

-- version 5
-- The runs of a cell are queried by id, because its hash changes with the suite.
CREATE INDEX cells_by_id ON cells (id, run);

-- version 6
-- Headline and cause of a cell. `cell` is its number in the suite, the same in all runs.
ALTER TABLE cells ADD COLUMN cell BIGINT NOT NULL DEFAULT 0;
ALTER TABLE cells ADD COLUMN headline TEXT NOT NULL DEFAULT '';
ALTER TABLE cells ADD COLUMN cause TEXT NOT NULL DEFAULT '';
CREATE INDEX cells_through_time ON cells (cell, at_s, verdict, flaky, cause) WHERE verdict <> 'skipped';
CREATE INDEX cells_of_cause ON cells (cause, at_s) WHERE cause <> '';

-- version 7
-- A cell may have several causes: `cells.cause` has their ids in order, and `causes` has each cause of a run once.
CREATE TABLE causes (
    cause TEXT NOT NULL, at_s DOUBLE PRECISION NOT NULL, run TEXT NOT NULL REFERENCES runs (run) ON DELETE CASCADE,
    PRIMARY KEY (cause, at_s, run)
) WITHOUT ROWID;
CREATE INDEX causes_of_run ON causes (run);
INSERT INTO causes SELECT cause, min(at_s), run FROM cells WHERE cause <> '' GROUP BY cause, run;
DROP INDEX cells_of_cause;

-- version 8
-- The last run in which bounds checked the metric, so that lost bounds are noticed.
ALTER TABLE series ADD COLUMN checked TEXT NOT NULL DEFAULT '';

-- version 9
-- The counts and targets of a run and the text of its causes, so that a list of runs needs not read their cells.
ALTER TABLE runs ADD COLUMN counts TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN targets TEXT NOT NULL DEFAULT '';
ALTER TABLE causes ADD COLUMN verdict TEXT NOT NULL DEFAULT '';
ALTER TABLE causes ADD COLUMN headline TEXT NOT NULL DEFAULT '';
ALTER TABLE causes ADD COLUMN place TEXT NOT NULL DEFAULT '';
ALTER TABLE causes ADD COLUMN cells INTEGER NOT NULL DEFAULT 0;
CREATE INDEX cells_in_trouble ON cells (run) WHERE verdict NOT IN ('passed', 'xfail', 'skipped') OR flaky = 1;
