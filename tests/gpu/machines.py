"""A machine with GPUs for tests, which this one need not have: a folder with the stand-in of `pynvml` and its state."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

GIB = 2**30
_MODULE = Path(__file__).with_name("pynvml_module.py")


class GpuMachine:
    """GPUs as a test says; changes take effect at the next look."""

    def __init__(self, folder: Path, gpus: int = 1, **more: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        shutil.copy(_MODULE, folder / "pynvml.py")
        self.state: dict[str, Any] = {"gpus": [_gpu(index) | more for index in range(gpus)]}
        self.write()

    def change(self, gpu: int = 0, **values: Any) -> None:
        """Change what a GPU shows."""
        self.state["gpus"][gpu] |= values
        self.write()

    def write(self) -> None:
        """Write the state whole, as readers may look at any moment."""
        draft = self.folder / "state.json.draft"
        draft.write_text(json.dumps(self.state), encoding="utf-8")
        os.replace(draft, self.folder / "state.json")


def _gpu(index: int) -> dict[str, Any]:
    return {
        "name": "NVIDIA H200",
        "uuid": f"GPU-{index:08d}-0000-0000-0000-000000000000",
        "total": 140 * GIB,
        "used": 0,
        "busy": 0,
        "memory_busy": 0,
        "processes": {},
        "energy_mj": 1_000_000,
        "power_mw": 75_000,
        "temperature": 30,
        "sm_mhz": 345,
        "memory_mhz": 3201,
        "pcie_tx_kb": 10,
        "pcie_rx_kb": 20,
        "ecc_corrected": 0,
        "ecc_uncorrected": 0,
        "xid": [],
    }
