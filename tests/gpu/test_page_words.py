"""What a job's page says of its GPUs beside the charts."""

from __future__ import annotations

from typing import Any

import pytest

from rota.drivers.local.gpu.job_energy import JobEnergy
from rota.drivers.local.gpu.settings import EnergyRates
from rota.drivers.local.gpu.telemetry import SHARED_NOTE


@pytest.mark.slow
def test_energy_cost_errors_and_what_is_not_known_are_said() -> None:
    pytest.importorskip("nicegui")
    from rota.web.parts.gpus import facts_of

    rates = EnergyRates(price_per_kwh=0.25, currency="EUR", carbon_g_per_kwh=400.0)
    own: dict[str, Any] = {
        "warnings": [],
        "energy": JobEnergy(joules=3.6e6, alone=True).encode(rates),
        "series": {"note": "", "xids": [{"at_s": 0.0, "gpu": 1, "xid": 79}]},
    }
    shared = {
        "warnings": [],
        "energy": JobEnergy(joules=3.6e6, alone=False).encode(rates),
        "series": {"note": SHARED_NOTE, "xids": []},
    }

    assert facts_of(own) == ["Energy 1.000 kWh, cost 0.25 EUR, 400 g CO2e", "GPU 1 reported Xid 79."]
    assert facts_of(shared)[0].startswith("Energy 1.000 kWh; its GPUs were shared")
    assert "can't be attributed" in facts_of(shared)[1]
    assert facts_of({"warnings": [], "energy": None, "series": None}) == []
