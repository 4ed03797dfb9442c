"""What comes from an API server and its pods: HTTP, objects, watches, errors, annotations, logs; and from a model
server."""

import asyncio
import json
import zlib
from collections.abc import Iterator
from typing import Any, cast

from fuzz import mutate
from fuzz.fuzzing import Kind
from fuzz.seeds import Seeds
from seatrial.http.http1 import BrokenConnection, NotHttp, Wire
from seatrial.kubernetes import PODS, KubernetesError
from seatrial.kubernetes.errors import api_error
from seatrial.kubernetes.objects import ApiRequest
from seatrial.kubernetes.queries import ListPage, ObjectSelection, decode_answer
from seatrial.kubernetes.watch import Watch
from seatrial.targets.kubernetes.run_object import Annotated, in_use_by
from seatrial.targets.kubernetes.submit import JobAnnotation
from seatrial.targets.kubernetes.watch.ending import EndContext, job_exit
from seatrial.targets.kubernetes.watch.jobs import TrackedPod
from seatrial.targets.kubernetes.watch.objects import PodObject, RootObject, WarningEvent
from seatrial.targets.kubernetes.watch.waiting import Patience, WaitContext, why_waiting
from seatrial.targets.protocol import TargetError

MESSAGE = json.dumps({"seatrial": 1, "outcome": "exited", "code": 3, "message": "", "steps": [["exited", 0]]})
POD = {
    "metadata": {
        "name": "job-0-abcde", "namespace": "trials", "uid": "u0", "resourceVersion": "17",
        "creationTimestamp": "2026-11-16T05:00:00Z", "deletionTimestamp": "2026-11-16T05:01:00Z",
        "labels": {"seatrial/job": "job", "batch.kubernetes.io/job-completion-index": "0"},
    },
    "spec": {
        "nodeName": "node-a",
        "containers": [{"name": "trial", "resources": {"requests": {"cpu": "2", "nvidia.com/gpu": "8"}}}],
    },
    "status": {
        "phase": "Failed", "reason": "Evicted", "message": "low on memory", "startTime": "2026-11-16T05:00:01Z",
        "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
             "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
             "lastTransitionTime": "2026-11-16T05:00:00Z"},
            {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "x"},
        ],
        "containerStatuses": [
            {"name": "trial", "containerID": "containerd://1", "ready": False, "state": {"terminated": {
                "exitCode": 3, "reason": "Error", "message": MESSAGE, "startedAt": "2026-11-16T05:00:02Z",
                "finishedAt": "2026-11-16T05:00:09Z"}}},
            {"name": "keeper", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}},
        ],
    },
}  # fmt: skip
ROOT_JOB = {
    "metadata": {
        "name": "job", "namespace": "trials", "uid": "r0", "creationTimestamp": "2026-11-16T05:00:00Z",
        "labels": {"seatrial/run": "r"},
        "annotations": {
            "seatrial/job-data": '{"name":"j","run":"r","steps":["a","b"],"ports":{"http":8080}}',
            "seatrial/holder": '{"host":"node","boot":"0a1b","pid":4711}', "seatrial/renewed": "1767225600",
        },
    },
    "spec": {"suspend": False},
    "status": {"active": 1, "conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]},
}  # fmt: skip
STATUS = {
    "kind": "Status", "status": "Failure", "message": 'pods is forbidden: User "u" cannot list resource "pods"',
    "reason": "Forbidden", "code": 403,
    "details": {"causes": [{"reason": "x", "message": "y"}], "retryAfterSeconds": 1},
}  # fmt: skip
WARNING = {
    "involvedObject": {"kind": "Pod", "name": "job-0-abcde", "uid": "u0"},
    "reason": "FailedMount",
    "message": "m",
}
REQUEST = ApiRequest("get", PODS, "trials", "job-0-abcde")


def of_clusters(seeds: Seeds) -> Iterator[Kind]:
    pod, root, status = (json.dumps(one).encode() for one in (POD, ROOT_JOB, STATUS))
    page = json.dumps({"metadata": {"resourceVersion": "9", "continue": ""}, "items": [POD, POD]}).encode()
    lines = b"".join(
        json.dumps({"type": kind, "object": one}).encode() + b"\n"
        for kind, one in (("ADDED", POD), ("MODIFIED", POD), ("BOOKMARK", POD), ("DELETED", POD), ("ERROR", STATUS))
    )
    bomb = _bomb()
    packed = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s" % (len(bomb), bomb)
    http = [
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(pod), pod),
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"5\r\nhello\r\n3;x\r\nabc\r\n0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
    ]
    yield Kind("answers-pods", [pod], mutate.json_text, _pod, (KubernetesError,))
    yield Kind("answers-roots", [root], mutate.json_text, _root, (KubernetesError, TargetError))
    yield Kind(
        "answers-pages",
        [page],
        mutate.json_text,
        lambda data: decode_answer(REQUEST, ListPage[PodObject], data),
        (KubernetesError,),
    )
    yield Kind("answers-errors", [status], mutate.json_text, lambda data: str(api_error(REQUEST, 403, data)))
    yield Kind("answers-watches", [lines], mutate.json_lines, _watch, (KubernetesError,))
    yield Kind("answers-warnings", [json.dumps(WARNING).encode()], mutate.json_text, _warning, (KubernetesError,))
    yield Kind("answers-http", [*http * 20, packed], mutate.http_text, _http)


def _bomb() -> bytes:
    """Few bytes that are many when they are unpacked."""
    packing = zlib.compressobj(1, wbits=31)
    return b"".join([*(packing.compress(bytes(1 << 20)) for _ in range(160)), packing.flush()])


def _pod(data: bytes) -> object:
    pod = decode_answer(REQUEST, PodObject, data)
    tracked = TrackedPod(pod)
    tracked.update(pod, 1_800_000_000.0, live=False)
    gone = TrackedPod(pod)
    gone.update(pod, 1_800_000_000.0, live=False, gone=True)
    root = decode_answer(REQUEST, RootObject, json.dumps(ROOT_JOB).encode())
    context = EndContext(root=root, alone=True)
    waiting = WaitContext(root=root, most={"cpu": 2.0, "nvidia.com/gpu": 4.0})
    return (
        job_exit([tracked, gone], context),
        why_waiting([pod], waiting, Patience()),
        JobAnnotation("j", "r").records(pod),
        tracked.number,
    )


def _root(data: bytes) -> object:
    root, found = decode_answer(REQUEST, RootObject, data), decode_answer(REQUEST, Annotated, data)
    in_use_by([found], 1_767_225_601.0)
    pod = decode_answer(REQUEST, PodObject, json.dumps(POD).encode())
    job_exit([TrackedPod(pod)], EndContext(root=root))
    return JobAnnotation.read(found).records(pod)


def _warning(data: bytes) -> object:
    warning = decode_answer(REQUEST, WarningEvent, data)
    pod = decode_answer(REQUEST, PodObject, json.dumps({**POD, "status": {"phase": "Pending"}}).encode())
    return why_waiting([pod], WaitContext(warnings=(warning,)), Patience())


def _watch(data: bytes) -> object:
    watch = Watch(cast(Any, None), ObjectSelection(PODS, "trials"), PodObject)
    return list(watch._events(data, 0.0))


class _Deaf:
    """A transport that nobody listens to."""

    def write(self, data: bytes) -> None: ...

    def abort(self) -> None: ...


def _http(data: bytes) -> object:
    return asyncio.run(_answer(data))


async def _answer(data: bytes) -> object:
    wire = Wire()
    wire.transport = cast(Any, _Deaf())
    waiting = wire.ask(b"GET / HTTP/1.1\r\n\r\n")
    step = 700 if len(data) < 100_000 else 1 << 16
    for start in range(0, len(data), step):
        wire.data_received(data[start : start + step])
    wire.connection_lost(None)
    await asyncio.wait([waiting])
    error = waiting.exception()
    if error is not None and not isinstance(error, NotHttp | BrokenConnection):
        raise error
    return None
