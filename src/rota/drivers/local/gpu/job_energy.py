"""The energy of a job over all of its attempts, as its supervisors counted it, and what that cost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rota.core.model.job import JobId
from rota.drivers.local.gpu.settings import EnergyRates
from rota.store.run_folder import read_json, task_files

J_PER_KWH = 3.6e6
SHARED = "its GPUs were shared with other jobs; the energy is that of the devices while it ran, not of this job alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnergy:
    """What the GPUs of a job took while it held them."""

    joules: float
    alone: bool
    """Whether no other job was on them; else the energy can't be attributed."""

    @property
    def kwh(self) -> float:
        """Kilowatt-hours."""
        return self.joules / J_PER_KWH

    def encode(self, rates: EnergyRates) -> dict[str, Any]:
        """Return it as JSON values, with cost and emissions where rates are known and it is the job's own."""
        price, carbon = rates.price_per_kwh, rates.carbon_g_per_kwh
        return {
            "kwh": self.kwh if self.alone else None,
            "devices_kwh": self.kwh,
            "cost": None if price is None or not self.alone else self.kwh * price,
            "currency": rates.currency,
            "carbon_g": None if carbon is None or not self.alone else self.kwh * carbon,
            "note": "" if self.alone else SHARED,
        }


def energy_of(home: Path, job_id: JobId) -> JobEnergy | None:
    """Return the energy of a job so far; None if its GPUs do not count it, or it had none."""
    joules, alone, found = 0.0, True, False
    for path in task_files(home, job_id, "energy.json"):
        try:
            known = read_json(path)
            if known is not None:
                joules, alone, found = joules + float(known["joules"]), alone and bool(known["alone"]), True
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return JobEnergy(joules=joules, alone=alone) if found else None


def own_energy_j(home: Path, job_id: JobId) -> float:
    """Return the energy that is a job's own; 0 where it is not known, or of devices that others used as well."""
    found = energy_of(home, job_id)
    return found.joules if found is not None and found.alone else 0.0


def warnings_of(home: Path, job_id: JobId) -> list[dict[str, Any]]:
    """Return the warnings about a job, oldest first: those of its supervisors, and those of the manager."""
    found: list[dict[str, Any]] = []
    for path in (*task_files(home, job_id, "*warning.json"), home / "runs" / job_id / "warnings.json"):
        try:
            known = read_json(path)
            found.extend((known or {}).get("warnings", [known] if known else []))
        except (OSError, ValueError, AttributeError):
            continue
    return sorted(found, key=lambda each: float(each.get("at_s", 0.0)))
