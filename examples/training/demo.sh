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

echo "== 2. Eight runs more, and bounds for the next one"
"$seatrial" run suite.yaml --select 'steady*' --repeat 8
"$seatrial" baseline update suite.yaml --reason "first bounds"

echo "== 3. A change of the code: batches now take half as long again"
sed -i 's/^BATCH_S = 0.060/BATCH_S = 0.090/' job/train.py
code=0
"$seatrial" run suite.yaml --select 'steady*' || code=$?
test "$code" -eq 1 || { echo "expected exit code 1, for slower; got $code" >&2; exit 1; }

echo "== 4. Since when, and by how much"
"$seatrial" history steady
"$seatrial" baseline show suite.yaml
echo
echo "Its report:  $folder/runs/$(ls -t runs | grep -m 1 '^training-')/report.html"
echo "Go on there: cd $folder; $seatrial baseline recenter suite.yaml --reason '...'"
