"""Reading a log of 100 MB with ten patterns, three of them metrics that are on every line: CPU time, beside other ways.

python bench/scan.py [MEGABYTES]
"""

import json
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _measure import cpu_of, environment, sized, table

from seatrial.suite.patterns import for_agent
from seatrial.targets.agent_file import agent_file

WORDS = ["Traceback", "CUDA out of memory", "NCCL error", "Loss is NaN", "Segmentation fault"]
MUST = ["Finished training run", "Step duration"]
METRICS = {"loss": r"(?<![\w/-])loss: (\S+)", "step": r"\bstep: (\d+)", "step_time": r"step_time: (\S+)"}
EVERY = [*MUST, *WORDS, *METRICS.values()]
LINE = "2026-11-16 02:10:{second:02},{milli:03} INFO trainer Epoch: {epoch:.4f}, step: {step}, loss: {loss:.4f}, " \
    "grad_norm: {norm:.4f}, lr: 7.64e-05, step_time: {time:.2f}\n"  # fmt: skip
# The two usual ways in Python: each line by itself, and all of it at once, as torchprime's checks do.
BY_LINE = """
import json, re, sys
patterns = [re.compile(text) for text in json.loads(sys.argv[2])]
for line in open(sys.argv[1], errors="replace"):
    for pattern in patterns:
        pattern.search(line)
"""
AT_ONCE = """
import json, re, sys
text = open(sys.argv[1], errors="replace").read()
for pattern in json.loads(sys.argv[2]):
    re.findall(pattern, text)
"""
RE2 = """
import json, re2, sys
text = open(sys.argv[1], "rb").read()
for pattern in json.loads(sys.argv[2]):
    re2.findall(pattern.encode(), text)
"""


def write_log(path: Path, size: int) -> None:
    rng = random.Random(1)
    written = step = 0
    with open(path, "w") as file:
        while written < size:
            step += 1
            written += file.write(
                LINE.format(
                    second=step // 10 % 60,
                    milli=step % 1000,
                    epoch=step / 1000,
                    step=step,
                    loss=rng.random() * 3,
                    norm=rng.random(),
                    time=rng.random() * 100,
                )
            )
            if step % 1000 == 0:
                written += file.write(
                    f"saving a checkpoint of step {step} to the bucket\nval_loss: {rng.random():.4f}\n"
                )
        file.write("Step duration: 0.2s\nFinished training run\n")


# The same questions as regular expressions that are more than a word: one without regard to case, one of every line.
PROPER = [r"(?i)out of memory", r"Seg(?:mentation )?fault", r"NCCL (?:WARN|ERROR) \w+"]


def proper(asked: dict[str, Any]) -> dict[str, Any]:
    """With some of the words replaced, and something that must be there in every line."""
    train = dict(asked["follow"])
    for number, text in enumerate(PROPER):
        train["never"] = [*train["never"]]
        train["never"][number] = for_agent(text)
    train["must"] = [for_agent(r"step: \d+"), *train["must"][1:]]
    return {**asked, "follow": train}


def spec(path: Path) -> dict[str, Any]:
    def word(text: str) -> dict[str, str]:
        return {"pattern": text, "literal": text}

    values = {name: {"pattern": text, "literal": f"{name}: "} for name, text in METRICS.items()}
    train = {"must": [*map(word, MUST)], "never": [*map(word, WORDS)], "values": values, "finite": ["loss"]}
    return {"logs": [{"path": str(path), "host": 0}], "follow": train, "roots": [], "entries": {}, "seconds": 600}


def main(megabytes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log, asked = Path(folder) / "log.txt", Path(folder) / "spec.json"
        write_log(log, megabytes * 1_000_000)
        asked.write_text(json.dumps(spec(log)))
        agent = agent_file(Path(folder), compiled=True)
        told = subprocess.run([sys.executable, "-I", "-S", agent, "read"], stdin=open(asked), capture_output=True)  # noqa: SIM115
        seen = json.loads(told.stdout.splitlines()[-4])["result"]
        rows = [("seatrial (agent read)", _best([sys.executable, "-I", "-S", agent, "read"], asked))]
        asked.write_text(json.dumps(proper(spec(log))))
        rows.append(("the same, four proper expressions", _best([sys.executable, "-I", "-S", agent, "read"], asked)))
        patterns = json.dumps(EVERY)
        rows.append(("re, all at once", _best([sys.executable, "-c", AT_ONCE, log, patterns])))
        rows.append(("re, line by line", _best([sys.executable, "-c", BY_LINE, log, patterns], times=1)))
        if shutil.which("grep"):
            # Without looking back, which -E has not; to a file, for to /dev/null it stops at the first line.
            each = " ".join(f"-e '{text}'" for text in EVERY if "?<" not in text)
            grep = ["sh", "-c", f"grep -E -o {each} -e 'loss: [^ ]+' $0 > $0.found", log]
            rows.append(("grep -E -o, matches only", _best(grep, times=1)))
        google = environment("re2", "google-re2")
        without = json.dumps([text.replace(r"(?<![\w/-])", r"\b") for text in EVERY])
        rows.append(("google-re2, all at once", _best([google, "-c", RE2, log, without])))
    metrics = seen["values"]["loss"]["0"]
    table(
        f"a log of {megabytes} MB, {seen['lines']} lines, ten patterns ({metrics['count']} losses read), CPU time",
        [(name, f"{cpu_s:6.2f} s, {megabytes / cpu_s:5.0f} MB a CPU second") for name, cpu_s in rows],
    )
    print("  to reach: 100 MB a CPU second, start of the interpreter included; best of 3")


def _best(argv: list[str | Path], stdin: Path | None = None, times: int = 3) -> float:
    found = []
    for _ in range(times):
        with open(stdin or "/dev/null") as source:
            cpu_s, _, code = cpu_of(argv, stdin=source)
        if code:
            raise SystemExit(f"{argv[:3]} failed with {code}")
        found.append(cpu_s)
    return min(found)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else sized(100, 1))
