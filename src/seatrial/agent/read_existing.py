"""`python AGENT read`: reads existing logs and files as if a job had just written them.

Standard input has a JSON object: {"logs": [{"path", "host"}], "follow", "hosts": as in a `command` step, "roots",
"entries": as in a `read` step, "outputs": [{"text", "must", "never"}], "memory_bytes", "seconds"}. Records go to
standard output in the format of records.jsonl: step 0 is the log, step 1 the files, the others are the outputs. If
`host` is null, the lines name their hosts.
"""

from __future__ import annotations

import json
import os
import sys
import zlib
from functools import partial
from typing import Any, Dict, List

from .masking.mask import Mask
from .readers.files import Limited, OverTime, gather, read_files, unpacked
from .readers.log import Reading
from .readers.patterns import search_output
from .run.measure import hardware
from .run.records import RecordsFile

_READ_BYTES = 1 << 18


def main(arguments: List[str]) -> int:
    spec = json.load(sys.stdin)
    records = StandardOutput("", Mask())
    records.begin(hardware())
    limited = Limited(spec.get("memory_bytes"), spec.get("seconds"))
    records.write("step", step=0)
    records.write("done", step=0, outcome="exited", code=0, result=_read_logs(spec, limited, records))
    records.write("step", step=1)
    records.write("done", step=1, outcome="exited", code=0, result=_read_files(spec, limited))
    for number, output in enumerate(spec.get("outputs") or (), 2):
        records.write("step", step=number)
        result = search_output(output["text"], output["must"], output["never"])
        records.write("done", step=number, outcome="exited", code=0, result=result)
    records.write("end", outcome="exited", message="", left=0, log_bytes=0, log_omitted_bytes=0)
    return 0


class StandardOutput(RecordsFile):
    def _open(self) -> int:
        return os.dup(1)


def _read_logs(spec: Dict[str, Any], limited: Limited, records: RecordsFile) -> Dict[str, Any]:
    reading = Reading(spec.get("follow") or {}, spec.get("hosts") or 1)
    errors = []
    for log in spec.get("logs") or ():
        host = log.get("host")
        try:
            with limited.reading(), open(log["path"], "rb") as file:
                source = unpacked(file)
                for data in iter(partial(source.read, _READ_BYTES), b""):
                    reading.feed(data, host=host)
                    for note in reading.notes(None):
                        records.write("note", step=0, data=note)
        except OverTime as error:
            errors.append({"path": log["path"], "error": "partly read: %s" % error})
        except (OSError, EOFError, zlib.error, MemoryError) as error:
            errors.append({"path": log["path"], "error": "cannot read the file: %s" % (error or "out of memory")})
        reading.flush(host=host)
    for note in reading.notes(None, last=True):
        records.write("note", step=0, data=note)
    return dict(reading.result(), errors=errors)


def _read_files(spec: Dict[str, Any], limited: Limited) -> Dict[str, Any]:
    roots: List[str] = spec.get("roots") or []
    entries: Dict[str, Any] = spec.get("entries") or {}
    if not entries:
        return {}
    lines: List[bytes] = []
    asked = {"roots": roots, "labels": [""] * len(roots), "entries": entries}
    read_files(asked, limited, lambda line: lines.append(json.dumps(line).encode("utf-8")))
    return gather(lines, entries, True, "")
