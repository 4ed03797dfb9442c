"""Whether a container still runs, asked once: what tells a cut stream from one that has ended."""

from seatrial.kubernetes.connection import Connection
from seatrial.kubernetes.errors import Asked, NotFound
from seatrial.kubernetes.objects import Object, Part
from seatrial.kubernetes.resources import PODS
from seatrial.kubernetes.wire import decode

RUNNING, ENDED, GONE = "running", "ended", "gone"


class _Ended(Part, frozen=True):
    exit_code: int = 0


class _State(Part, frozen=True):
    terminated: _Ended | None = None


class _Container(Part, frozen=True):
    name: str = ""
    state: _State = _State()


class _Status(Part, frozen=True):
    phase: str = ""
    container_statuses: tuple[_Container, ...] = ()
    init_container_statuses: tuple[_Container, ...] = ()
    ephemeral_container_statuses: tuple[_Container, ...] = ()


class _Spec(Part, frozen=True):
    containers: tuple[_Container, ...] = ()


class _Pod(Object, frozen=True):
    spec: _Spec = _Spec()
    status: _Status = _Status()


async def container_state(connection: Connection, namespace: str, pod: str, container: str = "") -> str:
    """`running` also before it has begun; `ended` when nothing more can come of it; `gone` with its pod."""
    asked = Asked("get", PODS, namespace, pod)
    try:
        answer = await connection.request(asked, "GET", PODS.path(namespace, pod))
    except NotFound:
        return GONE
    seen = decode(asked, _Pod, answer.body)
    status = seen.status
    if status.phase in ("Succeeded", "Failed"):
        return ENDED
    wanted = container or next((one.name for one in seen.spec.containers), "")
    known = status.container_statuses + status.init_container_statuses + status.ephemeral_container_statuses
    return ENDED if any(one.name == wanted and one.state.terminated is not None for one in known) else RUNNING
