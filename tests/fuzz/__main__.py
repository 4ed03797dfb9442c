"""`make fuzz`: many bad inputs of every kind. Prints each that fails, with the command that makes it again."""

import argparse
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path

from fuzz.fuzzing import failures
from fuzz.inputs import all_kinds
from fuzz.seeds import Seeds

MOST_SHOWN = 5  # of one kind


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="default: all")
    parser.add_argument("--count", type=int, default=100_000, help="inputs of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="seatrial-fuzz-") as folder:
        seeds = Seeds.make(Path(folder))
        names = list(all_kinds(_apart(seeds)))
        if unknown := set(given.kinds) - set(names):
            parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(names)}")
        tasks = [(name, seeds, given.seed, given.first, given.count) for name in given.kinds or names]
        bad = 0
        with multiprocessing.get_context("fork").Pool(given.jobs, maxtasksperchild=1) as pool:
            for name, seconds, found, shown in pool.imap_unordered(_fuzz, tasks):
                bad += found
                print(f"{name:24} {given.count:>9,} inputs  {found:>6,} failed  {seconds:7.1f} s", flush=True)
                for text in shown:
                    print(f"\n{text}\n", flush=True)
    return bool(bad)


def _apart(seeds: Seeds) -> Seeds:
    """The same, to write to in a folder of its own."""
    folder = Path(tempfile.mkdtemp(dir=seeds.folder))
    for file in ("suite.yaml", "bounds.yaml"):
        (folder / file).write_bytes((seeds.folder / file).read_bytes())
    return Seeds(folder, seeds.run)


def _fuzz(task: tuple[str, Seeds, int, int, int]) -> tuple[str, float, int, list[str]]:
    name, seeds, seed, first, count = task
    own = _apart(seeds)
    begun_s = time.process_time()
    kind = all_kinds(own)[name]
    found, shown, known = 0, [], set()
    for failure in failures(kind, seed, first, count):
        found += 1
        last = failure.what.rpartition("\n  File ")[2].partition("\n")[0]  # the same line of code is the same bug
        if last not in known and len(shown) < MOST_SHOWN:
            known.add(last)
            shown.append(str(failure))
    return name, time.process_time() - begun_s, found, shown


if __name__ == "__main__":
    sys.exit(main())
