"""10,000 cells of `true` on this machine, killed in their middle and taken up: CPU, memory and journal for each cell,
and the time until they are taken up, at several sizes."""

from _load import load, print_loads, sizes
from _measure import sized

SUITE = """
name: load
max_cells: {cells}
trials:
  nothing: {{kind: runtime, facts: false, matrix: {{n: [{numbers}]}}, run: ["true"]}}
"""


def main() -> None:
    print_loads(
        "cells of `true` on this machine, with a kill -9 and an attach in the middle (times that of the size before)",
        [load(SUITE, cells, {}) for cells in sizes(sized("1000,2500,5000,10000", "100"))],
    )


if __name__ == "__main__":
    main()
