#!/bin/sh
# Runs the suite on a simulated cluster: `demo.sh BIN RUNS`, from the project's folder.
set -eu
bin=$1 runs=$2
KUBECONFIG=$("$bin/python" -m cluster up demo-scale --fake-nodes 1000 --gpus 8)
export KUBECONFIG
trap '"$bin/python" -m cluster down demo-scale >/dev/null' EXIT
trap 'exit 130' INT TERM
"$bin/seatrial" run examples/scale/suite.yaml --runs "$runs"
