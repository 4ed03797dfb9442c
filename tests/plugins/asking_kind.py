"""A kind of trial with two parts, as a plugin would bring it: an HTTP server that writes down what it is asked, and a
driver that asks it `count` things."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec
from pydantic import Field

from seatrial.checks import check_job
from seatrial.job import Environment, Finding, Observation, Outcome, PartSpec, Port, Ready, Resources, Step, Verdict
from seatrial.kinds.driver import BEGUN, FINISHED
from seatrial.kinds.job import make_job
from seatrial.kinds.protocol import Judgement
from seatrial.suite import HERE, Cell, Gathered, TrialModel

SERVER = """
import http.server, os, threading, time
def leave():
    while not os.path.exists(os.environ["LEAVE_WHEN"]):
        time.sleep(0.02)
    os._exit(3)
if "LEAVE_WHEN" in os.environ:
    threading.Thread(target=leave).start()
asked = open(os.environ["SEATRIAL_FILES"] + "/asked", "a", buffering=1)
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.path != "/health":
            print(self.path.strip("/"), file=asked)
            number = int(self.path.rpartition("-")[2])
            while "HOLD_FROM" in os.environ and number >= int(open(os.environ["HOLD_FROM"]).read()):
                time.sleep(0.02)
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"yes")
    def log_message(self, *args): pass
http.server.ThreadingHTTPServer(("0.0.0.0", int(os.environ["SEATRIAL_PORT"])), Handler).serve_forever()
"""


class AskingTrial(TrialModel):
    kind: Literal["asking"]
    count: int = 1000
    pause_s: float = Field(0.0, alias="pause")
    server: str = f"exec python3 -c '{SERVER}'"
    within_s: float = Field(60.0, alias="within")
    reveal: str = ""  # a variable whose value the driver writes wherever it can


class AskingKind:
    name = "asking"
    model = AskingTrial

    def gather(self, cell: Cell) -> Gathered:
        return Gathered()

    def parts(self, cell: Cell) -> tuple[PartSpec, ...]:
        model: AskingTrial = cell.spec
        job = make_job(cell, (), ())
        server = msgspec.structs.replace(
            job,
            part="server",
            steps=(Step("server", "command", {"command": model.server}),),
            ports=(Port("http", 8000),),
            ready=Ready("http", "/health", model.within_s),
        )
        work = {"count": model.count, "pause_s": model.pause_s, "reveal": model.reveal}
        driver = msgspec.structs.replace(
            job,
            part="driver",
            steps=(Step("driver", "drive", {"kind": "asking", "work": work}),),
            environment=Environment("seatrial", seatrial=True),
            resources=Resources(),
            env={**job.env, "PYTHONPATH": str(Path(__file__).parent)},
        )
        return PartSpec("server", server, cell.target, leads=False), PartSpec("driver", driver, HERE, after="server")

    def judge(self, cell: Cell, observed: Mapping[str, Observation]) -> Judgement:
        model: AskingTrial = cell.spec
        findings = []
        if observed["server"].exit.outcome is Outcome.EXITED:  # it should go on until it is not needed any more
            why = f"it ended by itself, with exit code {observed['server'].exit.code}"
            findings.append(Finding("server", "serving", Verdict.FAILED, "server", why))
        findings += [finding for part, one in observed.items() for finding in check_job(one, part)]
        (step,) = observed["driver"].steps
        begun = {note["thing"] for note in step.notes if note.get("note") == BEGUN}
        finished = {note["thing"] for note in step.notes if note.get("note") == FINISHED}
        good = step.code == 0 and len(begun) == model.count
        verdict = Verdict.PASSED if good else Verdict.FAILED if step.started_s is not None else Verdict.SKIPPED
        data = {"finished": len(finished), "unknown": len(begun - finished), "undone": model.count - len(begun)}
        findings.append(Finding("driver", "asked", verdict, "" if good else "asked", json.dumps(data), data=data))
        return Judgement(findings)


kind = AskingKind()
