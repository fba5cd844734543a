from __future__ import annotations

from collections.abc import Iterator

import pytest

from attacks.lab import MIN_RUN_S, Lab
from attacks.single_sign_on import Provider, manager_for, provider
from managers import Manager


@pytest.fixture(scope="module")
def managed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    options = ("--emulate", "gpu=2/2", "--require-token", "--min-run", f"{MIN_RUN_S}s", "--cgroups", "off")
    made = Manager(tmp_path_factory.mktemp("lab"), "--tenants", "nlp,vision", *options).start_guarded()
    yield Lab(made)
    made.clean_up()


@pytest.fixture
def lab(managed: Lab) -> Iterator[Lab]:
    yield managed
    managed.clear()


@pytest.fixture(scope="module")
def shared_idp() -> Iterator[Provider]:
    with provider() as made:
        yield made


@pytest.fixture
def idp(shared_idp: Provider) -> Provider:
    shared_idp.reset()
    return shared_idp


@pytest.fixture(scope="module")
def manager(shared_idp: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    made = manager_for(tmp_path_factory.mktemp("sso"), shared_idp.issuer)
    yield made
    made.clean_up()
