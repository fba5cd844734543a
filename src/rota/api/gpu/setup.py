"""The parts of a manager that are about its machine's GPUs."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from rota.drivers.local.attempt_controller import AttemptController
from rota.drivers.local.gpu.sensors import find_sensors
from rota.drivers.local.settings import Settings
from rota.live.gpus.mig_watch import MigWatch
from rota.live.gpus.monitor import GpuMonitor
from rota.live.gpus.speed_bound import SpeedBounds
from rota.live.loop.control import Control


def gpu_monitor(settings: Settings, control: Control) -> GpuMonitor | None:
    """Return the monitor of this machine's GPUs; None where the devices are no GPUs of this machine."""
    sensors = find_sensors(settings.nvml)
    if sensors is None:
        return None
    return GpuMonitor(control, sensors, settings.gpu_settings, settings.home, settings.mps, settings.devices)


def gpu_upkeep(
    settings: Settings, control: Control, monitor: GpuMonitor | None, controller: AttemptController
) -> list[Coroutine[Any, Any, None]]:
    """Return what runs as long as the manager: the monitor, the bound of guaranteed jobs if one is set, and what
    repartitions GPUs if some may be. The engine has not planned yet."""
    if monitor is None:
        return []
    upkeep = [monitor.run()]
    bound = settings.gpu_settings.bound
    if bound:
        bounds = SpeedBounds(control, monitor, settings.home, bound, controller.pauses, monitor.busy_by_job)
        upkeep.append(bounds.run())
    if settings.mig is not None:
        watch = MigWatch(control, settings.mig)
        watch.begin()
        upkeep.append(watch.run())
    return upkeep
