"""10,000 cases through a whole trial against a stub on this machine: CPU time and memory of all that Seatrial starts,
beside those of reading the same cases alone, as JSON and as YAML."""

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from _measure import SEATRIAL, sized, table

STUB = Path(__file__).with_name("_model_stub.py")
CASES, TOKENS, TOP = sized(10_000, 50), 16, 5
READ = """
import resource, sys, time
from pathlib import Path
from seatrial.kinds.serving.cases import read_case_file
began = time.process_time()
assert len(read_case_file(Path(sys.argv[1])).cases) == int(sys.argv[2])
print(time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
"""
SUITE = """
name: many
trials:
  many:
    kind: serving
    model: stub
    server: {{url: "http://127.0.0.1:{port}"}}
    cases: [cases.json]
    compare: {{rule: text}}
    concurrency: 32
    stream: false
    batching: false
"""


def case(number: int, tokens: bool) -> dict[str, object]:
    """What the stub answers; with tokens, as a server with log-probabilities would have been recorded."""
    top = [{"text": f" word{rank}", "logprob": -0.125 * (rank + 1)} for rank in range(TOP)]
    token = {"text": " word", "logprob": -0.125, "rank": 1, "topTokens": top}
    answer = {"text": " word" * TOKENS, "inputTokenCount": 4, "generatedTokenCount": TOKENS, "stopReason": "MAX_TOKENS"}
    return {
        "name": f"case {number}",
        "request": {"params": {"stopping": {"maxNewTokens": TOKENS}}, "requests": [{"text": f"Number {number} is"}]},
        "response": {"responses": [{**answer, **({"tokens": [token] * TOKENS} if tokens else {})}]},
    }


def reading(path: Path) -> str:
    done = subprocess.run([sys.executable, "-c", READ, path, str(CASES)], capture_output=True, text=True, check=True)
    cpu_s, peak_mb = done.stdout.split()
    return f"{float(cpu_s):.1f} s of CPU, {peak_mb} MB, of {path.stat().st_size >> 20} MB"


def trial(folder: Path) -> str:
    with subprocess.Popen([sys.executable, STUB, "0"], stdout=subprocess.PIPE, text=True) as stub:
        assert stub.stdout is not None
        (folder / "suite.yaml").write_text(SUITE.format(port=int(stub.stdout.readline())))
        cpu_s, wall_s, code = cpu_of_trial(folder)
        stub.kill()
    if code:
        raise SystemExit(f"the trial ended with {code}")
    peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
    return f"{cpu_s:.1f} s of CPU, {wall_s:.1f} s, at most {peak_mb} MB in one process"


def cpu_of_trial(folder: Path) -> tuple[float, float, int]:
    """In a process of its own, whose only children are Seatrial's."""
    code = f"import sys; from _measure import cpu_of; print(*cpu_of(sys.argv[1:], cwd={str(folder)!r}))"
    argv = [sys.executable, "-c", code, SEATRIAL, "run", "suite.yaml"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=Path(__file__).parent)
    cpu_s, wall_s, exit_code = done.stdout.split()
    return float(cpu_s), float(wall_s), int(exit_code)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cases.json").write_text(json.dumps([case(number, False) for number in range(CASES)]))
        rows = [(f"{CASES:,} cases through a trial", trial(folder))]
        full = [case(number, True) for number in range(CASES)]
        for path in (folder / "full.json", folder / "full.yaml"):
            # JSON that does not begin with a bracket is read as YAML.
            path.write_text(("" if path.suffix == ".json" else "# YAML\n") + json.dumps(full))
            rows.append((f"reading as {path.suffix[1:].upper()}, with tokens", reading(path)))
        table("Many cases", rows)


if __name__ == "__main__":
    main()
