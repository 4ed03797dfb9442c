"""Which of the jobs on a cluster are alive, by what its server says of them."""

from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from kubernetes.api_stub import Request, Stub, Wire, serving
from seatrial.targets.kubernetes import kind, names

KUBECONFIG = """
{{current-context: c, clusters: [{{name: c, cluster: {{server: "{server}"}}}}], users: [{{name: u, user: {{}}}}],
  contexts: [{{name: c, context: {{cluster: c, user: u, namespace: ns}}}}]}}
"""
BEGUN = {"startTime": "2026-01-01T00:00:00Z"}
TRIAL_ENDED = {"containerStatuses": [{"name": "trial", "state": {"terminated": {"exitCode": 0}}}]}


@pytest.mark.parametrize(
    ("root", "pods", "alive"),
    [
        ({"spec": {"suspend": False}}, [], True),
        ({"spec": {"suspend": True}}, [], False),
        ({"spec": {"suspend": False}, "status": {**BEGUN, "active": 1}}, [], True),
        ({"spec": {"suspend": False}, "status": {**BEGUN, "active": 1}}, [{"status": TRIAL_ENDED}], False),
        ({"spec": {"suspend": False}, "status": BEGUN}, [], False),
    ],
    ids=["its controller has not come to it yet", "not released", "runs", "only its keeper runs", "over"],
)
async def test_a_job_is_alive_from_its_release_to_the_end_of_its_trial(
    tmp_path: Path, root: dict[str, Any], pods: list[dict[str, Any]], alive: bool
) -> None:
    def labelled(one: dict[str, Any], part: str) -> dict[str, Any]:
        metadata = {"name": "job", "uid": f"uid-{part}", "creationTimestamp": "2026-01-01T00:00:00Z"}
        return {"metadata": {**metadata, "labels": names.job_labels("run", "job", "69b56f04", 1, part)}, **one}

    async def answer(request: Request, wire: Wire) -> None:
        if request.path == "/version":
            return wire.json(200, {"gitVersion": "v1"}, Date=formatdate(usegmt=True))
        found = [labelled(one, "pod") for one in pods] if request.path.endswith("/pods") else []
        if "seatrial/part=job" in request.query["labelSelector"]:
            found = [labelled(root, "job")]
        return wire.json(200, {"metadata": {"resourceVersion": "1"}, "items": found})

    async with serving(Stub(override=answer)) as stub:
        (tmp_path / "kubeconfig").write_text(KUBECONFIG.format(server=stub.url))
        target = kind.open("cluster", kind.options(kubeconfig=tmp_path / "kubeconfig"))
        await target.open()
        try:
            assert [one.alive for one in await target.list()] == [alive]
        finally:
            await target.close()
