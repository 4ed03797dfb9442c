"""Merges the records of several hosts, each with its own agent, so that checks see the same data as for a job whose
hosts were processes on one machine.

- Outcome, code, output, times and samples of a step are those of the host that failed first, by the hosts' wall clocks;
  if none failed, of the slowest host, because the others waited for it. A host that was only stopped because another
  failed, or whose end is unknown, comes after those that failed by themselves.
- Notes are those of all hosts. CPU time, lines and steps are summed; peak memory is that of the highest host.
- Required and forbidden log lines, and values in the log, are kept by host. Line numbers are those of the host's log.
- Files are counted as if all hosts shared one folder: the same path on two hosts counts once. Each is listed below
  `hosts/N/`; a file that is identical on several hosts (a shared folder) is listed once, under its plain path.
- The hardware is host 0's; `others` lists hosts with a different cpu, cores, gpu or tpu.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from seatrial.job.lifecycle import Outcome
from seatrial.job.observation import ObservedStep, Records
from seatrial.job.reading import JsonObject

# Hardware fields to compare: the others (memory to the byte) differ between equal machines.
COUNTED = ("cpu", "cores", "gpu", "tpu")
# Outcomes of a host after another one failed, or if its end is unknown.
_FOLLOWS = (Outcome.CANCELLED, Outcome.EVICTED, Outcome.LOST, None)


def merged(hosts: Sequence[Records]) -> Records:
    """Merges the records of all hosts, in order; empty ones for a host without records. Never raises for bad data."""
    if len(hosts) == 1:
        return hosts[0]
    whole = min(range(len(hosts)), key=lambda host: _rank(hosts[host].outcome, 0, hosts[host].began_s, None))
    message = hosts[whole].message
    return Records(
        steps=[_step(hosts, number) for number in range(len(hosts[0].steps))],
        outcome=hosts[whole].outcome,
        message=f"host {whole}: {message}" if message else "",
        left=sum(one.left for one in hosts),
        log_bytes=sum(one.log_bytes for one in hosts),
        log_omitted_bytes=sum(one.log_omitted_bytes for one in hosts),
        broken_records=sum(one.broken_records for one in hosts),
        seconds=max((one.seconds for one in hosts if one.seconds is not None), default=None),
        hardware=_hardware([one.hardware for one in hosts]),
        began_s=min((one.began_s for one in hosts if one.began_s is not None), default=None),
        unkept=tuple(found for one in hosts for found in one.unkept),
    )


def _rank(outcome: Outcome | None, code: int | None, began_s: float | None, ended_s: float | None) -> tuple[int, float]:
    """Sort key, most informative first: a host's own failure, then consequences of another's, then success."""
    at_s = (began_s or 0.0) + (ended_s or 0.0)
    if outcome is Outcome.EXITED:
        return (0, at_s) if code else (2, at_s)
    return (1, at_s) if outcome in _FOLLOWS else (0, at_s)


def _step(hosts: Sequence[Records], number: int) -> ObservedStep:
    of_hosts = [one.steps[number] for one in hosts]
    ranks = [
        _rank(step.outcome, step.code, one.began_s, step.ended_s) for one, step in zip(hosts, of_hosts, strict=True)
    ]
    first = min(range(len(of_hosts)), key=lambda host: ranks[host])
    if ranks[first][0] == 2:
        first = max(range(len(of_hosts)), key=lambda host: (of_hosts[host].seconds or 0.0, -host))
    chosen = of_hosts[first]
    cpu = [step.cpu_s for step in of_hosts if step.cpu_s is not None]
    results = [step.result for step in of_hosts]
    merge = {"command": _followed_result, "read": _files_result}.get(chosen.kind)
    return msgspec.structs.replace(
        chosen,
        output=_output(chosen, first),
        output_omitted_bytes=sum(step.output_omitted_bytes for step in of_hosts),
        cpu_s=sum(cpu) if cpu else None,
        peak_memory_bytes=max(step.peak_memory_bytes or 0 for step in of_hosts) or None,
        oom_kills=sum(step.oom_kills for step in of_hosts),
        notes=[note for step in of_hosts for note in step.notes],
        result=merge(results, first) if merge else chosen.result,
    )


def _output(chosen: ObservedStep, host: int) -> str:
    """The output with its host before each line, and the failed host at the end, as in the log of several hosts."""
    lines = chosen.output.split("\n")
    ending = [lines.pop()] if lines[-1] == "" else []
    if chosen.outcome is Outcome.EXITED and chosen.code:
        lines.append(f"--- host {host} ended with code {chosen.code}")
    return "\n".join([*(f"[{host}] {line}" for line in lines), *ending]) if lines else ""


# ---- what was read of the log


def _followed_result(results: list[JsonObject], first: int) -> JsonObject:
    found = [result for result in results if result]
    if not found:
        return {}
    stopped = [result.get("stopped") for result in [results[first], *found]]
    values: dict[str, JsonObject] = {}
    for name, by_host in _items(found, "values"):
        values.setdefault(name, {}).update(by_host)
    return {
        **{key: sum(_number(result.get(key)) for result in found) for key in ("lines", "long_lines", "steps")},
        "must": _sought(found, "must"),
        "never": _sought(found, "never"),
        "values": values,
        "stopped": next((one for one in stopped if one), None),
        "dropped": list({str(one): one for result in found for one in _list(result.get("dropped"))}.values()),
        "errors": [one for result in found for one in _list(result.get("errors"))],
    }


def _sought(results: list[JsonObject], key: str) -> JsonObject:
    """Number of matches of each pattern, by host, and the first matching line of the first host."""
    made: dict[str, JsonObject] = {}
    for pattern, found in _items(results, key):
        whole = made.setdefault(pattern, {"count": 0, "host": {}, "line": None, "text": ""})
        count = _number(found.get("count"))
        if count and not whole["count"]:
            whole.update(line=found.get("line"), text=found.get("text"))
        whole["count"] += count
        for host, number in _map(found.get("host")).items():
            whole["host"][host] = whole["host"].get(host, 0) + _number(number)
    return made


# ---- files


def _files_result(results: list[JsonObject], first: int) -> JsonObject:
    names = dict.fromkeys(name for result in results for name, entry in result.items() if isinstance(entry, dict))
    made: JsonObject = {name: _entry([_map(result.get(name)) for result in results]) for name in names}
    error = results[first].get("error")
    return {**made, "error": f"host {first}: {error}"} if isinstance(error, str) else made


def _entry(entries: list[JsonObject]) -> JsonObject:
    owners: dict[str, list[tuple[int, JsonObject]]] = {}  # by path
    unlisted = 0
    for host, entry in enumerate(entries):
        files = [one for one in _list(entry.get("files")) if isinstance(one, dict)]
        unlisted += max(0, _number(entry.get("count")) - len(files))
        for one in files:
            owners.setdefault(str(one.get("path")), []).append((host, one))
    made: JsonObject = {
        "count": len(owners) + unlisted,
        "files": [one for path in sorted(owners) for one in _files_at(path, owners[path])],
    }
    for key in ("error", "cut"):
        messages = [f"host {host}: {entry[key]}" for host, entry in enumerate(entries) if entry.get(key)]
        made.update({key: "; ".join(messages)} if messages else {})
    return made


def _files_at(path: str, found: list[tuple[int, JsonObject]]) -> Iterator[JsonObject]:
    """The file once if all hosts report the same content, else each host's own. Size and time are not enough to tell:
    hosts may write files of the same size at the same instant."""
    if len(found) > 1 and all(one == found[0][1] for _, one in found):
        yield found[0][1]
        return
    for host, one in found:
        yield {**one, "path": f"hosts/{host}/{path}"}


# ---- the rest


def _hardware(found: list[JsonObject]) -> JsonObject:
    first = found[0]
    others = {
        str(host): {key: one.get(key) for key in COUNTED if key in one or key in first}
        for host, one in enumerate(found)
        if one and any(one.get(key) != first.get(key) for key in COUNTED)
    }
    return {**first, "others": others} if others else first


def _items(results: list[JsonObject], key: str) -> Iterator[tuple[str, JsonObject]]:
    for result in results:
        for name, value in _map(result.get(key)).items():
            if isinstance(value, dict):
                yield name, value


def _number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _map(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
