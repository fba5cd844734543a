from __future__ import annotations

from collections.abc import Iterator

import pytest

from attacks.lab import MIN_RUN_S, Lab
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
