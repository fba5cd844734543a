"""Whatever happens, every tenant can be given what it owns, no device is held twice, and no quota is lost."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenancy.random_cells import trace
from tenancy.random_engine import history


@pytest.mark.slow
@given(st.integers(0, 2**32))
def test_promises_hold_through_failures_and_new_promises(seed: int) -> None:
    trace(random.Random(seed), steps=60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1004, 1012])
def test_tenant_gets_a_node_that_is_larger_than_the_first_of_its_cell(seed: int) -> None:
    trace(random.Random(seed))


@pytest.mark.slow
@given(st.integers(0, 2**32))
def test_promises_hold_through_long_histories(seed: int) -> None:
    trace(random.Random(seed))


@pytest.mark.long
@settings(max_examples=1000)
@given(st.integers(0, 2**32))
def test_promises_hold_through_many_long_histories(seed: int) -> None:
    trace(random.Random(seed))


@pytest.mark.slow
@pytest.mark.parametrize("tenancy", ["cells", "quota"])
@settings(max_examples=6)
@given(seed=st.integers(0, 2**32))
def test_no_job_is_lost_whatever_changes(tenancy: str, seed: int) -> None:
    history(random.Random(seed), tenancy, steps=50)


@pytest.mark.slow
@pytest.mark.parametrize("tenancy", ["cells", "quota"])
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_no_job_is_lost_in_long_histories(tenancy: str, seed: int) -> None:
    history(random.Random(seed), tenancy)


@pytest.mark.long
@pytest.mark.parametrize("tenancy", ["cells", "quota"])
@settings(max_examples=300)
@given(seed=st.integers(0, 2**32))
def test_no_job_is_lost_in_many_long_histories(tenancy: str, seed: int) -> None:
    history(random.Random(seed), tenancy)
