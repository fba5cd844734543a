"""GPUs that the manager may repartition (MIG): whole, or cut into as many instances of one profile as it has.

Each layout of such a GPU is a node of its own, of which one at a time can be used. So jobs may ask for, and wait for,
instances that do not exist yet, and nothing that runs is ever touched: only idle GPUs are repartitioned.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rota.core.errors import RotaError
from rota.core.model.cluster import Node
from rota.core.model.job import DeviceType, NodeId
from rota.drivers.local.gpu.mig import PROFILE_LABEL, NamedDevice, has_instances, instances_of, text_of, whole_gpu

PROGRAM = "nvidia-smi"
WHOLE_GPU = ""
"""The layout of a GPU that is not partitioned; the others are named by their profile."""
COMMAND_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MigPool:
    """The GPUs that may be repartitioned, and into what; none: the manager repartitions nothing."""

    gpus: tuple[int, ...] = ()
    profiles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MigProfile:
    """How many instances of a profile a GPU has at most, and the memory of each."""

    count: int
    memory_bytes: int


class MigLayouts:
    """The GPUs of a pool: their nodes, what they are now, and how they become something else."""

    def __init__(self, library: Any, host: Node, pool: MigPool, program: str = PROGRAM) -> None:
        self._library = library
        self._program = program
        self.gpus = pool.gpus
        self.host = host
        handles = [library.nvmlDeviceGetHandleByIndex(index) for index in range(library.nvmlDeviceGetCount())]
        for index in pool.gpus:
            if index >= len(handles):
                raise RotaError(f"gpu.mig.gpus: there is no GPU {index}; this machine has {len(handles)}")
        self._profiles = {index: _wanted(library, handles[index], index, pool.profiles) for index in pool.gpus}
        fixed = tuple(
            whole_gpu(library, handles[index], index) for index in range(len(handles)) if index not in pool.gpus
        )
        self.devices: dict[NodeId, tuple[NamedDevice, ...]] = {host.id: fixed}
        """The devices of each node by index; none of a layout that a GPU has not now."""
        sockets = host.sockets if sum(host.sockets) == len(fixed) else ()
        self.nodes = (replace(host, devices=len(fixed), sockets=sockets), *self._layout_nodes())
        for index in pool.gpus:
            self.look(index)

    def layouts(self, gpu: int) -> tuple[str, ...]:
        """Return what a GPU can be."""
        return (WHOLE_GPU, *self._profiles[gpu])

    def node_of(self, gpu: int, layout: str) -> NodeId:
        """Return the node that a layout of a GPU is."""
        return NodeId(f"{self.host.id}-gpu{gpu}" + (f"-{layout}" if layout else ""))

    def look(self, gpu: int) -> str | None:
        """Return which layout a GPU has now, by NVML; None if it is none of those that it may have."""
        handle = self._library.nvmlDeviceGetHandleByIndex(gpu)
        now: dict[str, tuple[NamedDevice, ...]] = {}
        if has_instances(self._library, handle):
            found = tuple(instances_of(self._library, handle, gpu))
            kinds = {each.profile for each in found}
            now = {kind: found for kind in kinds if len(kinds) == 1 and self._is_whole(gpu, kind, len(found))}
        else:
            now = {WHOLE_GPU: (whole_gpu(self._library, handle, gpu),)}
        for layout in self.layouts(gpu):
            self.devices[self.node_of(gpu, layout)] = now.get(layout, ())
        return next(iter(now), None)

    def change(self, gpu: int, layout: str) -> None:
        """Repartition an idle GPU; raise a `RotaError` with the program's words if that fails."""
        handle = self._library.nvmlDeviceGetHandleByIndex(gpu)
        if has_instances(self._library, handle):
            for option in ("-dci", "-dgi"):  # a GPU without any answers with an error
                self._run("mig", "-i", str(gpu), option, must=False)
        if has_instances(self._library, handle) is not bool(layout):
            self._run("-i", str(gpu), "-mig", str(int(bool(layout))))
            if has_instances(self._library, handle) is not bool(layout):
                raise RotaError(f"GPU {gpu} must be reset before its MIG mode changes; reset it, or reboot")
        if layout:
            wanted = ",".join([layout] * self._profiles[gpu][layout].count)
            self._run("mig", "-i", str(gpu), "-cgi", wanted, "-C")
        if self.look(gpu) != layout:
            raise RotaError(f"GPU {gpu} is not what was ordered: {layout or 'a whole GPU'}")

    def _is_whole(self, gpu: int, profile: str, count: int) -> bool:
        return profile in self._profiles[gpu] and self._profiles[gpu][profile].count == count

    def _layout_nodes(self) -> list[Node]:
        nodes = []
        for gpu in self.gpus:
            memory = whole_gpu(self._library, self._library.nvmlDeviceGetHandleByIndex(gpu), gpu).memory_bytes
            bare = Node(
                id=self.node_of(gpu, WHOLE_GPU),
                device_type=self.host.device_type,
                devices=1,
                device_memory_bytes=memory,
                rack=self.host.rack,
                domain=self.host.domain,
            )
            nodes.append(bare)
            nodes += [
                replace(
                    bare,
                    id=self.node_of(gpu, name),
                    device_type=DeviceType(f"{self.host.device_type}-{name}"),
                    devices=profile.count,
                    device_memory_bytes=profile.memory_bytes,
                    labels=((PROFILE_LABEL, name),),
                )
                for name, profile in self._profiles[gpu].items()
            ]
        return nodes

    def _run(self, *options: str, must: bool = True) -> None:
        command = [self._program, *options]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=COMMAND_S, stdin=subprocess.DEVNULL, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RotaError(f"{' '.join(command)}: {error}") from error
        if must and done.returncode:
            why = " ".join((done.stdout + done.stderr).split())[:300]
            raise RotaError(f"{' '.join(command)}: {why or f'exit code {done.returncode}'}")


def _wanted(library: Any, handle: Any, gpu: int, names: tuple[str, ...]) -> Mapping[str, MigProfile]:
    """Return the profiles of a GPU that were asked for; raise a `RotaError` if it has not all of them."""
    offered = _offered(library, handle)
    for name in names:
        if name not in offered:
            has = ", ".join(offered) or "none: it can't be partitioned"
            raise RotaError(f"gpu.mig.profiles: GPU {gpu} has no profile {name!r}; it has {has}")
    return {name: offered[name] for name in names}


def _offered(library: Any, handle: Any) -> dict[str, MigProfile]:
    found: dict[str, MigProfile] = {}
    for number in range(library.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            info = library.nvmlDeviceGetGpuInstanceProfileInfo(handle, number, 2)
        except library.NVMLError:  # this GPU has no such profile
            continue
        name = text_of(info.name).rpartition(" ")[2]
        found[name] = MigProfile(count=int(info.instanceCount), memory_bytes=int(info.memorySizeMB) << 20)
    return found
