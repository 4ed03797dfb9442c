"""How a job ended and why, from the observed state of its pods. Pure.

1. The trial's own termination message counts if it exists and agrees with its exit code.
2. A trial that was asked to stop reports "cancelled" and cannot know by whom. If not by us, the state of its pod tells
   (evicted, preempted, drained, deleted, over its deadline).
3. Of several hosts the first that failed decides; hosts that were stopped because of it do not.
"""

from collections.abc import Sequence

import msgspec

from seatrial.job import Exit, Outcome
from seatrial.targets.kubernetes.names import TRIAL
from seatrial.targets.kubernetes.watch.jobs import TrackedPod
from seatrial.targets.kubernetes.watch.objects import (
    CANNOT_START,
    KILLED,
    ObjectCondition,
    PodObject,
    RootObject,
    Terminated,
    clean_line,
    clean_text,
    epoch_s,
    read_termination_message,
)
from seatrial.targets.kubernetes.watch.waiting import MESSAGES, only_user_can_fix

_MESSAGE_CHARACTERS = 1000
HIGHEST_SIGNAL = 64
OUT_OF_MEMORY = "OOMKilled"
LOST_TRACK = frozenset({"ContainerStatusUnknown", "Unknown"})  # the node restarted, or its runtime lost the container
DEADLINE = "DeadlineExceeded"
DISRUPTION = "DisruptionTarget"


class EndContext(msgspec.Struct, frozen=True):
    """State other than that of the pods. `cancelled`: by us."""

    root: RootObject | None = None
    root_name: str = ""
    root_kind: str = "Job"
    root_gone: bool = False
    namespace: str = ""
    namespace_going: bool = False
    cancelled: bool = False
    alone: bool = False  # the job has one pod, so a failure of its root is that of the pod

    @property
    def failed(self) -> ObjectCondition | None:
        return self.root.failed if self.root is not None else None


def depends_on_context(host: TrackedPod) -> bool:
    """Whether the exit may depend on the state of its root and namespace, not only on its message."""
    own = _own_end(host)
    silent = own is None or own.outcome is Outcome.CANCELLED
    return silent and (host.gone or host.pod.being_deleted)


def job_exit(hosts: Sequence[TrackedPod], context: EndContext) -> Exit:
    """Exit of a job whose hosts have all ended, or that will never have any."""
    if not hosts:
        return _without_pods(context)
    ends = [(host, host_exit(host, context)) for host in hosts]
    failures = [(host, ended) for host, ended in ends if is_failure(ended)]
    if not failures:
        return ends[0][1]
    deadline = _deadline(context, any(host.pod.started for host in hosts))
    if deadline is not None and all(_consequence(host, ended) for host, ended in failures):
        return deadline
    host, ended = min(failures, key=lambda one: (_consequence(*one), one[0].finished_s, one[0].pod.number))
    if len(hosts) == 1:
        return ended
    plain = f"exit code {ended.code}" if ended.code is not None else ended.outcome.value
    message = clean_text(f"host {host.number}{_on(host.pod)}: {ended.message or plain}", _MESSAGE_CHARACTERS)
    return msgspec.structs.replace(ended, message=message)


def host_exit(host: TrackedPod, context: EndContext) -> Exit:
    """Exit of one host."""
    pod = host.pod
    own = _own_end(host)
    if own is not None and own.outcome is not Outcome.CANCELLED:
        return own
    still_running = f"node {_node(pod)} does not answer, so the job may still be running"
    if context.cancelled:
        return Exit(Outcome.CANCELLED, message=still_running if host.silent else own.message if own else "")
    if host.silent:
        return Exit(Outcome.LOST, message=f"{_why_deleted(host, context)}; {still_running}")
    ended = pod.trial.terminated
    if ended is not None and ended.reason == OUT_OF_MEMORY and ended.exit_code:
        return Exit(Outcome.MEMORY, ended.exit_code, _signal(ended), f"the job exceeded its memory limit{_on(pod)}")
    taken = _taken_away(host, context)
    if taken is not None and (own is not None or ended is None or _because_asked_to_end(host, ended)):
        return taken
    if own is not None:
        return own
    if ended is not None:
        return _from_state(ended, pod)
    why = _reason(pod.status.reason, pod.status.message) or _other_container_failed(pod)
    return Exit(Outcome.INFRA, message=f"{why}{_on(pod)}")


def is_failure(ended: Exit) -> bool:
    return ended.outcome is not Outcome.EXITED or bool(ended.code)


def _own_end(host: TrackedPod) -> Exit | None:
    ended = host.pod.trial.terminated
    message = read_termination_message(ended)
    if ended is None or message is None:
        return None
    code = ended.exit_code if message.code is None and message.outcome is Outcome.EXITED else message.code
    return Exit(message.outcome, code, message=clean_text(message.message, _MESSAGE_CHARACTERS))


# ---- disruptions


def _taken_away(host: TrackedPod, context: EndContext) -> Exit | None:
    pod = host.pod
    disruption = pod.status.condition(DISRUPTION)
    if pod.status.reason == DEADLINE:
        return _out_of_time(pod.started)
    if disruption is not None:
        return Exit(Outcome.EVICTED, message=_disrupted(disruption, pod))
    if pod.status.reason == "Evicted":
        return Exit(Outcome.EVICTED, message=f"evicted by node {_node(pod)}: {clean_line(pod.status.message)}")
    if not host.gone and not pod.being_deleted:
        return None
    deadline = _deadline(context, pod.started)
    if deadline is not None:
        return deadline
    if context.root is not None and context.root.spec.suspend and not context.root_gone:
        return Exit(
            Outcome.EVICTED, message=f"the {context.root_kind} was suspended (not by Seatrial) while it ran{_on(pod)}"
        )
    return Exit(Outcome.INFRA, message=_why_deleted(host, context))


def _disrupted(disruption: ObjectCondition, pod: PodObject) -> str:
    node = _node(pod)
    known = MESSAGES["disruptions"].get(disruption.reason)
    what = (known or f"{clean_line(disruption.reason, 100)} on {{}}").format(node)
    by_node = disruption.reason == "TerminationByKubelet"
    detail = (clean_line(pod.status.message) if by_node else "") or clean_line(disruption.message)
    return f"{what}: {detail}" if detail else what


def _why_deleted(host: TrackedPod, context: EndContext) -> str:
    pod, failure = host.pod, context.failed
    if context.namespace_going:
        return _namespace_deleted(context)
    disruption = pod.status.condition(DISRUPTION)
    if disruption is not None:
        return _disrupted(disruption, pod)
    if context.root_gone:
        return _root_deleted(context, f"while it ran{_on(pod)}" if pod.spec.node_name else "while it waited")
    if failure is not None and not (context.alone and failure.reason == "BackoffLimitExceeded"):
        return f"stopped because the {context.root_kind} failed: {_reason(failure.reason, failure.message)}"
    return f"pod {pod.metadata.name}{_on(pod)} was deleted by someone else"


def _root_deleted(context: EndContext, when: str) -> str:
    return f"{context.root_kind} {context.root_name} was deleted by someone else {when}"


def _namespace_deleted(context: EndContext) -> str:
    return f"the namespace {context.namespace} is being deleted"


def _deadline(context: EndContext, started: bool) -> Exit | None:
    failure = context.failed
    if failure is None or DEADLINE.lower() not in f"{failure.reason} {failure.message}".replace(" ", "").lower():
        return None
    return _out_of_time(started)


def _out_of_time(started: bool) -> Exit:
    text, fix = "the job exceeded its deadline on the cluster", "or, if it is not set, the target's `deadline`"
    if started:
        return Exit(Outcome.TIMEOUT, message=f"{text}; raise `timeout.run` {fix}")
    return Exit(Outcome.QUEUE, message=f"{text} before it started; raise `timeout.queue` {fix}")


def _without_pods(context: EndContext) -> Exit:
    if context.cancelled:
        return Exit(Outcome.CANCELLED)
    if context.namespace_going:
        return Exit(Outcome.INFRA, message=_namespace_deleted(context))
    if context.root_gone or context.root is None:
        return Exit(Outcome.INFRA, message=_root_deleted(context, "before it ran"))
    if context.root.completed is not None:
        return Exit(Outcome.EXITED, 0, message="the job completed, but its pods no longer exist")
    failure = context.failed
    why = f": {_reason(failure.reason, failure.message)}" if failure is not None else ""
    lost = Exit(Outcome.LOST, message=f"the job's pods no longer exist, so how it ended is unknown{why}")
    return _deadline(context, started=False) or lost


# ---- container state


def _from_state(ended: Terminated, pod: PodObject) -> Exit:
    message, detail = clean_text(ended.message, _MESSAGE_CHARACTERS), clean_line(ended.message) or ended.reason
    if ended.reason in CANNOT_START:
        outcome = Outcome.REFUSED if only_user_can_fix("start_error", ended.message) else Outcome.INFRA
        return Exit(outcome, message=f"the container could not be started{_on(pod)}: {detail}")
    if ended.reason in LOST_TRACK:
        return Exit(Outcome.LOST, message=f"node {_node(pod)} restarted or lost track of the container: {detail}")
    number = _signal(ended)
    if number is None:
        return Exit(Outcome.EXITED, ended.exit_code, message=message)
    # The agent reports how a step was killed; no report means that the agent itself was killed.
    what = f"the container and its agent were killed by signal {number}{_on(pod)}"
    return Exit(Outcome.LOST, ended.exit_code, number, f"{what}: {message}" if message else what)


def _other_container_failed(pod: PodObject) -> str:
    """Message for a pod whose trial never began: another container failed, such as one of the user's template."""
    for name, state in pod.states():
        if name != TRIAL and state.terminated is not None and state.terminated.exit_code:
            what = f"container {name} failed with exit code {state.terminated.exit_code} before the job started"
            message = clean_line(state.terminated.message)
            return f"{what}: {message}" if message else what
    return "the pod failed without a reason"


def _signal(ended: Terminated) -> int | None:
    number = ended.exit_code - KILLED
    return ended.signal or (number if 0 < number <= HIGHEST_SIGNAL else None)


def _because_asked_to_end(host: TrackedPod, ended: Terminated) -> bool:
    """Whether a trial without a message failed because its pod was asked to stop, and not before."""
    # A node deletes a finished pod a second time, without grace: the first time is the request to stop.
    asked = [one for one in (host.pod.transition_s(DISRUPTION), host.deleted_s) if one is not None]
    asked_s, finished_s = min(asked, default=None), epoch_s(ended.finished_at)
    if asked_s is None or finished_s is None:
        return ended.exit_code in (KILLED + 9, KILLED + 15)
    return ended.exit_code != 0 and finished_s >= asked_s


def _consequence(host: TrackedPod, ended: Exit) -> bool:
    """Whether this host may have been stopped because another one ended."""
    if ended.outcome is Outcome.CANCELLED:
        return True
    done_to_it = ended.outcome in (Outcome.INFRA, Outcome.TIMEOUT, Outcome.QUEUE)
    return done_to_it and _own_end(host) is None


# ---- text


def _on(pod: PodObject) -> str:
    return f" on {pod.spec.node_name}" if pod.spec.node_name else ""


def _node(pod: PodObject) -> str:
    return pod.spec.node_name or "(none)"


def _reason(reason: str, message: str) -> str:
    return ": ".join(filter(None, (clean_line(reason, 100), clean_line(message))))
