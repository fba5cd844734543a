"""Random objects of every kind that Rota reads."""

from __future__ import annotations

import pytest

from drivers.kubernetes.fuzz import fuzz
from drivers.kubernetes.strange_objects import STRANGE_KINDS


@pytest.mark.slow
@pytest.mark.attack(
    "objects of every kind with nonsense in any place", stopped_by="readers that refuse by name, and never raise"
)
def test_no_object_is_too_strange() -> None:
    """A small part of `make fuzz`."""
    assert fuzz(2000, seed=1).keys() == STRANGE_KINDS.keys()
