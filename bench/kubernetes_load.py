"""2,000 cells of `true` on fake nodes of a real API server, killed in their middle and taken up: as in load.py."""

import sys

from _load import load, print_loads, sizes
from _measure import ROOT, left_out, sized

sys.path.insert(0, str(ROOT))

from cluster import Unavailable, up

FAKE_NODES = sized(500, 2)
SUITE = """
name: load
max_cells: {cells}
targets:
  fake: {{kind: kubernetes, image: registry.example/any, parallel: 200}}
machines:
  gpu: {{target: fake, gpu: {{count: 1}}}}
trials:
  nothing: {{kind: runtime, facts: false, machine: gpu, matrix: {{n: [{numbers}]}}, run: ["true"]}}
"""


def main() -> None:
    try:
        cluster = up("bench-load", fake_nodes=FAKE_NODES, gpus=8)
    except Unavailable as error:
        left_out(f"no cluster here: {error.what}")
    with cluster:
        env = {"KUBECONFIG": str(cluster.kubeconfig)}
        print_loads(
            "cells of `true` on fake nodes, with a kill -9 and an attach in the middle (times that of the size before)",
            [load(SUITE, cells, env) for cells in sizes(sized("250,500,1000,2000", "64"))],
        )


if __name__ == "__main__":
    main()
