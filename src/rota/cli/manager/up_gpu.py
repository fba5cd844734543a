"""The settings of GPUs as the local driver takes them, and the library by which it sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.core.errors import RotaError

if TYPE_CHECKING:
    from pathlib import Path

    from rota.drivers.local.gpu.mps import MpsDaemons
    from rota.drivers.local.gpu.settings import GpuSettings
    from rota.files.up_file import UpFile


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
