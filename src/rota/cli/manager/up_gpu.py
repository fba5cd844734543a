"""The settings of GPUs as the local driver takes them, and the library by which it sees them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rota.core.errors import RotaError

if TYPE_CHECKING:
    from pathlib import Path

    from rota.core.model.cluster import Cluster
    from rota.drivers.local.gpu.mig import DevicesByNode
    from rota.drivers.local.gpu.mps import MpsDaemons
    from rota.drivers.local.gpu.settings import GpuSettings
    from rota.drivers.local.settings import Settings
    from rota.files.up_file import UpFile


def with_gpus(tasks: Settings, settings: UpFile, cluster: Cluster) -> Settings:
    """Return how tasks are run, with all that is about the GPUs of this machine; nothing for emulated devices."""
    from rota.drivers.local.gpu.abilities import gpu_abilities
    from rota.drivers.local.gpu.topology import GpuTopology
    from rota.drivers.local.machine import topology

    is_real, nvml = settings.emulate is None, settings.gpu.nvml
    devices = devices_by_node(settings, cluster)
    suspends = is_real and settings.gpu_suspend == "auto" and not devices
    return replace(
        tasks,
        nvml=library_folder(settings),
        gpu_settings=gpu_settings(settings),
        mps=mps_daemons(settings, tasks.home),
        devices=devices,
        topology=topology(None if nvml is None else str(nvml)) if is_real else GpuTopology(),
        gpu=gpu_abilities() if suspends else None,
    )


def gpu_settings(settings: UpFile) -> GpuSettings:
    """Return how GPUs are watched, limited and shared."""
    from rota.drivers.local.gpu.settings import EnergyRates, GpuSettings, IdleAction, IdleRule, MpsUse

    part = settings.gpu
    return GpuSettings(
        memory_grace_s=part.memory_grace if part.memory_limit == "end" else None,
        every_s=part.sample,
        energy=EnergyRates(price_per_kwh=part.energy_price, currency=part.currency, carbon_g_per_kwh=part.carbon),
        idle=IdleRule(
            below_percent=part.idle.below,
            for_s=part.idle.for_,
            grace_s=part.idle.after,
            action=IdleAction(part.idle.then),
        ),
        mps=MpsUse(part.mps),
        bound=part.bound,
    )


def library_folder(settings: UpFile) -> str | None:
    """Return where `pynvml` lies; None where the devices of this manager are no GPUs."""
    from rota.drivers.local.machine import nvml_folder

    named = settings.gpu.nvml
    if named is None:
        return None if settings.emulate is not None else nvml_folder()
    if not (named / "pynvml.py").is_file():
        raise RotaError(f"gpu.nvml: there is no pynvml.py in {named}; name the folder that holds it, or leave it out")
    return str(named)


def mps_daemons(settings: UpFile, home: Path) -> MpsDaemons | None:
    """Return the daemons through which packed jobs share GPUs; None if the settings do not ask for that."""
    from rota.drivers.local.gpu.mps import PROGRAM, MpsDaemons
    from rota.drivers.local.task_runner.nvml import find_nvml

    folder = library_folder(settings)
    if settings.gpu.mps == "off" or folder is None:
        return None
    found = find_nvml(None, folder)
    made = MpsDaemons(home, () if found is None else tuple(found.uuids()))
    if not made.is_there:
        raise RotaError(f"gpu.mps: {PROGRAM} is not installed; install NVIDIA's MPS, or set it to off")
    return made


def devices_by_node(settings: UpFile, cluster: Cluster) -> DevicesByNode:
    """Return the devices of each node by name, where some GPU is partitioned."""
    from rota.drivers.local.gpu.mig import nodes_of
    from rota.drivers.local.machine import named_devices

    nvml = settings.gpu.nvml
    found = [] if settings.emulate is not None else named_devices(None if nvml is None else str(nvml))
    return nodes_of(found, cluster.nodes[0])[1] if found else {}
