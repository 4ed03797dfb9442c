#!/bin/sh
# A scale test in under a minute: `demo.sh BIN RUNS`, from the project's folder. On a simulated cluster where one is
# built (`make cluster` builds one), else with processes of this machine.
set -eu
bin=$1 runs=$2
if ! "$bin/python" -m cluster build --check; then
    echo "no cluster is built here, so workloads are processes; \`make cluster\` builds one"
    exec "$bin/seatrial" run examples/scale/local.yaml --runs "$runs"
fi
trap '"$bin/python" -m cluster down demo-scale >/dev/null' EXIT
trap 'exit 130' INT TERM
KUBECONFIG=$("$bin/python" -m cluster up demo-scale --fake-nodes 1000 --gpus 8)
export KUBECONFIG
"$bin/seatrial" run examples/scale/suite.yaml --tag demo --runs "$runs"
