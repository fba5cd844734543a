from __future__ import annotations

import pytest

from e2e.kubernetes.replica import pod
from rota.drivers.kubernetes.admission.mistakes import warnings_in
from rota.drivers.kubernetes.objects.pods import PodRequests
from rota.drivers.kubernetes.objects.reading import read_pod
from rota.drivers.kubernetes.settings import ClusterSettings

SHARED = ClusterSettings(fractions=True)


def wants(note: str, value: str, settings: ClusterSettings = SHARED, gpus: int = 0) -> PodRequests:
    made = pod("p", gpus, notes={note: value})
    made["metadata"] |= {"uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    found = read_pod(made, settings)
    assert found is not None
    return found.wants


@pytest.mark.parametrize(("value", "milli"), [("0.5", 500), (".25", 250), ("0.125", 125), ("0.001", 1)])
@pytest.mark.parametrize("note", ["rota.dev/gpu-fraction", "gpu-fraction"])
def test_fraction_is_part_of_one_device(note: str, value: str, milli: int) -> None:
    found = wants(note, value)
    assert (found.device_milli, found.refused) == (milli, "")


@pytest.mark.parametrize("value", ["1", "0", "0.0", "1.5", "-0.5", "half", "²", "0.5000", "NaN", "1e-1", "9" * 5000])
def test_anything_else_is_refused_with_the_way_out(value: str) -> None:
    assert wants("rota.dev/gpu-fraction", value).refused.endswith("write a number above 0 and below 1, such as 0.5")


def test_fraction_is_refused_beside_whole_devices_and_where_it_is_off() -> None:
    assert "requests 2 devices as well" in wants("gpu-fraction", "0.5", gpus=2).refused
    assert "`fractions` of the settings" in wants("gpu-fraction", "0.5", ClusterSettings()).refused


def test_annotations_of_fractions_and_topology_are_known() -> None:
    for name in ("gpu-fraction", "topology-required", "topology-preferred", "pod-group"):
        assert warnings_in(pod("p", notes={f"rota.dev/{name}": "x"}), SHARED) == []
    assert "did you mean" in warnings_in(pod("p", notes={"rota.dev/topology-requird": "x"}), SHARED)[0]
