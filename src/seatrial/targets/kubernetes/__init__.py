"""The Kubernetes target: jobs are pods that outlive their submitter and are found by label from anywhere."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seatrial.job import Job
    from seatrial.kubernetes import Manifest
    from seatrial.targets.kubernetes.options import KubernetesOptions
    from seatrial.targets.kubernetes.target import KubernetesTarget


class KubernetesKind:
    name = "kubernetes"
    one_machine = False

    def is_available(self) -> bool:
        """Whether kubectl would find a cluster."""
        if os.environ.get("KUBECONFIG") or os.environ.get("KUBERNETES_SERVICE_HOST"):
            return True
        return (Path.home() / ".kube/config").exists()

    @property
    def options(self) -> "type[KubernetesOptions]":
        from seatrial.targets.kubernetes.options import KubernetesOptions

        return KubernetesOptions

    def open(self, name: str, options: "KubernetesOptions") -> "KubernetesTarget":
        from seatrial.targets.kubernetes.target import KubernetesTarget

        return KubernetesTarget(name, options)

    def objects(self, options: "KubernetesOptions", job: "Job") -> "list[Manifest]":
        from seatrial.targets.kubernetes.submit import shown_objects

        return shown_objects(job, options)


kind = KubernetesKind()
