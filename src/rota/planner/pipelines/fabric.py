"""How fast groups of devices exchange data: nodes, links within and between them, and rings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from rota.planner.description.devices import DeviceGraph, DeviceLink

RING_GAIN = 3.0
"""How much faster rings use a network than one stream: DAPPLE's constants are 3 GB/s and 1 GB/s."""


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """Transfers between, and rings over, groups of devices by their numbers."""

    devices: DeviceGraph

    @cached_property
    def node_of(self) -> tuple[int, ...]:
        """Devices that links without a medium connect are on one node."""
        root = list(range(len(self.devices)))

        def find(number: int) -> int:
            while root[number] != number:
                number = root[number]
            return number

        for link in self.devices.links:
            if link.medium is None:
                first, second = (find(self.devices.numbers[end]) for end in (link.source, link.target))
                root[max(first, second)] = min(first, second)
        names = {each: place for place, each in enumerate(dict.fromkeys(find(n) for n in range(len(root))))}
        return tuple(names[find(number)] for number in range(len(root)))

    @cached_property
    def nodes(self) -> tuple[tuple[int, ...], ...]:
        """Device numbers by node."""
        found: dict[int, list[int]] = {}
        for number, node in enumerate(self.node_of):
            found.setdefault(node, []).append(number)
        return tuple(tuple(found[node]) for node in sorted(found))

    def transfer_ms(self, sources: Sequence[int], targets: Sequence[int], count_bytes: float) -> float:
        """Time to hand one micro-batch's output from one group to the next.

        Within a node each pair has its link. Between nodes the nodes' networks limit: as many streams run at once as
        the side with fewer nodes has nodes, and only what leaves its node counts.
        """
        if not self.devices.links or not count_bytes:
            return 0.0
        target_nodes = {self.node_of[number] for number in targets}
        source_nodes = {self.node_of[number] for number in sources}
        away = [number for number in sources if {self.node_of[number]} != target_nodes]
        if not away:
            return self._slowest(sources[:1], targets[:1]).time_ms(count_bytes)
        lanes = min(len(source_nodes), len(target_nodes))
        link = self._slowest(away, targets)
        return link.latency_ms + count_bytes * len(away) / len(sources) / (link.bytes_per_ms * lanes)

    def all_reduce_ms(self, group: Sequence[int], count_bytes: float) -> float:
        """Time of a ring over a group: each device sends twice its share."""
        if len(group) < 2 or not self.devices.links or not count_bytes:
            return 0.0
        moved = 2 * (len(group) - 1) / len(group) * count_bytes
        link = self._slowest(group, group)
        if len({self.node_of[number] for number in group}) > 1:
            return moved / (link.bytes_per_ms * RING_GAIN)
        return moved / (link.bytes_per_ms * max(1, len(group) // 2))

    def _slowest(self, sources: Sequence[int], targets: Sequence[int]) -> DeviceLink:
        """The slowest link of a pair from one group and another; pairs of two nodes are alike."""
        pairs: dict[tuple[int, int], tuple[int, int]] = {}
        for source in sources:
            for target in targets:
                if source != target:
                    pairs.setdefault((self.node_of[source], self.node_of[target]), (source, target))
        return min((self.devices.link(*pair) for pair in pairs.values()), key=lambda link: link.bytes_per_ms)
