#!/bin/sh
# Three configurations of a model server that answer right, and one that does not. Usage: demo.sh SEATRIAL FOLDER
set -eu
seatrial=$1 here=$(dirname "$0")
folder=$2/$(date +%Y%m%d-%H%M%S)
mkdir -p "$folder"
cp -r "$here/suite.yaml" "$here/cases.yaml" "$here/server" "$folder/"
cd "$folder"
echo "== In $folder"

echo "== 1. Three precisions: each case whole, as a stream, alone and in a crowd"
"$seatrial" run suite.yaml --select 'tiny*'

echo "== 2. A server with a fault: the rotary embedding has another base"
code=0
"$seatrial" run suite.yaml --select 'faulty*' || code=$?
test "$code" -eq 1 || { echo "expected exit code 1, for wrong answers; got $code" >&2; exit 1; }
python3 - runs/*/results.json <<'END'
import json
import sys

cells = {cell["id"]: cell for path in sys.argv[1:] for cell in json.load(open(path))["cells"]}
faulty = next(cell for name, cell in cells.items() if name.startswith("faulty"))
classes = {finding["class"] for finding in faulty["findings"] if finding["verdict"] == "failed"}
assert classes <= {"drift", "diverged"} and classes, f"it failed for {sorted(classes)}, not for its answers"
END

echo "== 3. What a server that is trusted would record now: the answers that are there"
"$seatrial" record suite.yaml --diff --select 'tiny*f32*'

echo "== 4. A short load, and its metrics"
"$seatrial" run suite.yaml --select 'loaded*'
python3 - runs/*/results.json <<'END'
import json
import sys

cells = [cell for path in sys.argv[1:] for cell in json.load(open(path))["cells"] if cell["id"].startswith("loaded")]
for finding in cells[-1]["findings"]:
    if finding["step"] == "load":
        print(f"  {finding['check']:<16} {finding['message']}")
END
echo
echo "Its report:  $folder/runs/$(ls -t runs | grep -m 1 '^serving-')/report.html"
