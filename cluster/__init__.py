"""Real Kubernetes clusters on this machine, built from source, for tests and demos."""

from cluster.cluster import Cluster, clusters, down, up
from cluster.errors import ClusterError, Unavailable

__all__ = ["Cluster", "ClusterError", "Unavailable", "clusters", "down", "up"]
