"""The graph of devices: their types and memory, and the links between them."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from rota.core.errors import RotaError, did_you_mean

MOST_DEVICES = 4096
MOST_LINKED = 1024
"""Devices of which each pair gets a link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphDevice:
    """One device: its type, which selects the operators' times, and its memory (None: unlimited)."""

    name: str
    type: str
    memory_bytes: float | None = None
    levels: tuple[tuple[float, float], ...] = ()
    """Speeds that it can run at, as multiples of its times' speed, each with its power in watts."""
    sending_watts: float = 0.0

    def __post_init__(self) -> None:
        for speed, watts in self.levels:
            if not (speed > 0 and watts >= 0 and math.isfinite(speed + watts)):
                raise RotaError(f"device {self.name!r}: level {speed:g} at {watts:g} W; speed above 0, power 0 or more")
        if self.memory_bytes is not None and self.memory_bytes <= 0:
            raise RotaError(f"device {self.name!r}: memory of {self.memory_bytes} bytes; it must be more than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLink:
    """A connection in both directions; links with one `medium` share it, and their transfers are serialised."""

    source: str
    target: str
    bytes_per_ms: float
    latency_ms: float = 0.0
    medium: str | None = None

    def __post_init__(self) -> None:
        if self.source == self.target:
            raise RotaError(f"link from device {self.source!r} to itself; name two devices, or remove it")
        if not (math.isfinite(self.bytes_per_ms) and self.bytes_per_ms > 0):
            raise RotaError(f"link {self.source}-{self.target}: bandwidth must be more than 0")
        if not (math.isfinite(self.latency_ms) and self.latency_ms >= 0):
            raise RotaError(
                f"link {self.source}-{self.target}: latency of {self.latency_ms:g} ms; it must be 0 or more"
            )

    def time_ms(self, count_bytes: float) -> float:
        """How long a transfer takes that has the link to itself."""
        return self.latency_ms + count_bytes / self.bytes_per_ms


@dataclass(frozen=True, kw_only=True)
class DeviceGraph:
    """Devices and links. Without any links, transfers cost what the operators' `transfer_ms` say."""

    devices: tuple[GraphDevice, ...]
    links: tuple[DeviceLink, ...] = ()

    def __post_init__(self) -> None:
        if not self.devices:
            raise RotaError("there are no devices; give at least one")
        refuse_many_devices(len(self.devices))
        repeated = [name for name, count in Counter(device.name for device in self.devices).items() if count > 1]
        if repeated:
            raise RotaError(f"device {repeated[0]!r} is there twice; names must differ")
        for link in self.links:
            for end in (link.source, link.target):
                if end not in self.numbers:
                    raise RotaError(f"link to unknown device {end!r}; {did_you_mean(end, self.numbers)}")

    def __len__(self) -> int:
        return len(self.devices)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Position of each device by its name."""
        return {device.name: number for number, device in enumerate(self.devices)}

    @cached_property
    def _links(self) -> dict[tuple[int, int], DeviceLink]:
        found: dict[tuple[int, int], DeviceLink] = {}
        for link in self.links:
            ends = (self.numbers[link.source], self.numbers[link.target])
            for pair in (ends, ends[::-1]):
                if pair not in found or found[pair].bytes_per_ms < link.bytes_per_ms:
                    found[pair] = link
        return found

    def link(self, source: int, target: int) -> DeviceLink:
        """The link between two devices; without one it is the user's mistake."""
        found = self._links.get((source, target))
        if found is None:
            names = self.devices[source].name, self.devices[target].name
            raise RotaError(f"no link between {names[0]!r} and {names[1]!r}; add one to `links`")
        return found

    def of_type(self, device_type: str) -> list[int]:
        """Numbers of the devices of a type."""
        return [number for number, device in enumerate(self.devices) if device.type == device_type]

    @cached_property
    def types(self) -> tuple[str, ...]:
        """The device types, in the order in which they first occur."""
        return tuple(dict.fromkeys(device.type for device in self.devices))


def refuse_many_devices(count: int, most: int = MOST_DEVICES) -> None:
    """Raise where there are more devices than a plan inside one job can use; ask before making them."""
    if count > most:
        raise RotaError(f"{count} devices; a plan takes at most {most}, give fewer")


def fully_connected(
    device_type: str,
    count: int,
    *,
    memory_bytes: float | None = None,
    bytes_per_ms: float = 25e6,
    latency_ms: float = 0.0,
    per_node: int | None = None,
    between_bytes_per_ms: float = 1e6,
    between_latency_ms: float = 0.0,
) -> DeviceGraph:
    """Equal devices, each pair linked; pairs on different nodes share the slower links of the two nodes."""
    refuse_many_devices(count, MOST_LINKED)
    per_node = per_node or count
    devices = tuple(
        GraphDevice(name=f"{device_type}-{number}", type=device_type, memory_bytes=memory_bytes)
        for number in range(count)
    )
    links = []
    for first in range(count):
        for second in range(first + 1, count):
            nodes = first // per_node, second // per_node
            is_near = nodes[0] == nodes[1]
            links.append(
                DeviceLink(
                    source=devices[first].name,
                    target=devices[second].name,
                    bytes_per_ms=bytes_per_ms if is_near else between_bytes_per_ms,
                    latency_ms=latency_ms if is_near else between_latency_ms,
                    medium=None if is_near else f"network {nodes[0]}-{nodes[1]}",
                )
            )
    return DeviceGraph(devices=devices, links=tuple(links))
