"""The parts of a manager that are about its machine's GPUs."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from rota.core.model.cluster import Cluster
from rota.drivers.local.attempt_controller import AttemptController
from rota.drivers.local.gpu.sensors import find_sensors
from rota.drivers.local.settings import Settings
from rota.live.gpus.monitor import GpuMonitor
from rota.live.gpus.speed_bound import SpeedBounds
from rota.live.loop.control import Control


def gpu_monitor(settings: Settings, cluster: Cluster, control: Control) -> GpuMonitor | None:
    """Return the monitor of this machine's GPUs; None where the devices are no GPUs of this machine."""
    sensors = find_sensors(settings.nvml)
    if sensors is None:
        return None
    gpus = [each.gpu for each in settings.devices.get(cluster.nodes[0].id, ())]
    return GpuMonitor(control, sensors, settings.gpu_settings, settings.home, settings.mps, gpus)


def gpu_upkeep(
    settings: Settings, control: Control, monitor: GpuMonitor | None, controller: AttemptController
) -> list[Coroutine[Any, Any, None]]:
    """Return what runs as long as the manager: the monitor, and the bound of guaranteed jobs if one is set."""
    if monitor is None:
        return []
    bound = settings.gpu_settings.bound
    if not bound:
        return [monitor.run()]
    bounds = SpeedBounds(control, monitor, settings.home, bound, controller.pauses, monitor.busy_by_job)
    return [monitor.run(), bounds.run()]
