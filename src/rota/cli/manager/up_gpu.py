"""The settings of GPUs as the local driver takes them, and the library by which it sees them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rota.core.errors import RotaError

if TYPE_CHECKING:
    from pathlib import Path

    from rota.core.model.cluster import Cluster
    from rota.drivers.local.gpu.abilities import GpuAbilities
    from rota.drivers.local.gpu.mig import DevicesByNode
    from rota.drivers.local.gpu.mig_layouts import MigLayouts, MigPool
    from rota.drivers.local.gpu.mps import MpsDaemons
    from rota.drivers.local.gpu.settings import GpuSettings
    from rota.drivers.local.settings import Settings
    from rota.files.up_file import UpFile


def machine_cluster(settings: UpFile | None) -> Cluster:
    """Return this machine as a cluster, as the settings of GPUs say."""
    from rota.drivers.local.machine import this_machine

    if settings is None:
        return this_machine()
    nvml = settings.gpu.nvml
    return this_machine(None if nvml is None else str(nvml), _pool(settings))


def _pool(settings: UpFile) -> MigPool | None:
    from rota.drivers.local.gpu.mig_layouts import MigPool

    part = settings.gpu.mig
    return None if part is None else MigPool(gpus=tuple(sorted({*part.gpus})), profiles=part.profiles)


def with_gpus(tasks: Settings, settings: UpFile, cluster: Cluster) -> Settings:
    """Return how tasks are run, with all that is about the GPUs of this machine; nothing for emulated devices."""
    from rota.drivers.local.gpu.abilities import gpu_abilities
    from rota.drivers.local.gpu.topology import GpuTopology
    from rota.drivers.local.machine import topology

    is_real, nvml = settings.emulate is None, settings.gpu.nvml
    mig = layouts_of(settings, cluster)
    devices = devices_by_node(settings, cluster) if mig is None else mig.devices
    suspends = is_real and settings.gpu_suspend == "auto" and not devices
    return replace(
        tasks,
        nvml=library_folder(settings),
        gpu_settings=gpu_settings(settings),
        mps=mps_daemons(settings, tasks.home),
        devices=devices,
        mig=mig,
        topology=topology(None if nvml is None else str(nvml)) if is_real else GpuTopology(),
        gpu=with_disk(gpu_abilities() if suspends else None, settings),
    )


def with_disk(found: GpuAbilities | None, settings: UpFile) -> GpuAbilities | None:
    """Return what the driver can do, with what writes suspended jobs to disk if the settings ask for that.

    Raise a `RotaError` that says why if it can't be done here.
    """
    from rota.drivers.local.gpu.abilities import disk_writer

    if settings.gpu.to_disk is None:
        return found
    if found is None:
        raise RotaError("gpu.to_disk: jobs are not suspended on this machine, so none can be written to disk")
    if settings.accounts is not None or settings.run_as:
        raise RotaError("gpu.to_disk: tasks run as other users here, with mounts that can't be restored; leave it out")
    return replace(found, writer=disk_writer(settings.gpu.to_disk))


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


def layouts_of(settings: UpFile, cluster: Cluster) -> MigLayouts | None:
    """Return the GPUs that may be repartitioned; None if the settings name none."""
    from rota.drivers.local.machine import mig_layouts

    pool, nvml = _pool(settings), settings.gpu.nvml
    if pool is None:
        return None
    if settings.emulate is not None:
        raise RotaError("gpu.mig: emulated devices can't be repartitioned; leave it out")
    return mig_layouts(cluster.nodes[0], pool, None if nvml is None else str(nvml))


def devices_by_node(settings: UpFile, cluster: Cluster) -> DevicesByNode:
    """Return the devices of each node by name, where some GPU is partitioned."""
    from rota.drivers.local.gpu.mig import nodes_of
    from rota.drivers.local.machine import named_devices

    nvml = settings.gpu.nvml
    found = [] if settings.emulate is not None else named_devices(None if nvml is None else str(nvml))
    return nodes_of(found, cluster.nodes[0])[1] if found else {}
