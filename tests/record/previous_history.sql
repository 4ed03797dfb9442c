-- The history of two runs of the suite in test_previous_version.py, written by Seatrial 0.2.0.
BEGIN TRANSACTION;
CREATE TABLE attempts (
    run TEXT NOT NULL REFERENCES runs (run) ON DELETE CASCADE, hash TEXT NOT NULL, number INTEGER NOT NULL,
    target TEXT NOT NULL, machine TEXT NOT NULL, host TEXT NOT NULL, verdict TEXT NOT NULL, outcome TEXT NOT NULL,
    started_s DOUBLE PRECISION NOT NULL, seconds DOUBLE PRECISION,
    PRIMARY KEY (run, hash, number)
) WITHOUT ROWID;
INSERT INTO "attempts" VALUES('previous-20250812-063645-7309','4d53cc12',1,'here','here','n1','failed','exited',1754983806.0,1.0);
INSERT INTO "attempts" VALUES('previous-20250812-063645-7309','702be7cb',1,'here','here','n1','failed','exited',1754983806.0,1.0);
INSERT INTO "attempts" VALUES('previous-20250812-063645-7309','7480e711',1,'here','here','n1','timeout','exited',1754983806.0,1.0);
INSERT INTO "attempts" VALUES('previous-20250812-063645-7309','7b7086f3',1,'here','here','n1','failed','exited',1754983807.0,1.0);
INSERT INTO "attempts" VALUES('previous-20250812-063645-7309','a577a17e',1,'here','here','n1','failed','exited',1754983807.0,1.0);
INSERT INTO "attempts" VALUES('previous-20250812-063645-7309','a5e3b62f',1,'here','here','n1','failed','exited',1754983806.0,1.0);
INSERT INTO "attempts" VALUES('previous-20250812-063645-7309','a99004eb',1,'here','here','n1','failed','exited',1754983806.0,1.0);
INSERT INTO "attempts" VALUES('previous-20250812-063645-7309','f7335795',1,'here','here','n1','failed','exited',1754983806.0,1.0);
INSERT INTO "attempts" VALUES('previous-20250812-063651-7836','4d53cc12',1,'here','here','n1','failed','exited',1754983812.0,1.0);
INSERT INTO "attempts" VALUES('previous-20250812-063651-7836','702be7cb',1,'here','here','n1','failed','exited',1754983812.0,1.0);
INSERT INTO "attempts" VALUES('previous-20250812-063651-7836','7480e711',1,'here','here','n1','timeout','exited',1754983812.0,1.0);
INSERT INTO "attempts" VALUES('previous-20250812-063651-7836','7b7086f3',1,'here','here','n1','failed','exited',1754983812.0,1.0);
INSERT INTO "attempts" VALUES('previous-20250812-063651-7836','a577a17e',1,'here','here','n1','failed','exited',1754983812.0,1.0);
INSERT INTO "attempts" VALUES('previous-20250812-063651-7836','a5e3b62f',1,'here','here','n1','failed','exited',1754983812.0,1.0);
INSERT INTO "attempts" VALUES('previous-20250812-063651-7836','a99004eb',1,'here','here','n1','failed','exited',1754983812.0,1.0);
INSERT INTO "attempts" VALUES('previous-20250812-063651-7836','f7335795',1,'here','here','n1','failed','exited',1754983812.0,1.0);
CREATE TABLE cells (
    run TEXT NOT NULL REFERENCES runs (run) ON DELETE CASCADE, hash TEXT NOT NULL, id TEXT NOT NULL,
    trial TEXT NOT NULL, kind TEXT NOT NULL, verdict TEXT NOT NULL, flaky INTEGER NOT NULL, why TEXT NOT NULL, benchmark TEXT NOT NULL DEFAULT '', fingerprint TEXT NOT NULL DEFAULT '', host TEXT NOT NULL DEFAULT '', at_s DOUBLE PRECISION NOT NULL DEFAULT 0, under_test TEXT NOT NULL DEFAULT '', cell BIGINT NOT NULL DEFAULT 0, headline TEXT NOT NULL DEFAULT '', cause TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (run, hash)
) WITHOUT ROWID;
INSERT INTO "cells" VALUES('previous-20250812-063645-7309','4d53cc12','code','code','runtime','failed',0,'run exit 3: exit code 3, and should be 0','code','79c62fbf','n1',1754983806.0,'',3229658988296161372,'exit code 3, and should be 0','8d4c4d');
INSERT INTO "cells" VALUES('previous-20250812-063645-7309','702be7cb','command','command','runtime','failed',0,'command no-such-command: there is no command no-such-command on PATH','command','516969ba','n1',1754983806.0,'',6239905014234067759,'there is no command no-such-command on PATH','b35f5c');
INSERT INTO "cells" VALUES('previous-20250812-063645-7309','7480e711','slow','slow','runtime','timeout',0,'run sleep 60: it ran out of time and was ended by SIGTERM: not done after 1 s','slow','692324ce','n1',1754983806.0,'',173766920587999143,'it ran out of time and was ended by SIGTERM: not done after 1 s','6cb85d');
INSERT INTO "cells" VALUES('previous-20250812-063645-7309','7b7086f3','own','own','runtime','failed',0,'run echo ''ValueError: of the program'' >&2; exit 1: exit code 1, and should be 0','own','ef70b297','n1',1754983807.0,'',6806661530170988383,'ValueError: of the program','b86090');
INSERT INTO "cells" VALUES('previous-20250812-063645-7309','a577a17e','training','training','training','failed',0,'train: not measured: no line matches ''step_time: ([\\d.]+)''','training','498a24cb','n1',1754983807.0,'',3140595071209333246,'not measured: no line matches ''step_time: ([\\d.]+)''','b8798a');
INSERT INTO "cells" VALUES('previous-20250812-063645-7309','a5e3b62f','text','text','runtime','failed',0,'run echo hello: it did not print ''goodbye''','text','c20ff785','n1',1754983806.0,'',4756813481273856482,'it did not print ''goodbye''','c98ee1');
INSERT INTO "cells" VALUES('previous-20250812-063645-7309','a99004eb','never','never','runtime','failed',0,'run echo hello: it printed ''hello'', and never should','never','be92dd81','n1',1754983806.0,'',-7083520184941380120,'it printed ''hello'', and never should','f3e1a0');
INSERT INTO "cells" VALUES('previous-20250812-063645-7309','f7335795','module','module','runtime','failed',0,'import no_such_module: no_such_module is not installed','module','516969ba','n1',1754983806.0,'',-7172604306817067084,'ModuleNotFoundError: No module named ''no_such_module''','b093ea');
INSERT INTO "cells" VALUES('previous-20250812-063651-7836','4d53cc12','code','code','runtime','failed',0,'run exit 3: exit code 3, and should be 0','code','79c62fbf','n1',1754983812.0,'',3229658988296161372,'exit code 3, and should be 0','8d4c4d');
INSERT INTO "cells" VALUES('previous-20250812-063651-7836','702be7cb','command','command','runtime','failed',0,'command no-such-command: there is no command no-such-command on PATH','command','516969ba','n1',1754983812.0,'',6239905014234067759,'there is no command no-such-command on PATH','b35f5c');
INSERT INTO "cells" VALUES('previous-20250812-063651-7836','7480e711','slow','slow','runtime','timeout',0,'run sleep 60: it ran out of time and was ended by SIGTERM: not done after 1 s','slow','692324ce','n1',1754983812.0,'',173766920587999143,'it ran out of time and was ended by SIGTERM: not done after 1 s','6cb85d');
INSERT INTO "cells" VALUES('previous-20250812-063651-7836','7b7086f3','own','own','runtime','failed',0,'run echo ''ValueError: of the program'' >&2; exit 1: exit code 1, and should be 0','own','ef70b297','n1',1754983812.0,'',6806661530170988383,'ValueError: of the program','b86090');
INSERT INTO "cells" VALUES('previous-20250812-063651-7836','a577a17e','training','training','training','failed',0,'train: not measured: no line matches ''step_time: ([\\d.]+)''','training','498a24cb','n1',1754983812.0,'',3140595071209333246,'not measured: no line matches ''step_time: ([\\d.]+)''','b8798a');
INSERT INTO "cells" VALUES('previous-20250812-063651-7836','a5e3b62f','text','text','runtime','failed',0,'run echo hello: it did not print ''goodbye''','text','c20ff785','n1',1754983812.0,'',4756813481273856482,'it did not print ''goodbye''','c98ee1');
INSERT INTO "cells" VALUES('previous-20250812-063651-7836','a99004eb','never','never','runtime','failed',0,'run echo hello: it printed ''hello'', and never should','never','be92dd81','n1',1754983812.0,'',-7083520184941380120,'it printed ''hello'', and never should','f3e1a0');
INSERT INTO "cells" VALUES('previous-20250812-063651-7836','f7335795','module','module','runtime','failed',0,'import no_such_module: no_such_module is not installed','module','516969ba','n1',1754983812.0,'',-7172604306817067084,'ModuleNotFoundError: No module named ''no_such_module''','b093ea');
CREATE TABLE "marks" (
    run TEXT NOT NULL, benchmark TEXT NOT NULL, metric TEXT NOT NULL, at_s DOUBLE PRECISION NOT NULL,
    word TEXT NOT NULL, reason TEXT NOT NULL, said_by TEXT NOT NULL,
    PRIMARY KEY (run, benchmark, metric, at_s)
) WITHOUT ROWID;
CREATE TABLE points (
    series BIGINT NOT NULL, at_s DOUBLE PRECISION NOT NULL,
    run TEXT NOT NULL REFERENCES runs (run) ON DELETE CASCADE, hash TEXT NOT NULL,
    value DOUBLE PRECISION NOT NULL, verdict TEXT NOT NULL, host TEXT NOT NULL, id TEXT NOT NULL, source TEXT NOT NULL,
    PRIMARY KEY (series, at_s, run, hash)
) WITHOUT ROWID;
INSERT INTO "points" VALUES(-8812787165974454663,1754983806.0,'previous-20250812-063645-7309','a5e3b62f',0.0213,'failed','vm','','');
INSERT INTO "points" VALUES(-8812787165974454663,1754983812.0,'previous-20250812-063651-7836','a5e3b62f',0.0103,'failed','vm','','');
INSERT INTO "points" VALUES(-7654816457005546550,1754983806.0,'previous-20250812-063645-7309','a99004eb',0.0144,'failed','vm','','');
INSERT INTO "points" VALUES(-7654816457005546550,1754983812.0,'previous-20250812-063651-7836','a99004eb',0.0207,'failed','vm','','');
INSERT INTO "points" VALUES(-5299462559658660307,1754983806.0,'previous-20250812-063645-7309','7480e711',1.0284,'timeout','vm','','');
INSERT INTO "points" VALUES(-5299462559658660307,1754983812.0,'previous-20250812-063651-7836','7480e711',1.0108,'timeout','vm','','');
INSERT INTO "points" VALUES(-4774674005121055471,1754983806.0,'previous-20250812-063645-7309','a5e3b62f',0.0011,'failed','vm','','');
INSERT INTO "points" VALUES(-4774674005121055471,1754983812.0,'previous-20250812-063651-7836','a5e3b62f',0.0011,'failed','vm','','');
INSERT INTO "points" VALUES(-2903971291325758620,1754983806.0,'previous-20250812-063645-7309','7480e711',0.0024,'timeout','vm','','');
INSERT INTO "points" VALUES(-2903971291325758620,1754983812.0,'previous-20250812-063651-7836','7480e711',0.0026,'timeout','vm','','');
INSERT INTO "points" VALUES(-2840463352961991640,1754983806.0,'previous-20250812-063645-7309','a99004eb',0.0012,'failed','vm','','');
INSERT INTO "points" VALUES(-2840463352961991640,1754983812.0,'previous-20250812-063651-7836','a99004eb',0.0011,'failed','vm','','');
INSERT INTO "points" VALUES(-2654842142921999390,1754983806.0,'previous-20250812-063645-7309','4d53cc12',0.0012,'failed','vm','','');
INSERT INTO "points" VALUES(-2654842142921999390,1754983812.0,'previous-20250812-063651-7836','4d53cc12',0.0019,'failed','vm','','');
INSERT INTO "points" VALUES(674806864973452498,1754983806.0,'previous-20250812-063645-7309','4d53cc12',0.0277,'failed','vm','','');
INSERT INTO "points" VALUES(674806864973452498,1754983812.0,'previous-20250812-063651-7836','4d53cc12',0.0442,'failed','vm','','');
INSERT INTO "points" VALUES(703823709275365706,1754983807.0,'previous-20250812-063645-7309','7b7086f3',0.0012,'failed','vm','','');
INSERT INTO "points" VALUES(703823709275365706,1754983812.0,'previous-20250812-063651-7836','7b7086f3',0.0013,'failed','vm','','');
INSERT INTO "points" VALUES(1009695986337756682,1754983806.0,'previous-20250812-063645-7309','a5e3b62f',262144.0,'failed','vm','','');
INSERT INTO "points" VALUES(1009695986337756682,1754983812.0,'previous-20250812-063651-7836','a5e3b62f',262144.0,'failed','vm','','');
INSERT INTO "points" VALUES(1633321750016047920,1754983806.0,'previous-20250812-063645-7309','f7335795',0.1304,'failed','vm','','');
INSERT INTO "points" VALUES(1633321750016047920,1754983812.0,'previous-20250812-063651-7836','f7335795',0.1572,'failed','vm','','');
INSERT INTO "points" VALUES(3107113048655217658,1754983807.0,'previous-20250812-063645-7309','a577a17e',262144.0,'failed','vm','','the control group or the processes');
INSERT INTO "points" VALUES(3107113048655217658,1754983812.0,'previous-20250812-063651-7836','a577a17e',262144.0,'failed','vm','','the control group or the processes');
INSERT INTO "points" VALUES(3543341406827399500,1754983806.0,'previous-20250812-063645-7309','702be7cb',0.0,'failed','vm','','');
INSERT INTO "points" VALUES(3543341406827399500,1754983812.0,'previous-20250812-063651-7836','702be7cb',0.0,'failed','vm','','');
INSERT INTO "points" VALUES(3825764538777334115,1754983807.0,'previous-20250812-063645-7309','7b7086f3',0.0289,'failed','vm','','');
INSERT INTO "points" VALUES(3825764538777334115,1754983812.0,'previous-20250812-063651-7836','7b7086f3',0.0154,'failed','vm','','');
INSERT INTO "points" VALUES(4065255525406970125,1754983806.0,'previous-20250812-063645-7309','f7335795',0.5411,'failed','vm','','');
INSERT INTO "points" VALUES(4065255525406970125,1754983812.0,'previous-20250812-063651-7836','f7335795',0.5737,'failed','vm','','');
INSERT INTO "points" VALUES(5444767838153100319,1754983807.0,'previous-20250812-063645-7309','a577a17e',0.0182,'failed','vm','','the agent''s clock, from start to end');
INSERT INTO "points" VALUES(5444767838153100319,1754983812.0,'previous-20250812-063651-7836','a577a17e',0.0222,'failed','vm','','the agent''s clock, from start to end');
INSERT INTO "points" VALUES(8099683203629975026,1754983806.0,'previous-20250812-063645-7309','4d53cc12',262144.0,'failed','vm','','');
INSERT INTO "points" VALUES(8099683203629975026,1754983812.0,'previous-20250812-063651-7836','4d53cc12',262144.0,'failed','vm','','');
INSERT INTO "points" VALUES(8339997193876354132,1754983806.0,'previous-20250812-063645-7309','f7335795',9154560.0,'failed','vm','','');
INSERT INTO "points" VALUES(8339997193876354132,1754983812.0,'previous-20250812-063651-7836','f7335795',8994816.0,'failed','vm','','');
INSERT INTO "points" VALUES(8428396889785960541,1754983806.0,'previous-20250812-063645-7309','a99004eb',262144.0,'failed','vm','','');
INSERT INTO "points" VALUES(8428396889785960541,1754983812.0,'previous-20250812-063651-7836','a99004eb',262144.0,'failed','vm','','');
INSERT INTO "points" VALUES(9018293141245932927,1754983807.0,'previous-20250812-063645-7309','7b7086f3',262144.0,'failed','vm','','');
INSERT INTO "points" VALUES(9018293141245932927,1754983812.0,'previous-20250812-063651-7836','7b7086f3',262144.0,'failed','vm','','');
INSERT INTO "points" VALUES(9217974642112054734,1754983806.0,'previous-20250812-063645-7309','7480e711',262144.0,'timeout','vm','','');
INSERT INTO "points" VALUES(9217974642112054734,1754983812.0,'previous-20250812-063651-7836','7480e711',262144.0,'timeout','vm','','');
CREATE TABLE runs (
    run TEXT PRIMARY KEY, suite TEXT NOT NULL, suite_path TEXT NOT NULL, verdict TEXT NOT NULL,
    started_s REAL NOT NULL, seconds REAL NOT NULL, interrupted INTEGER NOT NULL, seatrial TEXT NOT NULL
, "commit" TEXT NOT NULL DEFAULT '') WITHOUT ROWID;
INSERT INTO "runs" VALUES('previous-20250812-063645-7309','previous','suite.yaml','failed',1754983805.0,1.98327133099883212707e+00,0,'0.2.0','');
INSERT INTO "runs" VALUES('previous-20250812-063651-7836','previous','suite.yaml','failed',1754983811.0,2.17455437500029802322e+00,0,'0.2.0','');
CREATE TABLE series (
    id BIGINT PRIMARY KEY, trial TEXT NOT NULL, benchmark TEXT NOT NULL, fingerprint TEXT NOT NULL,
    metric TEXT NOT NULL, unit TEXT NOT NULL, better TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "series" VALUES(-8812787165974454663,'text','text','c20ff785','run echo hello.seconds','s','');
INSERT INTO "series" VALUES(-7654816457005546550,'never','never','be92dd81','run echo hello.seconds','s','');
INSERT INTO "series" VALUES(-5299462559658660307,'slow','slow','692324ce','run sleep 60.seconds','s','');
INSERT INTO "series" VALUES(-4774674005121055471,'text','text','c20ff785','run echo hello.cpu','s','');
INSERT INTO "series" VALUES(-2903971291325758620,'slow','slow','692324ce','run sleep 60.cpu','s','');
INSERT INTO "series" VALUES(-2840463352961991640,'never','never','be92dd81','run echo hello.cpu','s','');
INSERT INTO "series" VALUES(-2654842142921999390,'code','code','79c62fbf','run exit 3.cpu','s','');
INSERT INTO "series" VALUES(674806864973452498,'code','code','79c62fbf','run exit 3.seconds','s','');
INSERT INTO "series" VALUES(703823709275365706,'own','own','ef70b297','run echo ''ValueError: of the program'' >&2; exit 1.cpu','s','');
INSERT INTO "series" VALUES(1009695986337756682,'text','text','c20ff785','run echo hello.peak_memory','B','');
INSERT INTO "series" VALUES(1633321750016047920,'module','module','516969ba','import no_such_module.cpu','s','');
INSERT INTO "series" VALUES(3107113048655217658,'training','training','498a24cb','peak_memory','B','');
INSERT INTO "series" VALUES(3543341406827399500,'command','command','516969ba','command no-such-command.seconds','s','');
INSERT INTO "series" VALUES(3825764538777334115,'own','own','ef70b297','run echo ''ValueError: of the program'' >&2; exit 1.seconds','s','');
INSERT INTO "series" VALUES(4065255525406970125,'module','module','516969ba','import no_such_module.seconds','s','');
INSERT INTO "series" VALUES(5444767838153100319,'training','training','498a24cb','seconds','s','');
INSERT INTO "series" VALUES(8099683203629975026,'code','code','79c62fbf','run exit 3.peak_memory','B','');
INSERT INTO "series" VALUES(8339997193876354132,'module','module','516969ba','import no_such_module.peak_memory','B','');
INSERT INTO "series" VALUES(8428396889785960541,'never','never','be92dd81','run echo hello.peak_memory','B','');
INSERT INTO "series" VALUES(9018293141245932927,'own','own','ef70b297','run echo ''ValueError: of the program'' >&2; exit 1.peak_memory','B','');
INSERT INTO "series" VALUES(9217974642112054734,'slow','slow','692324ce','run sleep 60.peak_memory','B','');
CREATE TABLE settings (id TEXT PRIMARY KEY, fields TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "settings" VALUES('498a24cb','{"command": "echo step 1 loss 2.5", "hardware.cores": "2", "hardware.cpu": "Intel(R) Xeon(R) Processor", "hardware.gpu": "[]", "kind": "training"}');
INSERT INTO "settings" VALUES('516969ba','{"hardware.cores": "2", "hardware.cpu": "Intel(R) Xeon(R) Processor", "hardware.gpu": "[]", "kind": "runtime"}');
INSERT INTO "settings" VALUES('692324ce','{"hardware.cores": "2", "hardware.cpu": "Intel(R) Xeon(R) Processor", "hardware.gpu": "[]", "kind": "runtime", "run": "[{\"command\": \"sleep 60\", \"timeout\": 1.0}]"}');
INSERT INTO "settings" VALUES('79c62fbf','{"hardware.cores": "2", "hardware.cpu": "Intel(R) Xeon(R) Processor", "hardware.gpu": "[]", "kind": "runtime", "run": "[\"exit 3\"]"}');
INSERT INTO "settings" VALUES('be92dd81','{"hardware.cores": "2", "hardware.cpu": "Intel(R) Xeon(R) Processor", "hardware.gpu": "[]", "kind": "runtime", "run": "[{\"command\": \"echo hello\", \"never\": [\"hello\"]}]"}');
INSERT INTO "settings" VALUES('c20ff785','{"hardware.cores": "2", "hardware.cpu": "Intel(R) Xeon(R) Processor", "hardware.gpu": "[]", "kind": "runtime", "run": "[{\"command\": \"echo hello\", \"contains\": [\"goodbye\"]}]"}');
INSERT INTO "settings" VALUES('ef70b297','{"hardware.cores": "2", "hardware.cpu": "Intel(R) Xeon(R) Processor", "hardware.gpu": "[]", "kind": "runtime", "run": "[\"echo ''ValueError: of the program'' >&2; exit 1\"]"}');
CREATE INDEX runs_by_time ON runs (started_s);
CREATE INDEX cells_by_hash ON cells (hash, run);
CREATE INDEX attempts_that_passed ON attempts (hash, started_s DESC, seconds)
    WHERE verdict IN ('passed', 'xfail') AND seconds IS NOT NULL;
CREATE INDEX series_of_trial ON series (trial);
CREATE INDEX series_of_benchmark ON series (benchmark);
CREATE INDEX points_of_run ON points (run);
CREATE INDEX cells_with_alarm ON cells (at_s) WHERE verdict IN ('slower', 'faster');
CREATE INDEX cells_of_trial ON cells (trial, run);
CREATE INDEX cells_by_id ON cells (id, run);
CREATE INDEX cells_through_time ON cells (cell, at_s, verdict, flaky, cause) WHERE verdict <> 'skipped';
CREATE INDEX cells_of_cause ON cells (cause, at_s) WHERE cause <> '';
COMMIT;
PRAGMA user_version = 6;
