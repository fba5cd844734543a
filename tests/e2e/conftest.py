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
