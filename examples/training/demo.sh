#!/bin/sh
# The story of a regression, in a new folder of its own: good runs, bounds made of them, a change that makes every step
# half as long again, and what Seatrial says of it. Usage: demo.sh SEATRIAL FOLDER
set -eu
seatrial=$1 here=$(dirname "$0")
folder=$2/$(date +%Y%m%d-%H%M%S)
mkdir -p "$folder"
cp -r "$here/suite.yaml" "$here/job" "$folder/"
cd "$folder"
echo "== In $folder"

echo "== 1. What passes, what diverges and what hangs"
"$seatrial" run suite.yaml
# An xfail would excuse any failure: these two must have failed in the way that is the point of them, and long before
# their last step.
python3 - runs/*/cells/*/1/observation.json <<'END'
import json
import sys

steps = [step for path in sys.argv[1:] for step in json.load(open(path))["steps"] if step["name"] == "train"]
stopped = {(step["result"]["stopped"] or {}).get("what"): step["result"]["steps"] for step in steps}
assert {"value", "stall"} <= stopped.keys(), f"ended for {sorted(map(str, stopped))}, not for a value and a stall"
assert stopped["value"] < 1000, f"it went on after a loss of nan, to step {stopped['value']}"
END

echo "== 2. Five runs more, each of two repeats, and bounds for the next one"
for run in 1 2 3 4 5; do
  "$seatrial" run suite.yaml --select 'steady*' --repeat 2 >run.txt || { cat run.txt; exit 1; }
  tail -n 3 run.txt
done
"$seatrial" baseline update suite.yaml --reason "first bounds"

echo "== 3. A change of the code: batches now take half as long again"
sed -i 's/^BATCH_S = 0.100/BATCH_S = 0.150/' job/train.py
code=0
"$seatrial" run suite.yaml --select 'steady*' || code=$?
test "$code" -eq 1 || { echo "expected exit code 1, for slower; got $code" >&2; exit 1; }
"$seatrial" report last --json | grep -q '"verdict": *"slower"' || { echo "expected slower" >&2; exit 1; }

echo "== 4. Since when, and by how much"
"$seatrial" history steady
"$seatrial" baseline show suite.yaml
echo
echo "Its report:  $folder/runs/$(ls -t runs | grep -m 1 '^training-')/report.html"
echo "Go on there: cd $folder; $seatrial baseline recenter suite.yaml --reason '...'"
