"""Which tenants a manager knows, and the caps of priorities: by role, by tenant, by both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.core.errors import RotaError
from rota.core.model.cluster import Cluster
from rota.drivers.local.driver import LocalDriver
from rota.live.intake.tenant_registry import TenantRegistry, TenantSettings, UnknownTenant
from rota.live.loop.boot import Scheduling, boot
from rota.live.loop.control import Control
from rota.store.database import open_database
from rota.store.records import Records

CAPS = {"maintainer": 10, "vision": 5, "nlp/maintainer": 50}


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[tuple[Control, Records]]:
    database = open_database(tmp_path / "rota.db")
    records = Records(database)
    control = boot(records, Scheduling(cluster=Cluster.uniform(("gpu", 2, 2))), LocalDriver.contract)
    yield control, records
    database.dispose()


@pytest.mark.parametrize(
    ("role", "tenant", "cap"),
    [
        ("member", "nlp", 0),
        ("maintainer", "nlp", 50),
        ("member", "vision", 5),
        ("maintainer", "vision", 5),
        ("maintainer", "default", 10),
        ("member", "default", 0),
        ("admin", "nlp", None),
    ],
)
def test_narrowest_cap_counts(loop: tuple[Control, Records], role: str, tenant: str, cap: int | None) -> None:
    tenants = TenantRegistry(*loop, TenantSettings(names=("nlp", "vision"), caps=CAPS))

    assert tenants.cap(role, tenant) == cap


def test_maintainers_may_give_what_members_may_unless_an_admin_says_otherwise(loop: tuple[Control, Records]) -> None:
    wide = TenantRegistry(*loop, TenantSettings(names=("nlp",), caps={"nlp/member": 5}))
    narrow = TenantRegistry(*loop, TenantSettings(names=("nlp",), caps={"nlp/member": 5, "nlp/maintainer": 1}))

    assert wide.caps_of("nlp") == {"member": 5, "maintainer": 5}
    assert narrow.caps_of("nlp") == {"member": 5, "maintainer": 1}


def test_priority_up_to_the_cap_is_allowed_and_above_it_refused(loop: tuple[Control, Records]) -> None:
    tenants = TenantRegistry(*loop, TenantSettings(names=("vision",), caps={"vision": 5}))

    tenants.refuse_priority("member", "vision", 5)
    tenants.refuse_priority("member", "vision", -1)
    tenants.refuse_priority("admin", "vision", 1000)
    with pytest.raises(RotaError, match=r"^priority is 6; the most that a member may give in tenant 'vision' is 5"):
        tenants.refuse_priority("member", "vision", 6)


def test_tenants_of_an_older_database_are_known_by_its_jobs_and_tokens(loop: tuple[Control, Records]) -> None:
    tenants = TenantRegistry(*loop, also=("nlp", "*"))

    assert tenants.names() == ["default", "nlp"]
    with pytest.raises(UnknownTenant, match="there is no tenant 'nosuch'; an admin can add it"):
        tenants.must_exist("nosuch")


@pytest.mark.parametrize(
    ("caps", "words"),
    [
        ({"membr": 5}, "max_priority: there is no tenant 'membr'"),
        ({"nlp/chief": 5}, "max_priority: 'nlp/chief' is neither a role, a tenant nor TENANT/ROLE"),
        ({"/member": 5}, "max_priority: '/member' is neither"),
    ],
)
def test_caps_that_mean_nothing_are_refused(loop: tuple[Control, Records], caps: dict[str, int], words: str) -> None:
    with pytest.raises(RotaError, match=words):
        TenantRegistry(*loop, TenantSettings(names=("nlp",), caps=caps))


def test_changed_settings_are_audited_once(loop: tuple[Control, Records]) -> None:
    control, records = loop
    TenantRegistry(control, records, TenantSettings(names=("nlp",), caps={"nlp": 5}))

    (entry,) = [audit for waiting in control.pending for audit in waiting.audit]
    assert (entry["who"], entry["what"], entry["detail"]) == ("local", "settings", "tenants nlp; max_priority nlp=5")
