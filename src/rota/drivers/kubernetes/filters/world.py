"""The pods on each node, bound or about to be, and what else the filters look at; every change can be undone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rota.drivers.kubernetes.devices.device_facts import DeviceBook
from rota.drivers.kubernetes.filters.facts import NodeFacts, PodFacts
from rota.drivers.kubernetes.filters.volume_facts import VolumeBook


class FilterState:
    """Facts about the cluster. `version` grows with every change that may matter to a filter."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeFacts] = {}
        self.namespaces: dict[str, Mapping[str, str]] = {}
        """Labels by namespace."""
        self.volumes = VolumeBook()
        self.devices = DeviceBook()
        self.version = 0
        self._node_by_pod: dict[str, str] = {}
        self._pods_by_node: dict[str, dict[str, PodFacts]] = {}
        self._guarding: dict[str, PodFacts] = {}
        """Pods with required anti-affinity, which keeps others away."""

    def put_node(self, node: NodeFacts) -> None:
        """Record the present form of a node."""
        if self.nodes.get(node.name) != node:
            self.nodes[node.name] = node
            self.version += 1

    def drop_node(self, name: str) -> None:
        """Forget a node; its pods stay until they are gone."""
        if self.nodes.pop(name, None) is not None:
            self.version += 1

    def put(self, pod: PodFacts, node: str) -> None:
        """Record that a pod is on a node, or about to be."""
        there = self._pods_by_node.setdefault(node, {})
        if there.get(pod.uid) == pod:
            return
        self.take(pod.uid)
        self._node_by_pod[pod.uid] = node
        self._pods_by_node.setdefault(node, {})[pod.uid] = pod
        if pod.needs.anti_affinity:
            self._guarding[pod.uid] = pod
        self.version += 1

    def take(self, uid: str) -> None:
        """Record that a pod is on no node."""
        node = self._node_by_pod.pop(uid, None)
        if node is None:
            return
        there = self._pods_by_node[node]
        del there[uid]
        if not there:
            del self._pods_by_node[node]
        self._guarding.pop(uid, None)
        self.version += 1

    def node_of(self, uid: str) -> str | None:
        """The node of a pod."""
        return self._node_by_pod.get(uid)

    def on(self, node: str) -> Iterable[PodFacts]:
        """The pods on a node."""
        return self._pods_by_node.get(node, {}).values()

    def placed(self) -> Iterator[tuple[PodFacts, NodeFacts]]:
        """All pods on nodes that are known."""
        for name, pods in self._pods_by_node.items():
            node = self.nodes.get(name)
            if node is not None:
                for pod in pods.values():
                    yield pod, node

    def guarding(self) -> Iterator[tuple[PodFacts, NodeFacts]]:
        """Pods with required anti-affinity, with their nodes."""
        for uid, pod in self._guarding.items():
            node = self.nodes.get(self._node_by_pod[uid])
            if node is not None:
                yield pod, node
