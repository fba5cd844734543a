from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from managers import Manager


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    """A manager of eight pretend devices on two nodes."""
    made = Manager(tmp_path).start()
    yield made
    made.clean_up()


@pytest.fixture(scope="module")
def _for_many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    made = Manager(tmp_path_factory.mktemp("shared")).start()
    yield made
    made.clean_up()


@pytest.fixture
def shared(_for_many: Manager) -> Iterator[Manager]:
    """The same manager for all tests of a file that neither stop it nor mind that others were there before."""
    yield _for_many
    _for_many.calm_down()
