"""What the programs of a real node are told. In the node, /run, /var/lib and /var/log are its own: defaults hold."""

import json
from pathlib import Path

from cluster.credentials import NODE
from cluster.folder import Folder
from cluster.image import PAUSE
from cluster.network import Addresses

INSIDE = "/run/node"
"""Where the node sees its folder, however long the folder's own path is (a socket's path may have 107 characters)."""
KUBERNETES = "/run/programs/kubernetes"
SOCKET = "/run/containerd/containerd.sock"
_UNUSED_PLUGINS = [
    "io.containerd.snapshotter.v1.aufs",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.zfs",
    "io.containerd.internal.v1.tracing",
    "io.containerd.tracing.processor.v1.otlp",
]


def write(folder: Folder, addresses: Addresses, snapshotter: str, network_programs: Path) -> None:
    settings = folder.node / "settings"
    (settings / "network").mkdir(parents=True, exist_ok=True)
    _put(settings / "containerd.toml", _containerd(snapshotter, network_programs))
    _put(settings / "network" / "10-pods.conflist", json.dumps(_pod_network(addresses), indent=2))
    _put(settings / "kubelet.json", json.dumps(_kubelet(folder, addresses), indent=2))
    _put(settings / "proxy.json", json.dumps(_proxy(addresses), indent=2))


def _put(path: Path, text: str) -> None:
    """Only what changed: kube-proxy ends when its file is written, also with the same content."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def _containerd(snapshotter: str, network_programs: Path) -> str:
    """For containerd 1.6 and 1.7. Scores of the out-of-memory killer are only lowered where root may."""
    return f"""version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = {json.dumps(_UNUSED_PLUGINS)}
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{network_programs}"
    conf_dir = "{INSIDE}/settings/network"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
"""


def _pod_network(addresses: Addresses) -> dict[str, object]:
    pods = {
        "subnet": addresses.network,
        "rangeStart": addresses.first_pod,
        "rangeEnd": addresses.last_pod,
        "gateway": addresses.node,
    }
    bridge = {
        "type": "bridge",
        "bridge": "pods",
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": "/run/pod-addresses",
            "ranges": [[pods]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}


def _kubelet(folder: Folder, addresses: Addresses) -> dict[str, object]:
    certificates = f"{INSIDE}/certificates"
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": addresses.node,
        "healthzBindAddress": "127.0.0.1",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{certificates}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{certificates}/kubelet.crt",
        "tlsPrivateKeyFile": f"{certificates}/kubelet.key",
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{folder.control_group}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "resolvConf": "",
        "clusterDNS": [addresses.node],
        "clusterDomain": "cluster.local",
        "maxPods": 200,
        # The host's disk may be nearly full; images came without a registry and cannot come again.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        # A node that went silent is noticed in seconds, not after 40.
        "nodeStatusUpdateFrequency": "2s",
        "nodeStatusReportFrequency": "30s",
        "nodeLeaseDurationSeconds": 8,
        # A volume that holds more than it may is noticed in seconds, not after a minute.
        "volumeStatsAggPeriod": "5s",
        "kubeAPIQPS": 1000,
        "kubeAPIBurst": 2000,
        "eventRecordQPS": 0,
    }


def _proxy(addresses: Addresses) -> dict[str, object]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": f"{INSIDE}/kubeconfigs/proxy"},
        "hostnameOverride": NODE,
        "bindAddress": addresses.node,
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "mode": "iptables",
        # Pods share one bridge: an answer must come back through who changed the address of the question.
        "iptables": {"masqueradeAll": True, "minSyncPeriod": "100ms"},
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }
