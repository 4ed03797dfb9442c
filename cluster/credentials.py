"""Certificates and kubeconfigs of a cluster: an authority of its own, and a name of its own for each part."""

import base64
import json
import subprocess
from pathlib import Path

from cluster.addons import ADDONS
from cluster.errors import ClusterError
from cluster.folder import Folder, Options, write_whole

NODE = "real-0"
SERVICE_NETWORK = "10.96.0.0/16"
SERVICE_API = "10.96.0.1"
_LOOPBACK = ["127.0.0.1", "localhost"]
_INSIDE = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"]
_MASTERS = "system:masters"


def write_certificates(folder: Folder, kubernetes: Path, api_address: str, node_address: str) -> None:
    """All of them, once: who has the cluster's kubeconfig keeps his rights when it is brought up again."""
    if (folder.certificates / "complete").exists():
        return
    wishes = [
        _wish("etcd", "etcd", hosts=_LOOPBACK),
        _wish("apiserver", "kube-apiserver", hosts=[*_LOOPBACK, *_INSIDE, SERVICE_API, api_address]),
        _wish("apiserver-kubelet", "kube-apiserver-kubelet", _MASTERS),
        _wish("admin", "admin", _MASTERS),
        _wish("controllers", "system:kube-controller-manager", hosts=_LOOPBACK),
        _wish("scheduler", "system:kube-scheduler", hosts=_LOOPBACK),
        _wish("kwok", "kwok", _MASTERS, hosts=_LOOPBACK),
        _wish("proxy", "system:kube-proxy"),
        # Each is the service account that its own manifests give rights to.
        *(
            _wish(one.name, f"system:serviceaccount:{':'.join(one.account)}", hosts=_LOOPBACK)
            for one in ADDONS.values()
        ),
    ]
    if node_address:
        wishes.append(_wish("kubelet", f"system:node:{NODE}", "system:nodes", [node_address, NODE]))
    done = subprocess.run(
        [kubernetes, "certificates", folder.certificates], input=json.dumps(wishes), capture_output=True, text=True
    )
    if done.returncode != 0:
        raise ClusterError(f"the certificates in {folder.certificates} could not be made: {done.stderr.strip()}")
    write_whole(folder.certificates / "complete", "")


def write_kubeconfigs(folder: Folder, url: str, options: Options) -> None:
    """The user's, whole in one file, and one for each part."""
    write_whole(folder.kubeconfig, _kubeconfig(folder, url, "admin"))
    of_node = ("proxy", "kubelet") if options.kubelet else ()
    for user in ("controllers", "scheduler", "kwok", *of_node, *options.addons):
        write_whole(folder.kubeconfigs / user, _kubeconfig(folder, url, user))


def _wish(name: str, common_name: str, organization: str = "", hosts: list[str] | None = None) -> dict[str, object]:
    organizations = [organization] if organization else []
    return {"name": name, "common_name": common_name, "organizations": organizations, "hosts": hosts or []}


def _kubeconfig(folder: Folder, url: str, user: str) -> str:
    def content(file: str) -> str:
        return base64.b64encode((folder.certificates / file).read_bytes()).decode()

    context = f"seatrial-{folder.name}"
    server = {"server": url, "certificate-authority-data": content("ca.crt")}
    keys = {"client-certificate-data": content(f"{user}.crt"), "client-key-data": content(f"{user}.key")}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": context,
        "clusters": [{"name": context, "cluster": server}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": f"{context}-{user}"}}],
        "users": [{"name": f"{context}-{user}", "user": keys}],
    }
    return json.dumps(config, indent=2) + "\n"  # JSON is YAML
