"""How near `find: peak` is to the capacity of servers that have a known one, 50 requests a second: in simulated time,
with the client's own decisions, from different first rates and seeds. Fails if a result is more than 5 % off."""

import asyncio
import math
import random
import sys

from _measure import ROOT, sized, table

sys.path.insert(0, str(ROOT / "tests" / "kinds" / "serving"))

from queues import CAPACITY, SERVERS, find_peak

SEEDS, SECONDS = sized((40, (5.0, 10.0, 30.0)), (3, (5.0,)))
WITHIN = 0.05


def main() -> None:
    rows, far = [], 0
    for seconds in SECONDS:
        for name, server in SERVERS.items():
            for shape in ("rate", "poisson"):
                errors, tried_s = [], 0.0
                for seed in range(SEEDS):
                    first = CAPACITY * math.exp(random.Random(seed).uniform(-2, 2))
                    found = asyncio.run(find_peak(server, shape, first, seconds, seed))
                    errors += [found.low / CAPACITY - 1, found.high / CAPACITY - 1]
                    tried_s += sum(one.result for one in found.tries)
                far += sum(abs(error) > WITHIN for error in errors)
                lows, highs = errors[::2], errors[1::2]
                rows.append(
                    (
                        f"{name}, {shape}, windows from {seconds:g} s",
                        f"holds {min(lows):+.1%} to {max(lows):+.1%}, breaks {min(highs):+.1%} to {max(highs):+.1%}, "
                        f"{tried_s / SEEDS:.0f} s of load",
                    )
                )
    table(f"Peak found, from {CAPACITY:g}/s; {SEEDS} searches each", rows)
    if far:
        raise SystemExit(f"{far} results are off by more than {WITHIN:.0%}")


if __name__ == "__main__":
    main()
