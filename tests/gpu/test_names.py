"""The stand-in answers to names that NVIDIA's library has, and to all that Rota calls."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "rota" / "drivers" / "local"
STAND_IN = Path(__file__).with_name("pynvml_module.py")


def called() -> set[str]:
    """The names that Rota takes from the library."""
    found: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        found |= set(re.findall(r"library\.((?:nvml|NVML)\w+)", path.read_text(encoding="utf-8")))
    return found


def test_rota_calls_what_the_library_has() -> None:
    pynvml = pytest.importorskip("pynvml", reason="pynvml is not installed")
    if "pynvml_module" in str(pynvml.__file__) or not hasattr(pynvml, "NVML_ERROR_NOT_SUPPORTED"):
        pytest.skip("a test has loaded the stand-in")

    assert sorted(name for name in called() if not hasattr(pynvml, name)) == []


def test_the_stand_in_has_what_rota_calls() -> None:
    text = STAND_IN.read_text(encoding="utf-8")

    assert sorted(name for name in called() if not re.search(rf"\b{name}\b", text)) == []
