"""The parts of a control plane: with which arguments each is started, and when it counts as ready."""

import json
from dataclasses import dataclass
from pathlib import Path

from cluster.credentials import SERVICE_NETWORK
from cluster.folder import Folder, Record, write_whole

# Far above what two cores can do, so that no client-side limit is what is measured.
QPS, BURST = 5000, 10000
WORKERS = 50
# Fake nodes have no heartbeat: only a cluster of real nodes alone can notice that one went silent.
SILENT_FAKE_S = 24 * 3600


@dataclass(frozen=True)
class Part:
    name: str
    argv: tuple[str, ...]
    port: int
    ready: str
    """The path that answers 200 on that port when it is ready."""


def etcd(folder: Folder, record: Record, kubernetes: Path) -> Part:
    client = f"https://127.0.0.1:{record.ports['etcd']}"
    peer = f"https://127.0.0.1:{record.ports['etcd-peer']}"
    flags = {
        "name": "one",
        "data-dir": folder.etcd,
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"one={peer}",
        "quota-backend-bytes": 8 << 30,
        "log-level": "warn",
        "unsafe-no-fsync": "true",  # a killed process loses nothing by it, only a machine without power
    }
    for prefix in ("", "peer-"):
        flags[f"{prefix}cert-file"] = folder.certificates / "etcd.crt"
        flags[f"{prefix}key-file"] = folder.certificates / "etcd.key"
        flags[f"{prefix}trusted-ca-file"] = folder.certificates / "ca.crt"
        flags[f"{prefix}client-cert-auth"] = "true"
    return _part("etcd", kubernetes, "etcd", flags, record.ports["etcd"], "/health")


def apiserver(folder: Folder, record: Record, kubernetes: Path, address: str) -> Part:
    certificates = folder.certificates
    policy = folder.settings / "audit.json"
    rule = {"level": "Metadata", "omitStages": ["RequestReceived"]}
    write_whole(policy, json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [rule]}))
    flags = {
        "etcd-servers": f"https://127.0.0.1:{record.ports['etcd']}",
        "etcd-cafile": certificates / "ca.crt",
        "etcd-certfile": certificates / "etcd.crt",
        "etcd-keyfile": certificates / "etcd.key",
        "bind-address": address,
        "advertise-address": address,
        "secure-port": record.ports["api"],
        "cert-dir": certificates,
        "tls-cert-file": certificates / "apiserver.crt",
        "tls-private-key-file": certificates / "apiserver.key",
        "client-ca-file": certificates / "ca.crt",
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "allow-privileged": "true",
        "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
        "service-account-key-file": certificates / "service-accounts.pub",
        "service-account-signing-key-file": certificates / "service-accounts.key",
        "service-cluster-ip-range": SERVICE_NETWORK,
        "kubelet-client-certificate": certificates / "apiserver-kubelet.crt",
        "kubelet-client-key": certificates / "apiserver-kubelet.key",
        "kubelet-certificate-authority": certificates / "ca.crt",
        "kubelet-preferred-address-types": "InternalIP",
        # The service `kubernetes` can lead to an address that pods reach, never to loopback.
        "endpoint-reconciler-type": "lease" if record.options.kubelet else "none",
        "requestheader-client-ca-file": certificates / "ca.crt",
        "requestheader-allowed-names": "front-proxy",
        "requestheader-username-headers": "X-Remote-User",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "max-requests-inflight": 4000,
        "max-mutating-requests-inflight": 2000,
        "audit-policy-file": policy,
        "audit-log-path": folder.audit_log,
        "audit-log-maxsize": 1024,
        "audit-log-maxbackup": 1,
        "profiling": "false",
    }
    return _part("apiserver", kubernetes, "kube-apiserver", flags, record.ports["api"], "/readyz")


def controllers(folder: Folder, record: Record, kubernetes: Path) -> Part:
    certificates, kubeconfig = folder.certificates, folder.kubeconfigs / "controllers"
    flags = {
        **_served(folder, record.ports["controllers"], "controllers"),
        "kubeconfig": kubeconfig,
        "leader-elect": "false",
        "controllers": "*,-node-ipam-controller,-ttl-controller",
        "use-service-account-credentials": "true",
        "service-account-private-key-file": certificates / "service-accounts.key",
        "root-ca-file": certificates / "ca.crt",
        "cluster-signing-cert-file": certificates / "ca.crt",
        "cluster-signing-key-file": certificates / "ca.key",
        "kube-api-qps": QPS,
        "kube-api-burst": BURST,
        "concurrent-job-syncs": WORKERS,
        "concurrent-gc-syncs": WORKERS,
        "concurrent-namespace-syncs": WORKERS,
        "resource-quota-sync-period": "10s",  # a quota of a kind that was just defined counts after a sync
        "node-monitor-period": "2s",
        "node-monitor-grace-period": _silent_after(record),
        "profiling": "false",
    }
    return _part("controllers", kubernetes, "kube-controller-manager", flags, record.ports["controllers"], "/healthz")


def scheduler(folder: Folder, record: Record, kubernetes: Path) -> Part:
    settings = folder.settings / "scheduler.json"
    connection = {"kubeconfig": str(folder.kubeconfigs / "scheduler"), "qps": QPS, "burst": BURST}
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": connection,
    }
    write_whole(settings, json.dumps(config))
    flags = {**_served(folder, record.ports["scheduler"], "scheduler"), "config": settings}
    return _part("scheduler", kubernetes, "kube-scheduler", flags, record.ports["scheduler"], "/healthz")


def _silent_after(record: Record) -> str:
    options = record.options
    return f"{options.silent_s if options.kubelet and not options.fake_nodes else SILENT_FAKE_S}s"


def _served(folder: Folder, port: int, name: str) -> dict[str, object]:
    """Who may ask such a part for its metrics is decided by the API server."""
    kubeconfig = folder.kubeconfigs / name
    return {
        "bind-address": "127.0.0.1",
        "secure-port": port,
        "tls-cert-file": folder.certificates / f"{name}.crt",
        "tls-private-key-file": folder.certificates / f"{name}.key",
        "authentication-kubeconfig": kubeconfig,
        "authorization-kubeconfig": kubeconfig,
    }


def _part(name: str, binary: Path, command: str, flags: dict[str, object], port: int, ready: str) -> Part:
    words = (f"--{flag}={value}" for flag, value in flags.items())
    return Part(name, (str(binary), command, *words), port, ready)
