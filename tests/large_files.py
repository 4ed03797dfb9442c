"""Fails if git tracks a large file: every clone pays for it forever. `make check` runs it."""

import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

LIMIT = 1_000_000  # bytes
ALLOWED: frozenset[str] = frozenset()  # paths of larger files that belong here


def large_files(root: Path, allowed: Collection[str] = ALLOWED) -> list[tuple[str, int]]:
    """Path and size of each tracked file over LIMIT that is not allowed. Deleted files do not count."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True).stdout
    sizes = [(path, (root / path).lstat().st_size) for path in listed.split("\0") if path and (root / path).is_file()]
    return [(path, size) for path, size in sizes if size > LIMIT and path not in allowed]


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        print("File sizes not checked: this is not a git checkout.")
        return 0
    found = large_files(root)
    for path, size in found:
        print(f"{path}: {size / 1e6:.1f} MB; the limit for tracked files is {LIMIT / 1e6:.0f} MB")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
