"""Settings that can't be used are refused before anything is scheduled under them."""

from __future__ import annotations

import pytest

from rota.api.serve_cluster import check_settings
from rota.core.errors import RotaError
from rota.drivers.kubernetes.settings import ClusterSettings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        pytest.param(ClusterSettings(policy="lsa"), "unknown policy 'lsa'", id="policy"),
        pytest.param(ClusterSettings(tenancy="quotas"), "unknown tenancy 'quotas'; did you mean 'quota'", id="tenancy"),
        pytest.param(ClusterSettings(tenancy="cells"), "give a HiveD file under `hived`", id="cells"),
        pytest.param(
            ClusterSettings(policy="gandiva"),
            "^policy 'gandiva' emits suspend, resume, move and share decisions, which the Kubernetes driver does not "
            "support; choose another policy$",
            id="time slicing",
        ),
        pytest.param(ClusterSettings(policy="gavel/gandiva"), "^policy 'gavel/gandiva' emits share", id="packing"),
        pytest.param(ClusterSettings(policy="fifo:nonsense=3"), "has no parameter 'nonsense'", id="unknown option"),
        pytest.param(ClusterSettings(policy="priority:aging=soon"), "aging is 'soon'", id="option of a wrong type"),
        pytest.param(
            ClusterSettings(policy="priority:consolidate_s=60"),
            "^policy 'priority:consolidate_s=60' emits move decisions, which the Kubernetes driver",
            id="consolidation",
        ),
        pytest.param(ClusterSettings(policy="harmony:weights=missing.npz"), "no such file", id="file of weights"),
        pytest.param(ClusterSettings(placement="liquid:h=far"), "far", id="placement"),
    ],
)
def test_unusable_settings_are_refused(settings: ClusterSettings, message: str) -> None:
    with pytest.raises(RotaError, match=message):
        check_settings(settings)
