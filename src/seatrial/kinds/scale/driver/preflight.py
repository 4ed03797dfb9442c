"""Looks for limits outside the cluster's capacity before the first workload is created.

None of it is required: a limit that cannot be read is reported as not checked."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

import seatrial.kubernetes as k8s
from seatrial.http.http1 import RequestAttempt
from seatrial.job.metric import value_text
from seatrial.kinds.scale.driver.plan import BACKGROUND, CHURN, PlannedWorkload
from seatrial.kinds.scale.driver.watch import has_condition
from seatrial.kinds.scale.work import Limit

LIMIT_RANGES = k8s.Resource("", "v1", "LimitRange", "limitranges")
_ADMISSION, _FLOW = "admissionregistration.k8s.io", "flowcontrol.apiserver.k8s.io"
WEBHOOKS = (
    k8s.Resource(_ADMISSION, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", False),
    k8s.Resource(_ADMISSION, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", False),
)
LEVELS = k8s.Resource(_FLOW, "v1", "PriorityLevelConfiguration", "prioritylevelconfigurations", False)
_SELF_REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
GPU = "nvidia.com/gpu"
OWN_RATE = 1_500.0  # submissions per second of one process, with its other work
_PROBES = 5

_Labels = tuple[tuple[str, str], ...]


class Asked(msgspec.Struct, frozen=True):
    """The total request of a trial in one namespace."""

    workloads: Mapping[k8s.Resource, int]
    pods: int
    gpus: float
    requests: Mapping[str, float]  # cpu, memory, in base units
    on_nodes: Mapping[_Labels, tuple[int, float]] = {}  # pods and GPUs on nodes with these labels; () has all


async def limits_of(
    client: k8s.Kubernetes, asked: Mapping[str, Asked], rate: float | None, at_once: int, churn: bool
) -> tuple[list[Limit], list[k8s.Right]]:
    """Returns limits and missing permissions. `asked` is by namespace; `rate` is the highest offered rate."""
    kinds = {resource for one in asked.values() for resource in one.workloads}
    wanted = sorted({right for space in asked for kind in kinds for right in k8s.workload_rights(kind, space, churn)})
    found: list[Limit] = []
    try:
        answers = await asyncio.gather(*(client.can(right) for right in wanted))
    except k8s.KubernetesError as error:
        answers = [True] * len(wanted)
        found.append(_unknown("rights", error))
    missing = [right for right, allowed in zip(wanted, answers, strict=True) if not allowed]
    for what, asking in (
        ("quota", _quotas(client, asked)),
        ("limit range", _ranges(client, asked)),
        ("nodes", _nodes(client, asked)),
        ("webhook", _webhooks(client, kinds)),
        ("priority and fairness", _fairness(client, at_once)),
        ("client", _client(client, rate, at_once)),
    ):
        try:
            found += [Limit(what, text) for text in await asking]
        except k8s.KubernetesError as error:
            found.append(_unknown(what, error))
    return found, missing


def _unknown(what: str, error: k8s.KubernetesError) -> Limit:
    missing = error.missing if isinstance(error, k8s.Forbidden) else None
    why = f"missing permission to {missing.right}" if missing else str(error).partition("\n")[0]
    return Limit(what, f"not checked: {why}", known=False)


async def _all(client: k8s.Kubernetes, resource: k8s.Resource, **chosen: Any) -> list[k8s.Manifest]:
    return [msgspec.to_builtins(one) async for one in client.list(resource, _Whole, **chosen)]


class _Whole(k8s.Tree, frozen=True, gc=False):
    webhooks: Any = None


# ---- the namespace


async def _quotas(client: k8s.Kubernetes, asked: Mapping[str, Asked]) -> list[str]:
    return [
        text
        for namespace, one in asked.items()
        for quota in await _all(client, k8s.RESOURCE_QUOTAS, namespace=namespace)
        for text in quota_limits(f"quota {quota['metadata']['name']} in {namespace}", quota["status"] or {}, one)
    ]


def quota_limits(name: str, status: Mapping[str, Any], asked: Asked) -> list[str]:
    """Quotas that are too small for the request. Pure."""
    wanted = {"pods": asked.pods, "count/pods": asked.pods, f"requests.{GPU}": asked.gpus, **asked.requests}
    wanted |= {f"requests.{resource}": amount for resource, amount in asked.requests.items()}
    wanted |= {f"count/{one.title}": count for one, count in asked.workloads.items() if one != k8s.PODS}
    hard, used = status.get("hard") or {}, status.get("used") or {}
    limits = []
    for key in sorted(hard.keys() & wanted.keys()):
        free = _number(str(hard[key])) - _number(str(used.get(key, "0")))
        if wanted[key] > free:
            limits.append(f"{name} has {free:g} {key} left; {wanted[key]:g} requested")
    return limits


async def _ranges(client: k8s.Kubernetes, asked: Mapping[str, Asked]) -> list[str]:
    limits = []
    for namespace in asked:
        for one in await _all(client, LIMIT_RANGES, namespace=namespace):
            rules = ", ".join(
                f"{rule.get('type')} {field} {' '.join(f'{key}={value}' for key, value in sorted(amounts.items()))}"
                for rule in (one["spec"] or {}).get("limits") or []
                for field in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
                if (amounts := rule.get(field))
            )
            limits.append(f"LimitRange {one['metadata']['name']} in {namespace} may change or reject pods: {rules}")
    return limits


# ---- the cluster


async def _nodes(client: k8s.Kubernetes, asked: Mapping[str, Asked]) -> list[str]:
    nodes = await _all(client, k8s.NODES)
    every = [item for one in asked.values() for item in one.on_nodes.items()]
    limits = []
    for labels in sorted({labels for labels, _ in every}):
        pods, gpus = (sum(one[place] for own, one in every if own == labels) for place in (0, 1))
        limits += node_limits(nodes, int(pods), gpus, labels)
    return limits


def node_limits(nodes: Sequence[Mapping[str, Any]], pods: int, gpus: float, labels: _Labels = ()) -> list[str]:
    """Compares the request with the total capacity of schedulable nodes with these labels, ignoring current use.
    Pure."""
    nodes = [one for one in nodes if {*labels} <= ((one.get("metadata") or {}).get("labels") or {}).items()]
    those = " ".join(["nodes", *(f"with {key}={value}" for key, value in labels)])
    schedulable = [one for one in nodes if not (one["spec"] or {}).get("unschedulable")]
    ready = [one for one in schedulable if has_condition(one["status"], "Ready")]

    def offered(resource: str) -> float:
        return sum(_number(str(((one["status"] or {}).get("allocatable") or {}).get(resource, "0"))) for one in ready)

    limits = []
    if not ready:
        limits.append(f"none of {len(nodes)} {those} is ready and schedulable")
    if pods > offered("pods"):
        limits.append(f"{len(ready)} {those} have room for {offered('pods'):g} pods; {pods} requested")
    if gpus > offered(GPU):
        limits.append(f"{len(ready)} {those} have {offered(GPU):g} GPUs; {gpus:g} requested")
    return limits


async def _webhooks(client: k8s.Kubernetes, kinds: set[k8s.Resource]) -> list[str]:
    configs = [config for resource in WEBHOOKS for config in await _all(client, resource)]
    return webhook_limits([hook for config in configs for hook in config["webhooks"] or []], kinds | {k8s.PODS})


def webhook_limits(webhooks: Sequence[Mapping[str, Any]], kinds: set[k8s.Resource]) -> list[str]:
    """Webhooks that are called when an object of these kinds is created. Pure."""

    def matches(rule: Mapping[str, Any]) -> bool:
        operations, groups, plurals = ({*(rule.get(one) or [])} for one in ("operations", "apiGroups", "resources"))
        of_kinds = (groups & {"*", kind.group} and plurals & {"*", "*/*", kind.plural} for kind in kinds)
        return bool(operations & {"*", "CREATE"}) and any(of_kinds)

    called: dict[str, list[str]] = {}  # by what happens without an answer
    for hook in webhooks:
        if any(matches(rule) for rule in hook.get("rules") or []):
            fails = hook.get("failurePolicy", "Fail") == "Fail"
            then = "the request is rejected" if fails else "the webhook is ignored"
            until = f"without an answer within {int(hook.get('timeoutSeconds') or 10)} s, {then}"
            called.setdefault(until, []).append(str(hook.get("name", "")))
    limits = []
    for until, names in called.items():
        some = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
        hooks = f"webhook {some} is" if len(names) == 1 else f"{len(names)} webhooks ({some}) are"
        limits.append(f"{hooks} called for each workload; {until}")
    return limits


# ---- API server and client


async def _fairness(client: k8s.Kubernetes, at_once: int) -> list[str]:
    """Assumes the default flow schemas; those of the cluster may differ."""
    review = await client.create(_SELF_REVIEW, k8s.Tree)
    groups = {*((review.status or {}).get("userInfo") or {}).get("groups", [])}
    if "system:masters" in groups:
        return []
    level = "workload-low" if "system:serviceaccounts" in groups else "global-default"
    levels = {one["metadata"]["name"]: one["spec"] or {} for one in await _all(client, LEVELS)}
    return fairness_limits(levels, level, at_once)


def fairness_limits(levels: Mapping[str, Mapping[str, Any]], level: str, at_once: int) -> list[str]:
    limited = (levels.get(level) or {}).get("limited") or {}
    shares = limited.get("nominalConcurrencyShares")
    if shares is None:
        return []
    total = sum(int((one.get("limited") or {}).get("nominalConcurrencyShares") or 0) for one in levels.values())
    share = f"{shares} of {total} concurrency shares"
    return [f"requests use priority level {level} ({share}); up to {at_once} are sent at once"]


async def _client(client: k8s.Kubernetes, rate: float | None, at_once: int) -> list[str]:
    attempts: list[RequestAttempt] = []
    for _ in range(_PROBES):
        await client.version(attempts=attempts)
    took = [one.answered_s - one.sent_s for one in attempts if one.sent_s is not None and one.answered_s is not None]
    return client_limits(min(took, default=0.0), rate, at_once)


def client_limits(round_trip_s: float, rate: float | None, at_once: int) -> list[str]:
    if rate is None:
        return []
    limits = []
    if round_trip_s and at_once / round_trip_s < rate:
        most = f"{at_once / round_trip_s:,.0f}/s"
        trip = f"{at_once} concurrent requests with round trips of {value_text(round_trip_s, 's')}"
        limits.append(f"{trip} allow at most {most}; {rate:,.0f}/s offered")
    if rate > OWN_RATE:
        limits.append(f"one process makes about {OWN_RATE:,.0f} submissions per second; {rate:,.0f}/s offered")
    return limits


def asked_of(planned: Sequence[PlannedWorkload], resources: Mapping[str, Sequence[k8s.Resource]]) -> Asked:
    """The total request of these workloads at one time: churn replaces workloads, and background workloads need no
    node. `resources` are those of each class. Pure."""
    planned = [one for one in planned if one.phase != CHURN]
    workloads, requests, gpus = Counter[k8s.Resource](), Counter[str](), 0.0
    on_nodes: dict[_Labels, tuple[int, float]] = {}
    for (of, phase), count in Counter((one.of.name, one.phase) for one in planned).items():
        one = next(one.of for one in planned if one.of.name == of)
        for resource in resources[of]:
            workloads[resource] += count
        pod = _pod_spec([manifest.get("spec") for manifest in one.manifests])
        each_gpus, each = asked_for(pod, one.pods)
        gpus += count * each_gpus
        requests.update({resource: amount * count for resource, amount in each.items()})
        chosen = tuple(sorted((pod.get("nodeSelector") or {}).items()))
        for labels in {(), chosen} if phase != BACKGROUND else ():
            pods_before, gpus_before = on_nodes.get(labels, (0, 0.0))
            on_nodes[labels] = pods_before + count * one.pods, gpus_before + count * each_gpus
    return Asked(workloads, sum(one.of.pods for one in planned), gpus, requests, on_nodes)


def asked_for(pod: Mapping[str, Any], pods: int) -> tuple[float, dict[str, float]]:
    """GPUs, and CPU and memory, of one workload with this many such pods. Pure."""
    gpus, requests = 0.0, dict[str, float]()
    for container in pod.get("containers", ()):
        resources = container.get("resources") or {}
        wanted = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        gpus += _number(str(wanted.get(GPU, "0")))
        for name in ("cpu", "memory"):
            if name in wanted:
                requests[name] = requests.get(name, 0.0) + _number(str(wanted[name]))
    return gpus * pods, {name: amount * pods for name, amount in requests.items()}


def _pod_spec(spec: Any) -> k8s.Manifest:
    """The first spec with containers, at any depth; empty if there is none."""
    if isinstance(spec, dict) and isinstance(spec.get("containers"), list):
        return {**spec, "containers": [one for one in spec["containers"] if isinstance(one, dict)]}
    inner = spec.values() if isinstance(spec, dict) else spec if isinstance(spec, list) else ()
    return next(filter(None, map(_pod_spec, inner)), {})


def _number(text: str) -> float:
    """Returns 0 for an unparsable quantity: a superfluous warning does no harm."""
    return k8s.parse_quantity(text) or 0.0
