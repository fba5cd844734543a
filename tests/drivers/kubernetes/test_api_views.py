"""Pods in the form of the manager's API."""

from __future__ import annotations

from typing import Any

import pytest

from rota.drivers.kubernetes.objects.api_views import DEFAULT_CONTAINER, main_container

GPU = "nvidia.com/gpu"
BESIDE: dict[str, Any] = {"name": "beside"}
WORKS: dict[str, Any] = {"name": "works", "resources": {"limits": {GPU: "1"}}}
ASKS: dict[str, Any] = {"name": "asks", "resources": {"requests": {GPU: "1"}, "limits": None}}


@pytest.mark.parametrize(
    ("containers", "notes", "found"),
    [
        pytest.param([BESIDE, {"name": "other"}], {}, "beside", id="first"),
        pytest.param([BESIDE, WORKS], None, "works", id="with-devices"),
        pytest.param([BESIDE, ASKS], {}, "asks", id="with-requested-devices"),
        pytest.param([BESIDE, WORKS], {DEFAULT_CONTAINER: "beside"}, "beside", id="named"),
        pytest.param([BESIDE, WORKS], {DEFAULT_CONTAINER: "nobody"}, "works", id="named-but-missing"),
    ],
)
def test_output_is_that_of_the_container_that_does_the_work(
    containers: list[dict[str, Any]], notes: dict[str, str] | None, found: str
) -> None:
    pod = {"metadata": {"annotations": notes}, "spec": {"containers": containers}}

    assert main_container(pod, (GPU,)) == found
