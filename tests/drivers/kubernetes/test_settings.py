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
        pytest.param(ClusterSettings(policy="gandiva"), "lets jobs share devices", id="sharing"),
        pytest.param(ClusterSettings(policy="gavel/gandiva"), "lets jobs share devices", id="packing in rounds"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: ClusterSettings, message: str) -> None:
    with pytest.raises(RotaError, match=message):
        check_settings(settings)
