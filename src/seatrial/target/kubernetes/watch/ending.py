"""From what was seen of a job's pods to how it ended, and whose doing that was. Pure.

1. The trial's own word (its termination message) counts when it is there and agrees with its exit code.
2. A trial that was told to end says "cancelled" and cannot know by whom. If not by us, then what the cluster says of
   its pod tells it (evicted, preempted, drained, deleted, over its deadline).
3. Of several hosts the first that failed decides; those that were ended because of it do not.
"""

from collections.abc import Sequence

import msgspec

from seatrial.job import Exit, Outcome
from seatrial.target.kubernetes.names import TRIAL
from seatrial.target.kubernetes.watch.objects import (
    CANNOT_START,
    KILLED,
    Condition,
    PodObject,
    RootObject,
    Terminated,
    epoch_s,
    one_line,
    read_termination_message,
    shown,
)

MESSAGE_CHARACTERS = 1000
HIGHEST_SIGNAL = 64
OUT_OF_MEMORY = "OOMKilled"
LOST_TRACK = frozenset({"ContainerStatusUnknown", "Unknown"})  # the node started anew, or its runtime forgot it
DEADLINE = "DeadlineExceeded"
# Words of a container that could not be started which say that its image or its command is wrong.
WRONG_IMAGE = ("no such file or directory", "executable file not found", "permission denied", "exec format error")
TOO_SMALL = "memory limit too low"


class HostEnd(msgspec.Struct, frozen=True):
    """A pod of the job in its last state. `gone`: its object is. `silent`: it was deleted, and its node, which should
    end it, does not answer."""

    pod: PodObject
    finished_s: float = 0.0
    gone: bool = False
    silent: bool = False
    deleted_s: float | None = None  # when it was first deleted; None: as its last state says


class Around(msgspec.Struct, frozen=True):
    """What is known of all that is around the pods. `cancelled`: by us."""

    root: RootObject | None = None
    root_name: str = ""
    root_kind: str = "Job"
    root_gone: bool = False
    namespace: str = ""
    namespace_going: bool = False
    cancelled: bool = False
    alone: bool = False  # the job has one pod: what fails because of its pods fails because of that one


def over(host: HostEnd) -> bool:
    """Whether nothing of the trial runs there any more, as far as can be known."""
    return host.gone or host.silent or host.pod.phase_ended or host.pod.trial.terminated is not None


def depends_on_surroundings(host: HostEnd) -> bool:
    """Whether how it ended may depend on what becomes of its root and its namespace, and not on its own word alone."""
    own = _own_end(host)
    silent = own is None or own.outcome is Outcome.CANCELLED
    return silent and (host.gone or host.pod.being_deleted)


def failed(host: HostEnd, around: Around) -> bool:
    ended = host_exit(host, around)
    return ended.outcome is not Outcome.EXITED or bool(ended.code)


def job_exit(hosts: Sequence[HostEnd], around: Around) -> Exit:
    """Of a job all of whose hosts are over, or that will never have any."""
    if not hosts:
        return _without_pods(around)
    ends = [(host, host_exit(host, around)) for host in hosts]
    bad = [(host, ended) for host, ended in ends if ended.outcome is not Outcome.EXITED or ended.code]
    if not bad:
        return ends[0][1]
    deadline = _deadline(around, any(host.pod.started for host in hosts))
    if deadline is not None and all(_consequence(host, ended) for host, ended in bad):
        return deadline
    host, ended = min(bad, key=lambda one: (_consequence(one[0], one[1]), one[0].finished_s, one[0].pod.number))
    if len(hosts) == 1:
        return ended
    where = f"host {host.pod.number}{_on(host.pod)}"
    message = shown(f"{where}: {ended.message or _plain_end(ended)}", MESSAGE_CHARACTERS)
    return msgspec.structs.replace(ended, message=message)


def host_exit(host: HostEnd, around: Around) -> Exit:
    """How one of its hosts ended."""
    pod = host.pod
    own = _own_end(host)
    if own is not None and own.outcome is not Outcome.CANCELLED:
        return own
    if around.cancelled:
        return Exit(Outcome.CANCELLED, message=_still_running(pod) if host.silent else own.message if own else "")
    if host.silent:
        return Exit(Outcome.LOST, message=f"{_why_deleted(host, around)}, and {_still_running(pod)}")
    ended = pod.trial.terminated
    if ended is not None and ended.reason == OUT_OF_MEMORY and ended.exit_code:
        return Exit(Outcome.MEMORY, ended.exit_code, _signal(ended), f"it used more memory than its limit{_on(pod)}")
    taken = _taken_away(host, around)
    if taken is not None and (own is not None or ended is None or _because_asked_to_end(host, ended)):
        return taken
    if own is not None:
        return own
    if ended is not None:
        return _from_state(ended, pod)
    words = _reason(pod.status.reason, pod.status.message) or _another_failed(pod)
    return Exit(Outcome.INFRA, message=f"{words}{_on(pod)}")


def _own_end(host: HostEnd) -> Exit | None:
    ended = host.pod.trial.terminated
    word = read_termination_message(ended) if ended is not None else None
    if ended is None or word is None:
        return None
    code = word.code if word.code is not None else (ended.exit_code if word.outcome is Outcome.EXITED else None)
    return Exit(word.outcome, code, message=shown(word.message, MESSAGE_CHARACTERS))


# ---- what was done to it


def _taken_away(host: HostEnd, around: Around) -> Exit | None:
    pod = host.pod
    disruption = pod.condition("DisruptionTarget")
    if pod.status.reason == DEADLINE:
        return _out_of_time(pod.started)
    if disruption is not None:
        return Exit(Outcome.EVICTED, message=_disrupted(disruption, pod))
    if pod.status.reason == "Evicted":
        return Exit(Outcome.EVICTED, message=f"evicted by its node {_node(pod)}: {one_line(pod.status.message)}")
    if not host.gone and not pod.being_deleted:
        return None
    deadline = _deadline(around, pod.started)
    if deadline is not None:
        return deadline
    if around.root is not None and around.root.suspended and not around.root_gone:
        return Exit(Outcome.EVICTED, message=f"its {around.root_kind} was suspended while it ran{_on(pod)}")
    return Exit(Outcome.INFRA, message=_why_deleted(host, around))


def _disrupted(disruption: Condition, pod: PodObject) -> str:
    node = _node(pod)
    words = {
        "PreemptionByScheduler": f"a pod of higher priority took its place on {node}",
        "DeletionByTaintManager": f"its node {node} was lost or tainted",
        "EvictionByEvictionAPI": f"evicted from {node}, as when a node is drained",
        "DeletionByPodGC": f"its node {node} is gone",
        "TerminationByKubelet": f"ended by its node {node}",
    }.get(disruption.reason, f"{one_line(disruption.reason, 100)} on {node}")
    own = disruption.reason == "TerminationByKubelet"
    said = (one_line(pod.status.message) if own else "") or one_line(disruption.message)
    return f"{words}: {said}" if said else words


def _why_deleted(host: HostEnd, around: Around) -> str:
    if around.namespace_going:
        return f"the namespace {around.namespace} is being deleted"
    disruption = host.pod.condition("DisruptionTarget")
    if disruption is not None:
        return _disrupted(disruption, host.pod)
    if around.root_gone:
        return _root_deleted(around, f"while it ran{_on(host.pod)}" if host.pod.spec.node_name else "while it waited")
    failed_ = around.root.failed if around.root is not None else None
    if failed_ is not None and not (around.alone and failed_.reason == "BackoffLimitExceeded"):
        return f"it was ended because its {around.root_kind} failed: {_reason(failed_.reason, failed_.message)}"
    return f"its pod {host.pod.metadata.name}{_on(host.pod)} was deleted, and not by us"


def _root_deleted(around: Around, when: str = "before it ran") -> str:
    return f"its {around.root_kind} {around.root_name} was deleted {when}, and not by us"


def _deadline(around: Around, started: bool) -> Exit | None:
    failed_ = around.root.failed if around.root is not None else None
    if failed_ is None or DEADLINE.lower() not in f"{failed_.reason} {failed_.message}".replace(" ", "").lower():
        return None
    return _out_of_time(started)


def _out_of_time(started: bool) -> Exit:
    if started:
        return Exit(Outcome.TIMEOUT, message="the deadline that the cluster keeps for it is over")
    return Exit(Outcome.QUEUE, message="the deadline that the cluster keeps for it was over before it could start")


def _without_pods(around: Around) -> Exit:
    if around.cancelled:
        return Exit(Outcome.CANCELLED)
    if around.namespace_going:
        return Exit(Outcome.INFRA, message=f"the namespace {around.namespace} is being deleted")
    if around.root_gone or around.root is None:
        return Exit(Outcome.INFRA, message=_root_deleted(around))
    if around.root.completed is not None:
        return Exit(Outcome.EXITED, 0, message="its pods are gone; it completed")
    deadline = _deadline(around, started=False)
    if deadline is not None:
        return deadline
    why = around.root.failed
    words = _reason(why.reason, why.message) if why is not None else "nothing says why"
    return Exit(Outcome.LOST, message=f"its pods are gone, and how it ended is not known: {words}")


# ---- the state of its container


def _from_state(ended: Terminated, pod: PodObject) -> Exit:
    said = shown(ended.message, MESSAGE_CHARACTERS)
    if ended.reason in CANNOT_START:
        lower = ended.message.lower()
        wrong = any(words in lower for words in WRONG_IMAGE) or TOO_SMALL in lower
        what = f"its container could not be started{_on(pod)}: {one_line(ended.message) or ended.reason}"
        return Exit(Outcome.REFUSED if wrong else Outcome.INFRA, message=what)
    if ended.reason in LOST_TRACK:
        what = f"its node{_on(pod)} was started anew, or lost track of it: {one_line(ended.message) or ended.reason}"
        return Exit(Outcome.LOST, message=what)
    number = _signal(ended)
    if number is not None:
        # What a step died of, the agent tells. That it could not means that it was killed itself.
        what = f"its container was killed by signal {number}{_on(pod)}, and its agent with it"
        return Exit(Outcome.LOST, ended.exit_code, number, f"{what}: {said}" if said else what)
    return Exit(Outcome.EXITED, ended.exit_code, message=said)


def _another_failed(pod: PodObject) -> str:
    """Which of the others did, where the trial itself never began: one that the user's template adds."""
    for name, state in pod.states():
        if name != TRIAL and state.terminated is not None and state.terminated.exit_code:
            said = one_line(state.terminated.message)
            what = f"its container {name} failed with exit code {state.terminated.exit_code} before it began"
            return f"{what}: {said}" if said else what
    return "its pod failed without a reason"


def _signal(ended: Terminated) -> int | None:
    if ended.signal:
        return ended.signal
    number = ended.exit_code - KILLED
    return number if 0 < number <= HIGHEST_SIGNAL else None


def _because_asked_to_end(host: HostEnd, ended: Terminated) -> bool:
    """Whether a trial without a word of its own ended badly because its pod was to end, and not before."""
    told_s, finished_s = _asked_to_end_s(host), epoch_s(ended.finished_at)
    if told_s is None or finished_s is None:
        return ended.exit_code in (KILLED + 9, KILLED + 15)
    return ended.exit_code != 0 and finished_s >= told_s


def _asked_to_end_s(host: HostEnd) -> float | None:
    """When its pod was deleted, or marked for it, by the server's clock."""
    disruption = host.pod.condition("DisruptionTarget")
    marked_s = epoch_s(disruption.last_transition_time) if disruption is not None else None
    # A node that is done with a pod deletes it once more, without grace: the first time is when it was asked.
    deleted_s = host.deleted_s if host.deleted_s is not None else host.pod.deleted_s
    return min((one for one in (marked_s, deleted_s) if one is not None), default=None)


def _consequence(host: HostEnd, ended: Exit) -> bool:
    """Whether it may have been ended because of another that ended."""
    if ended.outcome is Outcome.CANCELLED:
        return True
    done_to_it = ended.outcome in (Outcome.INFRA, Outcome.TIMEOUT, Outcome.QUEUE)
    return done_to_it and _own_end(host) is None


# ---- words


def _on(pod: PodObject) -> str:
    return f" on {pod.spec.node_name}" if pod.spec.node_name else ""


def _node(pod: PodObject) -> str:
    return pod.spec.node_name or "(none)"


def _still_running(pod: PodObject) -> str:
    return f"its node {_node(pod)} does not answer: it may still be running there"


def _reason(reason: str, message: str) -> str:
    return ": ".join(filter(None, (one_line(reason, 100), one_line(message))))


def _plain_end(ended: Exit) -> str:
    return f"exit code {ended.code}" if ended.code is not None else ended.outcome.value
