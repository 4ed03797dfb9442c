"""The agent's commands: `spawn` (the zygote), `run` (steps in the foreground), `pod` and `keep` (the two containers of
a pod), `pack` (archives their output), `read` (reads existing logs and files), and the programs of single steps."""

from __future__ import annotations

import importlib
import sys
from typing import List

COMMANDS = {
    "spawn": "run.supervisor",
    "run": "run.container",
    "pod": "pod.pod",
    "keep": "pod.keep",
    "pack": "pod.files",
    "probe": "steps.probe",
    "notebook": "notebook.drive",
    "files": "readers.files",
    "read": "read_existing",
}


def main(arguments: List[str]) -> int:
    if not arguments or arguments[0] not in COMMANDS:
        sys.stderr.write("usage: python AGENT %s ...\n" % "|".join(COMMANDS))
        return 2
    if not __package__:
        sys.stderr.write("run the agent as a zipapp, or with `python -m` and its full module name\n")
        return 2
    module = importlib.import_module("." + COMMANDS[arguments[0]], __package__)
    return int(module.main(arguments[1:]) or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
