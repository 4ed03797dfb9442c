"""What a driver makes on a cluster for its run: objects of any kind, that carry the run's labels and go with it.

async with OwnedObjects(client, options, "nightly-1", "69b56f04", 1) as mine:
    await client.create(mine.own(manifest, resource), resource=resource)

1. While the block is open, the run counts as being worked on; when it ends, everything of this attempt goes, and
   nothing of another. Of a driver that was killed it goes with `seatrial reap`, or by itself after some days, as
   everything of a run does.
2. What owns and what is owned share a namespace: other namespaces, and kinds without one, are refused. An attempt in
   several has one of these in each; the one in the target's own names the others (`elsewhere`), and they go with it.
"""

import asyncio
import copy
from collections.abc import Mapping
from typing import Any, Unpack

from seatrial.job import Outcome
from seatrial.kubernetes import Chosen, Kubernetes, Resource
from seatrial.targets.kubernetes import names
from seatrial.targets.kubernetes.manifest.placement import marked, pod_metadata
from seatrial.targets.kubernetes.options import KubernetesOptions
from seatrial.targets.kubernetes.run_object import RunObject
from seatrial.targets.protocol import TargetError

WORKLOAD = "workload"  # the part of a run that these are
_DELETED_AT_ONCE = 500  # in one request: while a server deletes, it does little else


class OwnedObjects:
    def __init__(
        self,
        client: Kubernetes,
        options: KubernetesOptions,
        run: str,
        cell: str,
        attempt: int,
        elsewhere: tuple[str, ...] = (),
    ) -> None:
        self._namespace, self._options = client.access.namespace, options
        self._run = RunObject(client, options, run, of=f"{cell}-{attempt}")
        self._run.elsewhere = elsewhere
        own = {"cell": names.label_value(cell), "attempt": str(attempt)}
        self.labels = {**names.run_labels(run, WORKLOAD), names.CELL: own["cell"], names.ATTEMPT: own["attempt"]}
        # Of all that belongs to this attempt: another of the same run may be at work beside it.
        self.selector = names.selector(run=names.label_value(run), part=WORKLOAD, **own)
        self._owner: dict[str, Any] = {}

    async def __aenter__(self) -> "OwnedObjects":
        self._owner = await self._run.owner()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._run.close()

    @property
    def lost(self) -> "asyncio.Future[Exception]":
        """Done when this process cannot go on with the run."""
        return self._run.lost

    def own(self, manifest: Mapping[str, Any], resource: Resource) -> dict[str, Any]:
        """The manifest with the attempt's labels, also on the pods that it describes, and its owner."""
        what = f"{resource.kind} {(manifest.get('metadata') or {}).get('name', '')}".strip()
        if not resource.namespaced:
            raise TargetError(f"{what} is of the whole cluster: it cannot belong to a run", Outcome.REFUSED)
        made = copy.deepcopy(dict(manifest))
        metadata = made.setdefault("metadata", {})
        if metadata.setdefault("namespace", self._namespace) != self._namespace:
            problem = f"is in namespace {metadata['namespace']}, and its run in {self._namespace}"
            raise TargetError(f"{what} {problem}: it cannot belong to it", Outcome.REFUSED)
        metadata["ownerReferences"] = [*metadata.get("ownerReferences", []), self._owner]
        for one in (metadata, *pod_metadata(made.get("spec"))):
            one["labels"] = {**(one.get("labels") or {}), **self.labels}
        return marked(made, self._options)


async def delete_some(client: Kubernetes, resource: Resource, **chosen: Unpack[Chosen]) -> bool:
    """So many workloads as a server deletes well in one request; whether there are more."""
    await client.delete_all(resource, grace_s=0, most=_DELETED_AT_ONCE, **chosen)
    return await client.has_any(resource, **chosen)
